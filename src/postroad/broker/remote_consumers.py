"""Clients of this broker that consume queues of others.

Their messages come over the channel from the home of the queue, at most as many as they have room for, and are
delivered like those of a subscription. Their acknowledgements go back, and count when the home has stored them. If the
channel is lost, the home considers the clients gone. A client with unsettled messages is closed, because its
acknowledgements would count for nothing; the others consume again as soon as the home is reachable.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.budgets import estimated_bytes
from postroad.broker.channel_items import ChannelError, Consume, ConsumerAnswer, Leave
from postroad.broker.id_batches import words_of
from postroad.broker.sessions import AckMode, OverflowPolicy, Subscription
from postroad.errors import PostroadError
from postroad.messages.id_columns import WORD_BITS
from postroad.selectors import check_topic
from postroad.store import rows_of_payload
from postroad.tracking.reasons import Detour, Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.broker.channel_items import Answered, ConsumerDelivery, Dismiss
    from postroad.broker.confirmations import Confirmations
    from postroad.broker.consumers import ConsumerTerms
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.outbox import Outbox
    from postroad.broker.peers import Peers
    from postroad.broker.sessions import Session

__all__ = ["RemoteConsumer", "RemoteConsumers"]


class RemoteConsumer(NamedTuple):
    """What a client has asked of the home of a queue.

    Attributes:
        home: the broker that has the queue.
        asks: the item sent to it.
    """

    home: int
    asks: Consume


class RemoteConsumers:
    """The clients of a broker that consume queues of others.

    Args:
        core: the broker.
        deliveries: delivers messages to clients.
        peers: the channels to other brokers.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, peers: Peers) -> None:
        self._core = core
        self._deliveries = deliveries
        self._peers = peers
        self._subscriptions: dict[int, Subscription] = {}
        self._next = 1
        # Answers that are not stored yet, by home: their numbers, and whom to call then.
        self._answers: dict[int, deque[tuple[int, Confirmations, int]]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def subscribe(
        self, session: Session, key: str, name: str, home: int, asked: ConsumerTerms, now: int
    ) -> Subscription:
        """Let a session consume a queue of another broker.

        Raises:
            BrokerError: the key is taken, or a limit is reached; the policy refuses.
            SelectorError, TopicError: a text does not parse.
        """
        core = self._core
        core.check_key(session, key)
        check_topic(name)
        destination = f"/queue/{name}"
        selector = core.allowed(session, name, asked.selector, queued=True)
        size = estimated_bytes(key, destination, selector)
        core.budgets.check_bytes(session, size)
        number = core.take_subscription_number()
        subscription = Subscription(number, session, key, destination, asked.ack_mode, OverflowPolicy.SPOOL)
        subscription.selector = "" if selector is None else str(selector)
        most = core.limits.unacknowledged
        prefetch = core.queue_settings.prefetch if asked.prefetch is None else asked.prefetch or most
        asks = Consume(number, name, session.principal, subscription.selector, min(most, prefetch), asked.exclusive)
        subscription.remote = RemoteConsumer(home, asks)
        core.budgets.add(subscription, size, 0)
        session.subscriptions[key] = subscription
        self._subscriptions[number] = subscription
        core.recorder.subscribed(number, session.principal, destination, subscription.selector, now)
        if self._peers.is_open(home):
            self._peers.send(home, asks)
        else:
            self._peers.want(home, now)
        return subscription

    def left(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        """Remove a client: messages it did not settle return to the queue at the home."""
        remote = subscription.remote
        assert remote is not None
        del subscription.session.subscriptions[subscription.key]
        del self._subscriptions[subscription.number]
        self._core.budgets.remove(subscription)
        self._drop_waiting(subscription, remote.home, now)
        self._core.departures.ended(subscription, Loss.CONSUMER_GONE, outbox, now)
        self._core.recorder.unsubscribed(subscription.number, now)
        if self._peers.is_open(remote.home):
            self._peers.send(remote.home, Leave(subscription.number))

    def _drop_waiting(self, subscription: Subscription, home: int, now: int) -> None:
        """Drop what waits here for a client; the home delivers it again, to anyone."""
        for segment in subscription.waiting.shed(0, 0):
            self._core.recorder.dropped(segment.batch, segment.rows, home, Detour.RETURNED, now)

    # --- answers -----------------------------------------------------------------------------------------------------

    def answer(
        self, subscription: Subscription, messages: Sequence[int], positive: bool, requeues: bool, now: int
    ) -> None:
        """Pass on what a client acknowledged or refused, or what needs no acknowledgement once written."""
        remote = subscription.remote
        assert remote is not None
        if not self._peers.is_open(remote.home):
            # The home delivers them again.
            return
        number, self._next = self._next, self._next + 1
        ids = words_of(messages).astype(">u8").tobytes()
        self._peers.send(remote.home, ConsumerAnswer(number, subscription.number, positive, requeues, ids))
        if subscription.ack_mode is not AckMode.AUTO:
            waits = self._peers.confirmations(subscription.session)
            self._answers.setdefault(remote.home, deque()).append((number, waits, waits.ask(self._peers.time(now))))

    def answered(self, home: int, item: Answered) -> None:
        """Note which answers are stored at the home."""
        waiting = self._answers.get(home)
        while waiting and waiting[0][0] <= item.number:
            _, waits, number = waiting.popleft()
            waits.done(number)

    # --- what the home says ------------------------------------------------------------------------------------------

    def deliver(self, home: int, item: ConsumerDelivery, outbox: Outbox, now: int) -> None:
        """Take messages for a client.

        Raises:
            ChannelError: the bytes are not messages.
        """
        try:
            batch = rows_of_payload(item.rows)
        except PostroadError as error:
            raise ChannelError(f"broker {home} delivers bytes that are not messages: {error}") from error
        rows = np.arange(len(batch), dtype=np.int64)
        self._core.recorder.arrived(batch, home, now)
        subscription = self._subscriptions.get(item.consumer)
        if subscription is None or subscription.remote is None or subscription.remote.home != home:
            # It has left, and the home delivers them again.
            self._core.recorder.dropped(batch, rows, home, Detour.RETURNED, now)
            return
        self._deliveries.deliver(subscription, batch, rows, None, outbox, now, None)
        stored = self._deliveries.stored
        if stored is not None and stored.storing:
            self._deliveries.flush_stored(batch, None, outbox, now, None)

    def dismissed(self, home: int, item: Dismiss, outbox: Outbox) -> None:
        """Close a client that the home does not let consume, or not any more; other brokers have no say in it."""
        subscription = self._subscriptions.get(item.consumer)
        if subscription is not None and subscription.remote is not None and subscription.remote.home == home:
            outbox.closes.append((subscription.session.number, item.reason))

    def opened(self, home: int) -> None:
        """Let all clients consume: the home is reachable."""
        for subscription in self._of(home):
            assert subscription.remote is not None
            self._peers.send(home, subscription.remote.asks)

    def lost(self, home: int, outbox: Outbox, now: int) -> None:
        """Handle the loss of the channel: the home considers all clients gone."""
        reason = f"broker {home}, which has the queue, is gone or out of reach; what was not acknowledged comes again"
        for _, waits, _ in self._answers.pop(home, ()):
            waits.fail(reason)
        for subscription in self._of(home):
            if subscription.unacknowledged or subscription.cursor is not None:
                outbox.closes.append((subscription.session.number, reason))
            self._drop_waiting(subscription, home, now)
            self._peers.want(home, now)

    def _of(self, home: int) -> list[Subscription]:
        return [each for each in self._subscriptions.values() if each.remote is not None and each.remote.home == home]


def ids_of(data: bytes) -> list[int]:
    """Return the ids of an answer, as 128-bit integers.

    Raises:
        ChannelError: the bytes are not ids.
    """
    if len(data) % 16:
        raise ChannelError(f"{len(data)} bytes are not ids of messages, which have 16 each")
    words = np.frombuffer(data, ">u8").reshape(-1, 2).tolist()
    return [head << WORD_BITS | tail for head, tail in words]
