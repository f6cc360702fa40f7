"""Which topics a message may have; the kernel in `checks` has the same rule for bytes."""

from __future__ import annotations

import re

from postroad.errors import LimitError
from postroad.messages.characters import first_invisible, shown
from postroad.messages.errors import MessageError
from postroad.messages.limits import MAX_TOPIC_BYTES, MAX_TOPIC_LEVELS

__all__ = ["topic_bytes"]

_WILDCARD = re.compile(r"[*>]")


def topic_bytes(topic: str) -> bytes:
    """Return the UTF-8 of a topic: dot-separated, non-empty levels without blanks or wildcards."""
    if not isinstance(topic, str):
        raise MessageError(f"a topic is a str, not {type(topic).__name__}")
    try:
        data = topic.encode()
    except UnicodeEncodeError as error:
        raise MessageError(
            f"topic {topic!r}: character {error.start} is a lone surrogate, which has no UTF-8"
        ) from None
    if len(data) > MAX_TOPIC_BYTES:
        raise LimitError(f"the UTF-8 of topic {topic[:40] + '...'!r}", len(data), MAX_TOPIC_BYTES, "bytes")
    levels = topic.split(".")
    if len(levels) > MAX_TOPIC_LEVELS:
        raise LimitError(f"the number of levels of topic {topic!r}", len(levels), MAX_TOPIC_LEVELS)
    if "" in levels:
        raise MessageError(f"topic {topic!r} has an empty level; write levels with one dot between them")
    if found := _WILDCARD.search(topic):
        raise MessageError(f"topic {topic!r} has a {found[0]}; wildcards are for subscriptions only")
    if (at := first_invisible(topic)) is not None:
        raise MessageError(
            f"topic {topic!r}: character {at} ({shown(topic[at])}) is a blank, or a control or format character"
        )
    return data
