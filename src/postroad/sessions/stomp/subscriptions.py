"""The subscriptions of one client: how frames name them, what they ask for, and which one an acknowledgement means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import AckMode, Acknowledgement, BrokerError, Outbox, OverflowPolicy, settlements
from postroad.messages.id_columns import WORD_BITS
from postroad.protocols import stomp
from postroad.protocols.stomp import Version
from postroad.sessions.stomp.durable_headers import deletes_durable, durable_name
from postroad.sessions.stomp.queue_headers import consumer_terms, prefetch_count
from postroad.sessions.stomp.replay import replay_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroad.broker import ReplayStart, Subscription
    from postroad.sessions.stomp.connected_client import ConnectedClient

__all__ = ["OVERFLOW_HEADER", "StompSubscriptions"]

# The header of SUBSCRIBE that chooses what happens when the subscription's queue is full.
OVERFLOW_HEADER = "overflow"

# Subscriptions in a client mode that a session of STOMP 1.0 may have: its acknowledgements do not name one, so all of
# them have to be searched for the message.
MAX_SEARCHED_SUBSCRIPTIONS = 100


class StompSubscriptions:
    """What one client subscribes to and acknowledges.

    Args:
        client: the client, admitted.
        client_id: the header `client-id` of its CONNECT; empty without.
    """

    def __init__(self, client: ConnectedClient, client_id: str) -> None:
        self._dispatcher = client.dispatcher
        self._session = client.session
        self._version = client.version
        self._push_back = client.terms.push_back
        self._client_id = client_id
        self._prefixes: dict[int, tuple[bytes, int | None]] = {}
        self._keys: dict[int, str] = {}
        # Subscriptions in a client mode: where to look for an acknowledgement that names none.
        self._searched: dict[str, Subscription] = {}

    def prefix(self, number: int) -> tuple[bytes, int | None]:
        """Return how MESSAGE frames of a subscription begin, and its number if they have an `ack` header."""
        return self._prefixes[number]

    # --- SUBSCRIBE and UNSUBSCRIBE -----------------------------------------------------------------------------------

    def subscribe(self, event: stomp.Subscribe) -> None:
        """Begin a subscription.

        Raises:
            PostroadError: it is not allowed, or the frame is wrong.
        """
        self._check_searched(event)
        key = event.id if event.id is not None else event.destination
        name = None if event.queue else durable_name(event.headers, self._client_id, event.id)
        replay = replay_start(event.headers)
        if event.queue:
            if replay is not None:
                raise BrokerError("a queue has no past: from and after are for topics")
            subscription = self._consume(event, key)
        elif name is None:
            subscription = self._subscribe_live(event, key, replay)
        else:
            subscription = self._subscribe_durably(event, key, name, replay)
        self._add(event, key, subscription)
        if replay is not None:
            # Its turns begin.
            self._dispatcher.carry_out(Outbox())
        if event.queue:
            # From now on its messages can be rendered.
            self._dispatcher.carry_out(self._dispatcher.core.offer(subscription, self._dispatcher.clock()))

    def _add(self, event: stomp.Subscribe, key: str, subscription: Subscription) -> None:
        acknowledges = subscription.ack_mode is not AckMode.AUTO and self._version is Version.V1_2
        prefix = stomp.message_prefix(event.id, self._version)
        self._prefixes[subscription.number] = (prefix, subscription.number if acknowledges else None)
        self._keys[subscription.number] = key
        if subscription.ack_mode is not AckMode.AUTO:
            self._searched[key] = subscription

    def _subscribe_live(self, event: stomp.Subscribe, key: str, replay: ReplayStart | None) -> Subscription:
        prefetch = prefetch_count(event.headers)
        subscription = self._dispatcher.core.subscribe(
            self._session,
            key,
            event.topic,
            event.selector or "",
            AckMode(event.ack),
            self._overflow(event.headers),
            self._dispatcher.clock(),
            replay,
        )
        subscription.prefetch = prefetch or subscription.prefetch
        return subscription

    def _consume(self, event: stomp.Subscribe, key: str) -> Subscription:
        queues = self._dispatcher.core.queues
        if queues is None:
            raise BrokerError("this broker has no store, so it has no queues (setting store)")
        asked = consumer_terms(event.headers, event.selector, event.ack)
        return queues.subscribe(self._session, key, event.topic, asked, self._dispatcher.clock())

    def _subscribe_durably(
        self, event: stomp.Subscribe, key: str, name: tuple[str, str], replay: ReplayStart | None
    ) -> Subscription:
        dispatcher, outbox, prefetch = self._dispatcher, Outbox(), prefetch_count(event.headers)
        durables = dispatcher.core.durables
        if durables is None:
            raise BrokerError("this broker has no store, so it has no durable subscriptions (setting store)")
        now, ack = dispatcher.clock(), AckMode(event.ack)
        subscription = durables.subscribe(
            self._session, key, name, event.topic, event.selector or "", ack, now, outbox, replay
        )
        # Before its messages are offered.
        subscription.prefetch = prefetch or subscription.prefetch
        dispatcher.carry_out(outbox)
        return subscription

    def _overflow(self, headers: Mapping[str, str]) -> OverflowPolicy:
        text = headers.get(OVERFLOW_HEADER, OverflowPolicy.SPOOL.value)
        try:
            chosen = OverflowPolicy(text)
        except ValueError:
            known = ", ".join(policy.value for policy in OverflowPolicy)
            raise BrokerError(f"{OVERFLOW_HEADER}:{text!r} is not known; choose one of {known}") from None
        if chosen is OverflowPolicy.PUSH_BACK and not self._push_back:
            raise BrokerError(f"{OVERFLOW_HEADER}:{text} is not allowed here (setting push_back); choose another one")
        return chosen

    def _check_searched(self, event: stomp.Subscribe) -> None:
        acknowledges = AckMode(event.ack) is not AckMode.AUTO
        if self._version is Version.V1_0 and acknowledges and len(self._searched) >= MAX_SEARCHED_SUBSCRIPTIONS:
            raise BrokerError(
                f"a session of STOMP 1.0 has at most {MAX_SEARCHED_SUBSCRIPTIONS} subscriptions that acknowledge; "
                "connect with a newer version, whose ACK names the subscription"
            )

    def unsubscribe(self, event: stomp.Unsubscribe) -> None:
        """End a subscription, or delete a durable one that this session does not have.

        Raises:
            PostroadError: there is none, or it is not allowed.
        """
        key = event.id if event.id is not None else event.destination or ""
        subscription = self._session.subscriptions.get(key)
        deletes = deletes_durable(event.headers)
        core, now = self._dispatcher.core, self._dispatcher.clock()
        if subscription is None and (name := durable_name(event.headers, self._client_id, event.id)) is not None:
            self._dispatcher.carry_out(core.delete_durable(self._session, name, now))
            return
        self._dispatcher.carry_out(core.unsubscribe(self._session, key, now, deletes))
        if subscription is not None:
            del self._prefixes[subscription.number], self._keys[subscription.number]
            self._searched.pop(key, None)

    # --- ACK and NACK ------------------------------------------------------------------------------------------------

    def acknowledge(self, event: stomp.Ack | stomp.Nack) -> None:
        """Carry out an acknowledgement that belongs to no transaction.

        Raises:
            PostroadError: no message waits for it.
        """
        key = self._acknowledged_key(event)
        head, tail = event.message_id.head, event.message_id.tail
        positive = isinstance(event, stomp.Ack)
        requeues = isinstance(event, stomp.Ack) or event.requeues
        core, now = self._dispatcher.core, self._dispatcher.clock()
        self._dispatcher.carry_out(core.acknowledge(self._session, key, head, tail, positive, now, requeues))

    def acknowledge_together(self, events: Sequence[stomp.Ack | stomp.Nack]) -> bool:
        """Carry out several acknowledgements at once, which is far cheaper; False, without effect, if one is wrong."""
        try:
            settled = settlements(self._session, [self.acknowledgement(each) for each in events])
        except BrokerError:
            return False
        dispatcher = self._dispatcher
        dispatcher.carry_out(dispatcher.core.settle(self._session, settled, dispatcher.clock()))
        return True

    def acknowledgement(self, event: stomp.Ack | stomp.Nack) -> Acknowledgement:
        """Return an acknowledgement of a transaction in the form of the core.

        Raises:
            BrokerError: no message waits for it.
        """
        message = event.message_id.head << WORD_BITS | event.message_id.tail
        requeues = isinstance(event, stomp.Ack) or event.requeues
        return Acknowledgement(self._acknowledged_key(event), message, isinstance(event, stomp.Ack), requeues)

    def _acknowledged_key(self, event: stomp.Ack | stomp.Nack) -> str:
        if event.number is not None:
            key = self._keys.get(event.number)
            if key is None:
                raise BrokerError("acknowledgement for a subscription that this session does not have (any more)")
            return key
        if event.subscription is not None:
            return event.subscription
        wanted = event.message_id.head << WORD_BITS | event.message_id.tail
        for key, subscription in self._searched.items():
            if wanted in subscription.unacknowledged:
                return key
        raise BrokerError("acknowledgement of a message that does not wait for one; each counts once")
