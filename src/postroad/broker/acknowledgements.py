"""What clients acknowledge or refuse, and which messages wait for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.errors import BrokerError
from postroad.broker.id_batches import words_of
from postroad.broker.sessions import AckMode
from postroad.broker.settlements import Settlement
from postroad.messages.id_columns import WORD_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.broker.deliveries import Deliveries
    from postroad.broker.no_recorder import Recorder
    from postroad.broker.outbox import Outbox
    from postroad.broker.sessions import Session, Subscription

__all__ = ["Acknowledgements"]


class Acknowledgements:
    """Acknowledgements and refusals of clients.

    Args:
        deliveries: what clients were sent, and the stores and queues to inform.
        recorder: keeps the record.

    Attributes:
        acknowledged: how many messages clients have consumed.
        refused: how many they refused.
    """

    def __init__(self, deliveries: Deliveries, recorder: Recorder) -> None:
        self._deliveries = deliveries
        self._recorder = recorder
        self.acknowledged = self.refused = 0

    def expect(self, subscription: Subscription, ids: list[int], places: NDArray[np.int64]) -> None:
        """Let stored rows wait for an acknowledgement. If a message is stored twice, the last one counts."""
        waiting, twice = subscription.unacknowledged, []
        before = len(waiting)
        if waiting.keys().isdisjoint(ids):
            waiting.update(zip(ids, places.tolist(), strict=True))
            if len(waiting) == before + len(ids):
                return
            # The same message twice in these rows, which is very rare: repeat, one by one.
            for message in ids:
                waiting.pop(message, None)
        for message, place in zip(ids, places.tolist(), strict=True):
            if message in waiting:
                twice.append(waiting.pop(message))
            waiting[message] = place
        if twice:
            assert self._deliveries.stored is not None
            self._deliveries.stored.settle(subscription, np.array(twice))

    def acknowledge(
        self, subscription: Subscription, head: int, tail: int, positive: bool, now: int, requeues: bool = True
    ) -> None:
        """Acknowledge or refuse a message for a client; in mode `client`, also all earlier ones.

        A refused message of a queue or a durable subscription is delivered again; unless it `requeues`, it goes to the
        dead-letter queue.

        Raises:
            BrokerError: the message does not wait for an acknowledgement.
        """
        wanted = head << WORD_BITS | tail
        if wanted not in subscription.unacknowledged:
            raise BrokerError("acknowledgement of a message that does not wait for one; each counts once")
        self.settle(Settlement(subscription, self._settled(subscription, wanted), positive, requeues), now)

    def settle(self, settlement: Settlement, now: int) -> None:
        """Settle messages that a client has acknowledged or refused."""
        subscription, settled, positive, requeues = settlement
        places = list(map(subscription.unacknowledged.pop, settled))
        self._count_acknowledgements(subscription, settled, positive, now)
        if subscription.queue is not None:
            assert self._deliveries.queues is not None
            if positive:
                self._deliveries.queues.returns.settled(subscription.queue, places)
            else:
                rows = dict(zip(settled, places, strict=True))
                self._deliveries.queues.returns.came_back(
                    subscription.queue, rows, now, refused=True, for_good=not requeues
                )
        elif subscription.remote is not None:
            assert self._deliveries.peers is not None
            self._deliveries.peers.consumers.answer(subscription, settled, positive, requeues, now)
        elif subscription.durable is not None and not positive:
            assert self._deliveries.durables is not None
            self._deliveries.durables.refused(subscription, dict(zip(settled, places, strict=True)), now, not requeues)
        elif subscription.durable is not None:
            assert self._deliveries.stored is not None
            self._deliveries.stored.settle(subscription, np.array(places))

    def settle_all(self, session: Session, settlements: Iterable[Settlement], outbox: Outbox, now: int) -> None:
        """Settle messages of several subscriptions of a session, except those that no longer wait for it."""
        for settlement in settlements:
            waiting = settlement.subscription.unacknowledged
            messages = [each for each in settlement.messages if each in waiting]
            if messages and session.subscriptions.get(settlement.subscription.key) is settlement.subscription:
                self.settle(settlement._replace(messages=messages), now)
                self.deliver_next(settlement.subscription, outbox, now)

    def deliver_next(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        """Deliver what acknowledgements let through, now or in a later turn."""
        deliveries = self._deliveries
        if subscription.queue is not None and deliveries.in_turns:
            assert deliveries.queues is not None
            deliveries.queues.dispatch.owe(subscription)
        elif subscription.queue is None and subscription.session.congested:
            return
        elif subscription.cursor is not None and deliveries.in_turns:
            # Stored rows are delivered when all acknowledgements of this read are counted, not row by row.
            deliveries.owe(subscription.session)
        else:
            # Fill the whole window: a client may wait for all of it before it acknowledges again.
            deliveries.drain(subscription, deliveries.limits.unacknowledged, outbox, now)

    def _settled(self, subscription: Subscription, wanted: int) -> list[int]:
        waiting = subscription.unacknowledged
        if subscription.ack_mode is AckMode.INDIVIDUAL or next(iter(waiting)) == wanted:
            return [wanted]
        every = list(waiting)
        return every[: every.index(wanted) + 1]

    def _count_acknowledgements(
        self, subscription: Subscription, messages: list[int], positive: bool, now: int
    ) -> None:
        if positive:
            subscription.acknowledged += len(messages)
            self.acknowledged += len(messages)
        else:
            subscription.refused += len(messages)
            self.refused += len(messages)
        self._recorder.acknowledged(words_of(messages), subscription.recorded, positive, now)
