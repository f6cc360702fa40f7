"""Reasons in the record of what went no further that end nothing: the message went another way, or may still go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking.findings import Drop

__all__ = [
    "DEFERRED",
    "DETOURS",
    "HELD",
    "IN_ORDER",
    "KEPT_FOR_ORDER",
    "RESUMED",
    "RETURNED",
    "SENT_ON",
    "is_held",
]

# A link gave it back, and it went another way.
RETURNED = "returned"
# There is no way now to a broker that it is for: it waits at this one.
HELD = "held"
# It waits here no longer: there was a way for it. What finds none is given up, which is recorded as such.
SENT_ON = "sent on"

# It was too much work for one turn of the event loop: it came, and what is done with it follows in a later turn.
# Readers take what is on record of a message for the whole of it, unless it says that it waits.
DEFERRED = "deferred"
# It had its turn.
RESUMED = "resumed"

# It is kept back for earlier messages of its publisher, with `order = "publisher"`. A pair of its own: what leaves this
# wait can be deferred in the same millisecond.
KEPT_FOR_ORDER = "kept for order"
# It is kept back no longer.
IN_ORDER = "in order"

DETOURS = frozenset({RETURNED, HELD, SENT_ON, DEFERRED, RESUMED, KEPT_FOR_ORDER, IN_ORDER})
# What begins a wait at a broker, and what ends it.
_WAITS = ((HELD, SENT_ON), (DEFERRED, RESUMED), (KEPT_FOR_ORDER, IN_ORDER))


def is_held(drops: Iterable[Drop]) -> bool:
    """Whether it waits when the record of a broker ends: a wait began, and has not ended since then."""
    last: dict[str, int] = {}
    for drop in drops:
        last[drop.reason] = max(last.get(drop.reason, -1), drop.at)
    return any(last.get(wait, -1) > last.get(go, -1) for wait, go in _WAITS)
