"""Clients of other brokers that consume queues of this one.

To a queue, a guest is a consumer like any other: it has a session here, a prefetch and a selector. Its messages go over
the channel to its broker. If the channel is lost, so are its guests, and what they did not settle returns to the queue.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from postroad.broker.channel_items import Answered, ConsumerDelivery, Dismiss
from postroad.broker.consumers import ConsumerTerms
from postroad.broker.remote_consumers import ids_of
from postroad.broker.sessions import AckMode
from postroad.broker.settlements import Settlement
from postroad.errors import PostroadError
from postroad.store import rows_payload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker.channel_items import Consume, ConsumerAnswer
    from postroad.broker.core import Broker
    from postroad.broker.outbox import Outbox
    from postroad.broker.peers import Peers
    from postroad.broker.sessions import Session, Subscription
    from postroad.messages import Batch

__all__ = ["Guest", "GuestConsumers"]

# How much may wait in a channel before its guests get no more for now.
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
# Guests of one broker at once: as many as its connections.
MAX_GUESTS = 10_000
_KEY = "guest"


class Guest(NamedTuple):
    """Where a consumer of a queue is: its broker, and its number there."""

    broker: int
    number: int


class GuestConsumers:
    """The consumers of a broker's queues that are at other brokers.

    Args:
        core: the broker.
        peers: the channels to other brokers.
    """

    def __init__(self, core: Broker, peers: Peers) -> None:
        self._core = core
        self._peers = peers
        self._guests: dict[Guest, Session] = {}
        self._of_broker: Counter[int] = Counter()
        # One new guest of each queue that has some: they are offered its messages together.
        self._arrived: dict[str, Subscription] = {}
        # Those that get nothing until their channel has room.
        self._crowded: set[Guest] = set()
        # Answers to confirm when the store has reached a position.
        self._answers: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._guests)

    def consume(self, broker: int, item: Consume, now: int) -> None:
        """Add a guest; `offer` then delivers what waits."""
        core, guest = self._core, Guest(broker, item.consumer)
        assert core.queues is not None
        if guest in self._guests:
            return
        session = None
        try:
            if self._of_broker[broker] >= MAX_GUESTS:
                self._peers.send(broker, Dismiss(item.consumer, f"broker {broker} has {MAX_GUESTS:,} consumers here"))
                return
            core.homes.check(item.queue)
            session = core.attached(item.principal, is_guest=True)
            asked = ConsumerTerms(item.selector, AckMode.INDIVIDUAL, item.prefetch, item.exclusive)
            subscription = core.queues.subscribe(session, _KEY, item.queue, asked, now)
        except PostroadError as error:
            if session is not None:
                core.detached(session, now)
            self._peers.send(broker, Dismiss(item.consumer, str(error)[:1_000]))
            return
        subscription.guest = guest
        self._guests[guest] = session
        self._of_broker[broker] += 1
        self._arrived[item.queue] = subscription

    def offer(self, outbox: Outbox, now: int) -> None:
        """Deliver what waits for new guests.

        Once for all that a packet brought: each look at a queue goes over its consumers.
        """
        arrived, self._arrived = self._arrived, {}
        for subscription in arrived.values():
            assert self._core.queues is not None
            self._core.queues.offer(subscription, outbox, now)

    def _pop(self, guest: Guest) -> Session | None:
        session = self._guests.pop(guest, None)
        if session is not None:
            self._of_broker[guest.broker] -= 1
        return session

    def leave(self, broker: int, consumer: int, outbox: Outbox, now: int) -> None:
        """Remove a guest."""
        session = self._pop(Guest(broker, consumer))
        if session is not None:
            outbox.add(self._core.detached(session, now))

    def pause(self) -> None:
        """Deliver nothing more to any guest."""
        for session in self._guests.values():
            session.congested = True

    def lost(self, broker: int, outbox: Outbox, now: int) -> None:
        """Remove the guests of a broker that is gone; none of them gets what the others had."""
        # What comes back from it later, perhaps from another process, counts its answers again.
        self._answers = deque(each for each in self._answers if each[1] != broker)
        gone = [guest for guest in self._guests if guest.broker == broker]
        for guest in gone:
            self._guests[guest].congested = True
        for guest in gone:
            self.leave(broker, guest.number, outbox, now)

    def deliver(self, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], now: int) -> None:
        """Send messages to a guest."""
        guest = subscription.guest
        assert guest is not None
        self._core.recorder.relayed(batch, rows, guest.broker, now)
        self._peers.send(guest.broker, ConsumerDelivery(guest.number, rows_payload(batch.take(rows))))
        if self._peers.backlog(guest.broker) > MAX_BACKLOG_BYTES:
            subscription.session.congested = True
            self._crowded.add(guest)

    def dismiss(self, guest: Guest, reason: str, now: int) -> None:
        """Tell a guest that its queue has ended."""
        session = self._pop(guest)
        if session is not None:
            self._core.detached(session, now)
            self._peers.send(guest.broker, Dismiss(guest.number, reason))

    def answer(self, broker: int, item: ConsumerAnswer, outbox: Outbox, now: int) -> None:
        """Take the acknowledgements or refusals of a guest.

        Raises:
            ChannelError: the bytes are not ids.
        """
        session = self._guests.get(Guest(broker, item.consumer))
        messages = ids_of(item.ids)
        if session is not None and (subscription := session.subscriptions.get(_KEY)) is not None:
            settlement = Settlement(subscription, messages, item.positive, item.requeues)
            outbox.add(self._core.settle(session, [settlement], now))
        self._answers.append((self._position, broker, item.number))

    @property
    def _position(self) -> int:
        stored = self._core.store
        assert stored is not None
        return stored.log.position

    def proceed(self) -> None:
        """Confirm answers that the store has written."""
        stored = self._core.store
        assert stored is not None
        log = stored.log
        safe = 2**62 if log.position <= log.safe else log.safe
        done: dict[int, int] = {}
        while self._answers and self._answers[0][0] <= safe:
            _, broker, number = self._answers.popleft()
            done[broker] = number
        for broker, number in done.items():
            if self._peers.is_open(broker):
                self._peers.send(broker, Answered(number))

    def tick(self, outbox: Outbox, now: int) -> None:
        """Give more to guests whose channel has room again."""
        for guest in list(self._crowded):
            session = self._guests.get(guest)
            if session is None or 2 * self._peers.backlog(guest.broker) <= MAX_BACKLOG_BYTES:
                self._crowded.discard(guest)
                if session is not None:
                    outbox.add(self._core.drained(session, now))
