"""Topics and topic patterns: dot-separated levels, `*` for any one level, `>` for one or more further levels."""

from __future__ import annotations

import re

from postroad.messages.characters import first_invisible, shown

# The limits of topics: a pattern longer than any topic would match nothing.
from postroad.messages.limits import MAX_TOPIC_BYTES as MAX_TOPIC_LENGTH
from postroad.messages.limits import MAX_TOPIC_LEVELS
from postroad.selectors.errors import TopicError

__all__ = ["MAX_TOPIC_LENGTH", "MAX_TOPIC_LEVELS", "TopicPattern", "check_topic"]

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_WILDCARD = re.compile(r"[*>]")


def check_topic(text: str) -> None:
    """Check the topic of a message: non-empty levels of visible characters.

    Raises:
        TopicError: it is not a topic; the error points at the place.
    """
    if found := _WILDCARD.search(text):
        message = (
            "wildcards are for subscriptions to topics; the name of a queue, or of a topic published to, cannot have "
            f"{found[0]}"
        )
        raise TopicError(message, text, found.start())
    _levels(text)


class TopicPattern:
    """The topics a subscription wants.

    Attributes:
        text: the pattern as written, which is also its canonical form.
        levels: its levels; a wildcard is the level `*` or `>`.
        is_exact: whether it has no wildcard, so that it matches one topic only.
    """

    __slots__ = ("_fixed", "is_exact", "levels", "text")

    def __init__(self, text: str, levels: tuple[str, ...]) -> None:
        self.text = text
        self.levels = levels
        self.is_exact = not _WILDCARD.search(text)
        # The levels that must be equal; the others are wildcards.
        self._fixed = tuple((place, level) for place, level in enumerate(levels) if level not in ("*", ">"))

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """Parse a pattern.

        Raises:
            TopicError: it is not a pattern; the error points at the place.
        """
        levels = _levels(text)
        start = 0
        for place, level in enumerate(levels):
            if len(level) > 1 and (found := _WILDCARD.search(level)):
                message = f"{found[0]} stands for whole levels, so it is a level of its own"
                raise TopicError(message, text, start + found.start(), f"{found[0]} between dots, or no {found[0]}")
            if level == ">" and place + 1 < len(levels):
                message = "> stands for all further levels, so nothing can follow it"
                raise TopicError(message, text, start + 1, "the end of the pattern")
            start += len(level) + 1
        return cls(text, levels)

    def matches(self, topic: str) -> bool:
        """Whether a topic matches the pattern."""
        if self.is_exact:
            return topic == self.text
        given = topic.split(".")
        wanted = len(self.levels)
        if len(given) < wanted or (len(given) > wanted and self.levels[-1] != ">"):
            return False
        return all(given[place] == level for place, level in self._fixed)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"TopicPattern.parse({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _levels(text: str) -> tuple[str, ...]:
    """Return the levels of a topic or pattern, each non-empty and of visible characters."""
    _check_characters(text)
    size = len(text.encode())
    if size > MAX_TOPIC_LENGTH:
        message = f"the topic has {size:,} bytes; the limit is {MAX_TOPIC_LENGTH:,} (MAX_TOPIC_LENGTH)"
        raise TopicError(message, text, min(len(text), MAX_TOPIC_LENGTH))
    levels = text.split(".")
    if len(levels) > MAX_TOPIC_LEVELS:
        message = f"the topic has {len(levels):,} levels; the limit is {MAX_TOPIC_LEVELS} (MAX_TOPIC_LEVELS)"
        raise TopicError(message, text, len(".".join(levels[:MAX_TOPIC_LEVELS])))
    position = 0
    for level in levels:
        if not level:
            raise TopicError("a level is empty" if text else "the topic is empty", text, position, "a level")
        position += len(level) + 1
    return tuple(levels)


def _check_characters(text: str) -> None:
    if (at := first_invisible(text)) is not None:
        message = f"a topic cannot have blanks or control or format characters (here {shown(text[at])})"
        raise TopicError(message, text, at)
    if found := _HALF_CHARACTER.search(text):
        raise TopicError("half a surrogate pair is not a character, and no message can hold it", text, found.start())
