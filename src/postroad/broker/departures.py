"""Ends subscriptions: those of a session that is gone leave the index in turns, and so does what waited for them.

A session may have 10,000 subscriptions and 100,000 waiting messages, each of which the record hears of: ending them at
once would hold up everybody else for a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker.sessions import AckMode, OverflowPolicy
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.outbox import Outbox
    from postroad.broker.sessions import Session, Subscription
    from postroad.broker.turns import Turns

__all__ = ["Departures"]

# Subscriptions to end in one turn, or pieces of queues to shed: each takes some 10 microseconds.
ENDED_PER_TURN = 2_000
# Pieces of a queue to shed at once when its subscription ends; the rest in later turns.
SHED_AT_ONCE = 200


class Departures:
    """Ends the subscriptions of one broker.

    Args:
        core: the broker.
        deliveries: sheds what waits for them.
        turns: what waits for a later turn.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, turns: Turns) -> None:
        self._core = core
        self._deliveries = deliveries
        self._turns = turns

    def end(self, subscription: Subscription, reason: str, outbox: Outbox, now: int) -> None:
        """End a subscription that is not durable."""
        if subscription.remote is not None:
            assert self._core.peers is not None
            self._core.peers.consumers.left(subscription, outbox, now)
            return
        self._core.residents.leave(subscription, now)
        if subscription.replays:
            self._core.replays.ended(subscription)
        del subscription.session.subscriptions[subscription.key]
        if subscription.policy is OverflowPolicy.PUSH_BACK and subscription.ack_mode is not AckMode.AUTO:
            subscription.session.must_acknowledge -= 1
        self.ended(subscription, reason, outbox, now)

    def ended(self, subscription: Subscription, reason: str, outbox: Outbox, now: int) -> None:
        """Shed what waits for a subscription that has ended, and resume the publishers that it paused."""
        deliveries = self._deliveries
        deliveries.overflowed.discard(subscription)
        self._shed(subscription, reason, SHED_AT_ONCE if deliveries.in_turns else 2**62, now)
        if subscription.waiting.messages:
            self._turns.abandoned.append((subscription, reason))
        if deliveries.stored is not None:
            deliveries.stored.ended(subscription, reason)
        deliveries.release_publishers(subscription, outbox)

    def _shed(self, subscription: Subscription, reason: str, most: int, now: int) -> int:
        """Shed up to `most` pieces of what waits for a subscription; return how many there were."""
        pieces = subscription.waiting.drop(most)
        for batch, rows in pieces:
            self._deliveries.shed_closed += len(rows)
            self._core.recorder.shed(batch, rows, subscription.number, reason, now)
        return len(pieces)

    def leave(self, session: Session, outbox: Outbox, now: int) -> None:
        """End the subscriptions of a session that is gone: nothing goes to them any more."""
        for subscription in list(session.subscriptions.values()):
            if subscription.durable is not None:
                # Its client may come back at once.
                assert self._core.durables is not None
                self._core.durables.left(subscription, now)
            elif subscription.remote is not None or not self._deliveries.in_turns:
                self.end(subscription, Loss.SESSION_CLOSED, outbox, now)
            else:
                self._core.residents.clear_at(subscription.slot)
                self._turns.leaving.append(subscription)
        self.proceed(outbox, now)

    def proceed(self, outbox: Outbox, now: int) -> None:
        """End as many subscriptions that are leaving as one turn takes, and shed what waited for them."""
        turns, left = self._turns, ENDED_PER_TURN
        while left > 0 and turns.abandoned:
            subscription, reason = turns.abandoned[0]
            left -= self._shed(subscription, reason, left, now)
            if not subscription.waiting.messages:
                turns.abandoned.popleft()
        while left > 0 and turns.leaving:
            subscription = turns.leaving[0]
            left -= 1 + self._shed(subscription, Loss.SESSION_CLOSED, left, now)
            if not subscription.waiting.messages:
                turns.leaving.popleft()
                self.end(subscription, Loss.SESSION_CLOSED, outbox, now)
