"""Reasons in the record of what went no further: a `Loss` ends a copy of a message, a `Detour` ends nothing.

Further reasons name what an operator or a client did, such as the queue that was deleted; all of these end something.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking.findings import Drop

__all__ = [
    "DETOURS",
    "FORMER",
    "LATE_MS",
    "WAITS_LONG",
    "Detour",
    "Loss",
    "came_back",
    "is_back",
    "is_held",
    "is_kept_for",
]


class Detour(StrEnum):
    """Why a message did not continue at once; the message went another way, or may still go."""

    # A link gave it back, and it went another way.
    RETURNED = "returned"
    # It waits here: it is stored for another broker, which the link names; or no route leads to one of its destinations
    # now, and the link is a number below 0, which its wait alone has (0 in trails of earlier versions).
    HELD = "held"
    # It waits here no longer: the broker that it was kept for has stored it, or there was a way for it. What finds none
    # is given up, which is recorded as such.
    SENT_ON = "sent on"
    # It was too much work for one turn of the event loop: it came, and what is done with it follows in a later turn.
    # Readers take what is on record of a message for the whole of it, unless it says that it waits.
    DEFERRED = "deferred"
    # It had its turn.
    RESUMED = "resumed"
    # It is kept back for earlier messages of its publisher, with `order = "publisher"`. A pair of its own: what leaves
    # this wait can be deferred in the same millisecond.
    KEPT_FOR_ORDER = "kept for order"
    # It is kept back no longer.
    IN_ORDER = "in order"
    # A consumer of a queue, or a durable subscription, has refused it, or was gone before it had acknowledged it: it is
    # delivered again.
    COMES_AGAIN = "comes again"
    # It was delivered again after it came back.
    DELIVERED_AGAIN = "delivered again"
    # When it entered, its id's time was long over, or still to come: its publisher could not send it before, or has a
    # wrong clock.
    OUT_OF_TIME = "out of time"
    # It was delivered long after it was stored here: its consumer, or durable subscription, was away.
    DELIVERED_LATE = "delivered late"
    # Nobody wanted it here when it came, and its topic is retained: who subscribes from the past may get it later.
    RETAINED = "retained"


class Loss(StrEnum):
    """Why a message never got there. The texts are in trails, and people read them."""

    # Towards other brokers.
    HOP_LIMIT = "hop limit"
    # A link keeps as much as it may for its neighbour.
    LINK_FULL = "link full"
    # No route was found for as long as messages are held.
    UNREACHABLE = "unreachable"
    # A neighbour sent it to a queue, which only clients of this broker do.
    QUEUE_NOT_HERE = "queue not here"
    # It may have been delivered before, and has no room for the header that says so.
    MAYBE_DUPLICATE = "maybe duplicate"
    # The plan of the network does not have the broker any more for which it waited.
    BROKER_LEFT = "its broker left the network"

    # At a subscription.
    EXPIRED = "expired"
    QUEUE_FULL = "queue full"
    # The store, or the share of it that the subscription has, was full.
    STORE_FULL = "store full"
    # It waited for longer than the settings let messages wait.
    TOO_OLD = "too old"
    UNSUBSCRIBED = "unsubscribed"
    SESSION_CLOSED = "session closed"
    CONSUMER_GONE = "consumer gone"
    # The subscription ended before a later turn could deliver it, or while the store had no room.
    SUBSCRIPTION_ENDED = "subscription ended"


# Texts in trails that were written between 0.2.0 and 0.3.0, and what stands for them today.
FORMER: dict[str, Detour] = {"handed out again": Detour.DELIVERED_AGAIN, "handed out late": Detour.DELIVERED_LATE}
# A message that waited in the store for longer was delivered late, which is recorded. Others, which are the rule, cost
# no row of the record.
LATE_MS = 60_000
# To look up texts of the record.
DETOURS: frozenset[str] = frozenset({*Detour, *FORMER})
# Waits without a bound, as long as they last: a message may be relayed hours after its id's time.
WAITS_LONG: frozenset[str] = frozenset({Detour.HELD, Detour.SENT_ON, Detour.COMES_AGAIN, Detour.OUT_OF_TIME})
# What begins a wait at a broker, and what ends it.
_WAITS = (
    (Detour.HELD, Detour.SENT_ON),
    (Detour.DEFERRED, Detour.RESUMED),
    (Detour.KEPT_FOR_ORDER, Detour.IN_ORDER),
)


def is_held(drops: Iterable[Drop]) -> bool:
    """Whether it waits when the record of a broker ends: a wait began, and has not ended since then.

    It may wait for several brokers, and for each on its own; it has several waits without a route where a link gives it
    back while it waits for another one. A wait that has parts of its destinations ends with the last of them.
    """
    last: dict[tuple[str, int], int] = {}
    for drop in drops:
        key = drop.reason, drop.link
        last[key] = max(last.get(key, -1), drop.at)
    ends: dict[str, str] = dict(_WAITS)
    return any(at > last.get((ends[reason], link), -1) for (reason, link), at in last.items() if reason in ends)


def is_kept_for(drops: Iterable[Drop], neighbour: int) -> bool:
    """Whether it waits for a broker which has not confirmed it, whatever was sent to that one: it is sent again."""
    return is_held(drop for drop in drops if drop.link == neighbour and drop.reason in (Detour.HELD, Detour.SENT_ON))


def came_back(drops: Iterable[Drop], neighbour: int) -> bool:
    """Whether a link gave it back before the neighbour had it, and it went another way, or was dropped."""
    return any(drop.link == neighbour and drop.reason not in (Detour.HELD, Detour.SENT_ON) for drop in drops)


def is_back(drops: Iterable[Drop]) -> bool:
    """Whether it came back from a consumer, or a durable subscription, and was not delivered again since then.

    Of several that gave it back, the first to get it again ends this for all. No certain answer is wrong for that: what
    comes back was delivered before, so the verdict is that it was delivered, as it was, and not that all acknowledged
    it, since the others have not.
    """
    last = _last(drops)
    return last.get(Detour.COMES_AGAIN, -1) > last.get(Detour.DELIVERED_AGAIN, -1)


def _last(drops: Iterable[Drop]) -> dict[str, int]:
    """When each reason was recorded last, by its text of today."""
    last: dict[str, int] = {}
    for drop in drops:
        reason = FORMER.get(drop.reason, drop.reason)
        last[reason] = max(last.get(reason, -1), drop.at)
    return last
