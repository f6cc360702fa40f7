"""`LIKE` patterns: `%` is any sequence of characters, `_` is any one, and an escape character makes either plain."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EscapeMistake", "LikePattern", "like_matcher", "parse_like"]

# The escape character of canonical text, used only if the pattern has a plain `%` or `_`.
_ESCAPE = "\\"
_SPECIAL = frozenset(("%", "_", _ESCAPE))


class LikePattern(NamedTuple):
    """A pattern, split at each `%`; consecutive `%` count as one.

    Attributes:
        parts: the texts between the `%`, unescaped; one part if there is no `%`.
        holes: for each part, the indices at which it has a `_` that stands for any one character.
    """

    parts: tuple[str, ...]
    holes: tuple[tuple[int, ...], ...]

    @property
    def is_plain(self) -> bool:
        """Whether no part has a hole."""
        return not any(self.holes)

    @property
    def length(self) -> int:
        """How many characters the pattern has, without escapes, and with consecutive `%` as one."""
        return sum(map(len, self.parts)) + len(self.parts) - 1

    def literal(self) -> tuple[str, str]:
        """Return the canonical texts of pattern and escape; the escape is empty if the pattern needs none."""
        if self._needs_escape():
            return "%".join(map(_escaped, self.parts, self.holes)), _ESCAPE
        return "%".join(self.parts), ""

    def _needs_escape(self) -> bool:
        return any(
            "%" in part or part.count("_") > len(holes) for part, holes in zip(self.parts, self.holes, strict=True)
        )


def _escaped(part: str, holes: tuple[int, ...]) -> str:
    open_places = frozenset(holes)
    return "".join(
        _ESCAPE + char if char in _SPECIAL and index not in open_places else char for index, char in enumerate(part)
    )


class EscapeMistake(Exception):
    """An escape character escapes nothing; `index` says where in the pattern."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(index)


def parse_like(pattern: str, escape: str = "") -> LikePattern:
    """Split a pattern into parts.

    Raises:
        EscapeMistake: the escape character is not followed by `%`, `_` or itself, as SQL requires.
    """
    if not escape and "_" not in pattern:
        return _without_empty_middles(pattern.split("%"))
    parts: list[str] = []
    holes: list[tuple[int, ...]] = []
    part: list[str] = []
    part_holes: list[int] = []
    characters = iter(enumerate(pattern))
    for index, char in characters:
        if char == escape:
            _, char = next(characters, (0, ""))
            if char not in ("%", "_", escape):
                raise EscapeMistake(index)
            part.append(char)
        elif char == "%":
            if part or not parts:
                parts.append("".join(part))
                holes.append(tuple(part_holes))
                part, part_holes = [], []
        else:
            if char == "_":
                part_holes.append(len(part))
            part.append(char)
    parts.append("".join(part))
    holes.append(tuple(part_holes))
    return LikePattern(tuple(parts), tuple(holes))


def _without_empty_middles(parts: list[str]) -> LikePattern:
    kept = (parts[0], *filter(None, parts[1:-1]), *parts[-1:]) if len(parts) > 1 else tuple(parts)
    return LikePattern(kept, ((),) * len(kept))


# A regular expression tries each part at each place, which is fastest up to this many steps. Beyond, a text made for it
# would take the product of both lengths.
_MOST_STEPS = 65_536


@lru_cache(maxsize=1024)
def like_matcher(pattern: LikePattern) -> Callable[[str], object]:
    """Return a function that returns None for texts that do not match, and something else for those that do.

    Each middle part is matched at its first place, without backtracking (an atomic group): a later place can only leave
    less for the parts after it. So a pattern with many `%` takes time in proportion to the text, not a power of it.
    """
    first, *middles = (_expression(part, holes) for part, holes in zip(*pattern, strict=True))
    if not middles:
        return re.compile(first, re.DOTALL).fullmatch
    last = middles.pop()
    middle = "".join(f"(?>.*?{part})" for part in middles)
    matches = re.compile(f"{first}{middle}.*{last}", re.DOTALL).fullmatch
    short = _MOST_STEPS // (1 + max(map(len, pattern.parts)))
    ends = re.compile(first, re.DOTALL).match, re.compile(last, re.DOTALL).fullmatch

    def matched(text: str) -> object:
        return matches(text) if len(text) <= short else _matches_long(pattern, ends, text)

    return matched


def _matches_long(
    pattern: LikePattern, ends: tuple[Callable[[str], object], Callable[[str], object]], text: str
) -> object:
    """Match in time linear in the text; a part with holes costs a step more for each 64 of its characters."""
    begins, finishes = ends
    start, end = len(pattern.parts[0]), len(text) - len(pattern.parts[-1])
    if start > end or not begins(text[:start]) or not finishes(text[end:]):
        return None
    for part, holes in list(zip(*pattern, strict=True))[1:-1]:
        if holes:
            start = _after_holes(part, holes, text, start, end)
        else:
            found = text.find(part, start, end)
            start = found + len(part) if found >= 0 else -1
        if start < 0:
            return None
    return True


def _after_holes(part: str, holes: tuple[int, ...], text: str, start: int, end: int) -> int:
    """Return where the first match of a part with holes ends, or -1.

    Bit i says that the first i + 1 characters of the part match the text up to here.
    """
    open_places = sum(1 << hole for hole in holes)
    places: dict[str, int] = {}
    for index, char in enumerate(part):
        places[char] = places.get(char, 0) | 1 << index
    last, state = 1 << len(part) - 1, 0
    for index in range(start, end):
        state = (state << 1 | 1) & (places.get(text[index], 0) | open_places)
        if state & last:
            return index + 1
    return -1


def _expression(part: str, holes: tuple[int, ...]) -> str:
    if not holes:
        return re.escape(part)
    open_places = frozenset(holes)
    return "".join("." if index in open_places else re.escape(char) for index, char in enumerate(part))
