"""Reasons in the record of what went no further that end nothing: the message went another way, or may still go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking.findings import Drop

__all__ = ["DETOURS", "HELD", "RETURNED", "SENT_ON", "is_held"]

# A link gave it back, and it went another way.
RETURNED = "returned"
# There is no way now to a broker that it is for: it waits at this one.
HELD = "held"
# It waits here no longer: there was a way for it. What finds none is given up, which is recorded as such.
SENT_ON = "sent on"

DETOURS = frozenset({RETURNED, HELD, SENT_ON})


def is_held(drops: Iterable[Drop]) -> bool:
    """Whether it waits for a way when the record of a broker ends: it was held, and not sent on since then."""
    held, sent = -1, -1
    for drop in drops:
        if drop.reason == HELD:
            held = max(held, drop.at)
        elif drop.reason == SENT_ON:
            sent = max(sent, drop.at)
    return held > sent
