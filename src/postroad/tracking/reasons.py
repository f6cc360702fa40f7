"""Reasons in the record of what went no further that end nothing: the message went another way, or may still go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking.findings import Drop

__all__ = ["DEFERRED", "DETOURS", "HELD", "RESUMED", "RETURNED", "SENT_ON", "is_held"]

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

DETOURS = frozenset({RETURNED, HELD, SENT_ON, DEFERRED, RESUMED})


def is_held(drops: Iterable[Drop]) -> bool:
    """Whether it waits when the record of a broker ends: it was held or deferred, and did not go on since then."""
    last: dict[str, int] = {}
    for drop in drops:
        last[drop.reason] = max(last.get(drop.reason, -1), drop.at)
    return any(last.get(wait, -1) > last.get(go, -1) for wait, go in ((HELD, SENT_ON), (DEFERRED, RESUMED)))
