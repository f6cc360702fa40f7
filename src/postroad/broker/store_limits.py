"""What happens when a subscription has as much in the store as it may, or the store is nearly full."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from postroad.broker.sessions import AckMode

if TYPE_CHECKING:
    from postroad.broker.sessions import Session, Subscription
    from postroad.store import StoreSettings

__all__ = ["AtLimit", "action_at_limit", "may_not_wait"]


class AtLimit(Enum):
    """What is done about it."""

    # Nothing now: what comes next is refused.
    REFUSE = auto()
    # The publisher waits.
    PUSH_BACK = auto()
    # The subscription drops its oldest messages.
    SHED = auto()
    # The subscription matches nothing more, until its client subscribes again.
    STOP = auto()


def action_at_limit(
    settings: StoreSettings, subscription: Subscription, source: Session | None, *, can_refuse: bool, must_shed: bool
) -> AtLimit:
    """Return what to do about a full subscription after rows were stored for it.

    Args:
        settings: of the store.
        subscription: which one.
        source: the session that published them; None if they came from another broker.
        can_refuse: that other broker is refused while a subscription is full.
        must_shed: that other broker cannot keep what comes next.
    """
    outgoing = subscription.outgoing
    if outgoing is not None and not outgoing.is_for_durables:
        # Some of its messages may already be at the home: none is dropped.
        pauses = settings.at_limit != "drop-oldest" and source is not None and not may_not_wait(source, subscription)
        return AtLimit.PUSH_BACK if pauses else AtLimit.REFUSE
    if settings.at_limit == "stop" and subscription.durable is not None:
        return AtLimit.STOP
    if settings.at_limit == "drop-oldest" or (settings.at_limit == "stop" and outgoing is not None):
        return AtLimit.SHED
    if source is None:
        # A neighbour keeps what the store has no room for, if it keeps anything; but one subscription that nobody
        # empties must not stop all that comes over its link.
        return AtLimit.SHED if must_shed and not can_refuse else AtLimit.REFUSE
    if may_not_wait(source, subscription):
        # A queue refuses what such a publisher sends next, and loses nothing (`NamedQueues.admit`).
        return AtLimit.SHED if subscription.queue is None else AtLimit.REFUSE
    return AtLimit.PUSH_BACK


def may_not_wait(source: Session, subscription: Subscription) -> bool:
    """Return whether a paused publisher could wait for itself: its acknowledgements use the same connection."""
    return source is subscription.session or any(
        each.ack_mode is not AckMode.AUTO for each in source.subscriptions.values()
    )
