"""Errors with a place: what is wrong, the text with a caret under the place, and what was expected."""

from __future__ import annotations

import unicodedata

from postroad.errors import PostroadError

__all__ = ["PlaceError", "SelectorError", "TopicError"]

# Characters shown before and after the place: with the indent and the ellipses they fit in 80 columns.
_BEFORE, _AFTER = 48, 24


class PlaceError(PostroadError):
    """A text was refused at one place.

    Attributes:
        text: the whole text that was refused.
        position: where in it, counted in characters from 0; just after the last word when
            something is missing at the end.
        expected: what is accepted there; empty if nothing is.
    """

    def __init__(self, message: str, text: str, position: int, expected: str = "") -> None:
        self.message = message
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(message, text, position, expected)

    def __str__(self) -> str:
        lines = [self.message, *_pointed(self.text, self.position)]
        if self.expected:
            lines.append(f"expected: {self.expected}")
        return "\n".join(lines)


class SelectorError(PlaceError):
    """A selector was refused."""


class TopicError(PlaceError):
    """A topic or a topic pattern was refused."""


def _pointed(text: str, position: int) -> tuple[str, str]:
    start = max(0, position - _BEFORE)
    end = min(len(text), position + _AFTER)
    before = ("…" if start > 0 else "") + _shown(text[start:position])
    after = _shown(text[position:end]) + ("…" if end < len(text) else "")
    return f"  {before}{after}", f"  {' ' * _width(before)}^"


def _shown(text: str) -> str:
    """Replace each unprintable character by a printable one, which keeps the caret in place and the terminal safe."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "·" for char in text)


def _width(text: str) -> int:
    """Return the columns that a text takes: two for wide East Asian characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
