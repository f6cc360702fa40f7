"""Delivers rows to subscriptions: at once, or later from their queues; sheds what does not fit.

Rows of one subscription are delivered in order. So rows go out at once only while nothing of it waits, neither in
memory nor in the store (`_room`); then they fill its queue, and a subscription that spools goes on in the store. There
is one record of the store for all subscriptions that need it (`flush_stored`, at the end of a batch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.acknowledgements import Acknowledgements
from postroad.broker.id_batches import integers_of
from postroad.broker.marks import with_redelivery_marks
from postroad.broker.outbox import Delivery
from postroad.broker.redeliveries import record_stored_delivery
from postroad.broker.row_groups import any_expires
from postroad.broker.sessions import AckMode, OverflowPolicy
from postroad.broker.store_limits import AtLimit, action_at_limit, may_not_wait
from postroad.broker.turns import MAX_TURN_BYTES, MAX_WRITTEN_BYTES
from postroad.messages.columns import EXPIRY
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.durables import Durables
    from postroad.broker.limits import Limits
    from postroad.broker.named_queues import NamedQueues
    from postroad.broker.no_recorder import Recorder
    from postroad.broker.outbox import Outbox
    from postroad.broker.peers import Peers
    from postroad.broker.sessions import Session, Subscription
    from postroad.broker.stored_queues import StoredQueues
    from postroad.broker.turns import Turns
    from postroad.messages import Batch
    from postroad.store import Taken

__all__ = ["Deliveries"]

# What the columns of a waiting message take beside its bytes: spans, id and envelope.
_ROW_BYTES = 96


class Deliveries:
    """What is delivered to local subscriptions.

    Args:
        limits: what may wait.
        recorder: keeps the record.
        sessions: by number, as the broker keeps them.
        turns: where to note sessions that get the rest of their matches in a later turn; None to write all at once.

    Attributes:
        limits: what may wait, at present.
        in_turns: whether there are turns.
        acknowledgements: what clients acknowledge and refuse.
        overflowed: the subscriptions whose queues were full recently.
        stored: what subscriptions have in the store; None without a store.
        queues: the queues; None without a store.
        durables: the durable subscriptions; None without a store.
        peers: clients of other brokers, and their queues; None outside a network.
    """

    def __init__(
        self, limits: Limits, recorder: Recorder, sessions: Mapping[int, Session], turns: Turns | None = None
    ) -> None:
        self.limits = limits
        self._recorder = recorder
        self._sessions = sessions
        self._turns = turns
        self.in_turns = turns is not None
        self.overflowed: set[Subscription] = set()
        self.stored: StoredQueues | None = None
        self.queues: NamedQueues | None = None
        self.durables: Durables | None = None
        self.peers: Peers | None = None
        self.delivered = self.shed_full = self.shed_closed = self.shed_expired = 0
        self.acknowledgements = Acknowledgements(self, recorder)

    def take_limits(self, limits: Limits) -> None:
        """Use new limits from now on."""
        self.limits = limits

    def deliver(
        self,
        subscription: Subscription,
        batch: Batch,
        rows: NDArray[np.int64],
        source: Session | None,
        outbox: Outbox,
        now: int,
        consignment: Consignment | None,
    ) -> None:
        """Deliver rows now if the subscriber keeps up, or let them wait."""
        if not len(rows):
            return
        if subscription.stores:
            self._store(subscription, batch, rows, now)
            return
        room = self._room(subscription)
        # A product of two known numbers: if it is small enough, nothing has to be measured.
        if self._turns is not None and room and len(outbox.deliveries) * batch.buffer.nbytes > MAX_WRITTEN_BYTES:
            room = self._room_in_turn(subscription, batch, room, len(rows), outbox)
        if room >= len(rows):
            self._deliver(subscription, batch, rows, outbox, now)
            return
        if room:
            self._deliver(subscription, batch, rows[:room], outbox, now)
            rows = rows[room:]
        if self.must_spool(subscription):
            self._store(subscription, batch, rows, now)
            return
        subscription.waiting.push(batch, rows, consignment, now)
        self._recorder.queued(batch, rows, subscription.number, now)
        if self._is_full(subscription):
            self._overflow(subscription, source, outbox, now)

    def enqueue(self, holder: Subscription, batch: Batch, rows: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        """Let rows wait in a queue, which a subscription represents; return those that have not expired."""
        if any_expires(batch.envelopes):
            rows = self.unexpired(holder, batch, rows, now)
        if len(rows):
            self._store(holder, batch, rows, now)
        return rows

    def can_pause(self, source: Session, subscription: Subscription) -> bool:
        """Return whether a publisher waits if a subscription has too much in the store; else the oldest are dropped."""
        assert self.stored is not None
        if self.stored.log.settings.at_limit == "drop-oldest":
            # Messages for a queue of another broker are not dropped: some of them may already be there.
            return subscription.outgoing is None
        return not may_not_wait(source, subscription)

    def owe(self, session: Session) -> None:
        """Note that a session gets more in a later turn, if there are turns."""
        if self._turns is not None:
            self._turns.owe(session)

    def _must_spool(self, subscription: Subscription) -> bool:
        """Return whether the next rows must wait on disk: after others there, or because memory is used up."""
        waiting, limits = subscription.waiting, self.limits
        if self.stored is None or waiting.stored:
            return self.stored is not None
        together = subscription.session.waiting
        broker = together.part_of
        return (
            waiting.bytes + _ROW_BYTES * waiting.messages > limits.spool_memory_bytes
            or together.bytes + _ROW_BYTES * together.messages > limits.session_queue_bytes
            or (broker is not None and broker.bytes + _ROW_BYTES * broker.messages > limits.memory_bytes // 2)
        )

    def waits(self, subscription: Subscription) -> bool:
        """Return whether the next rows for a subscription have to wait."""
        return not self._room(subscription)

    def must_spool(self, subscription: Subscription) -> bool:
        """Return whether rows that have to wait would wait on disk."""
        return subscription.policy is OverflowPolicy.SPOOL and self._must_spool(subscription)

    def _store(self, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], now: int) -> None:
        assert self.stored is not None
        self.stored.store(subscription, rows)
        if not subscription.retains and subscription.outgoing is None:
            self._recorder.queued(batch, rows, subscription.number, now)

    def flush_stored(
        self,
        batch: Batch,
        source: Session | None,
        outbox: Outbox,
        now: int,
        consignment: Consignment | None,
        can_refuse: bool = False,
    ) -> None:
        """Store the rows of a batch that must wait in the store, once for all subscriptions.

        With `can_refuse`, the sender is refused while a durable one is full, which then drops nothing for it.
        """
        stored = self.stored
        assert stored is not None
        full = stored.flush(batch, now, consignment)
        if stored.lack and source is not None:
            # Too late to refuse the batch. Its publisher learns that some of it is lost, and gets no receipt.
            source.lost(batch, f"what was sent had to be stored, and was not: {stored.lack}")
            outbox.closes.append((source.number, source.unstored))
        for subscription in full:
            self.overflowed.add(subscription)
            must_shed = consignment is None or stored.is_over(subscription)
            refuses = can_refuse and subscription.durable is not None
            action = action_at_limit(stored.log.settings, subscription, source, can_refuse=refuses, must_shed=must_shed)
            if action is AtLimit.STOP:
                outbox.stops.append(subscription)
            elif action is AtLimit.SHED:
                stored.shed_oldest(subscription)
                if subscription.outgoing is not None and self.peers is not None:
                    self.peers.outgoing.shed(subscription.outgoing)
            elif action is AtLimit.PUSH_BACK and source is not None:
                self._push_back(subscription, source, outbox)
                stored.full[subscription.number] = subscription

    def _overflow(self, subscription: Subscription, source: Session | None, outbox: Outbox, now: int) -> None:
        """Apply the policy of a queue that holds more than it may."""
        self.overflowed.add(subscription)
        policy = subscription.policy
        if policy is OverflowPolicy.SPOOL:
            # There is no store.
            policy = OverflowPolicy.PUSH_BACK
        # Links are always read, or two full brokers could wait for each other: neighbours cannot be paused.
        if policy is OverflowPolicy.DROP_OLDEST or (policy is OverflowPolicy.PUSH_BACK and source is None):
            self._shed_oldest(subscription, now)
        elif policy is OverflowPolicy.DISCONNECT or source is None:
            outbox.closes.append(
                (subscription.session.number, f"subscription {subscription.key!r} reads too slowly; its queue is full")
            )
        elif source.must_acknowledge:
            # Its acknowledgements arrive over the connection that would be paused. Two such sessions that publish to
            # each other, or one that publishes to itself, would wait for ever.
            outbox.closes.append(
                (
                    source.number,
                    f"the queue of a subscription to {subscription.topic!r} is full and pushes back, and this session "
                    "cannot be paused because it acknowledges messages of its own push-back subscriptions; "
                    "publish over another connection",
                )
            )
        else:
            self._push_back(subscription, source, outbox)

    def _push_back(self, subscription: Subscription, source: Session, outbox: Outbox) -> None:
        if not source.paused:
            outbox.pauses.append(source.number)
        source.pushed_back_by.add(subscription.number)
        subscription.pushes_back.add(source.number)

    def unexpired(
        self, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], now: int
    ) -> NDArray[np.int64]:
        """Return the rows that have not expired; the others are shed, counted and recorded."""
        expiry = batch.envelopes[rows, EXPIRY]
        late = (expiry != 0) & (expiry <= now)
        if not late.any():
            return rows
        if not subscription.retains:
            expired = rows[late]
            subscription.expired += len(expired)
            self.shed_expired += len(expired)
            self._recorder.shed(batch, expired, subscription.recorded, Loss.EXPIRED, now)
        fresh: NDArray[np.int64] = rows[~late]
        return fresh

    def _room(self, subscription: Subscription) -> int:
        """Return how many messages may be written to a subscription now."""
        if subscription.session.congested or subscription.waiting.messages or subscription.waiting.stored:
            return 0
        if subscription.ack_mode is AckMode.AUTO:
            return 2**62
        return self._acknowledgeable(subscription)

    def _acknowledgeable(self, subscription: Subscription) -> int:
        """Return how many messages more it may have before it acknowledges some."""
        most = min(self.limits.unacknowledged, subscription.prefetch)
        return max(0, most - len(subscription.unacknowledged))

    def _room_in_turn(self, subscription: Subscription, batch: Batch, room: int, count: int, outbox: Outbox) -> int:
        """Return no room for a session that this turn has written enough to; it gets the rest in later turns."""
        session = subscription.session
        written = outbox.written.get(session.number, 0)
        if written >= MAX_WRITTEN_BYTES:
            self.owe(session)
            return 0
        outbox.written[session.number] = written + outbox.size_of(subscription, batch, count)
        return room

    def _is_full(self, subscription: Subscription) -> bool:
        waiting, together, limits = subscription.waiting, subscription.session.waiting, self.limits
        if subscription.policy is OverflowPolicy.SPOOL:
            # Without a store; with one, the excess was spooled.
            return self.stored is None and waiting.bytes + _ROW_BYTES * waiting.messages > limits.spool_memory_bytes
        return (
            waiting.messages > limits.queue_messages
            or waiting.bytes > limits.queue_bytes
            or together.messages > limits.session_queue_messages
            or together.bytes > limits.session_queue_bytes
        )

    def _shed_oldest(self, subscription: Subscription, now: int) -> None:
        waiting, together, limits = subscription.waiting, subscription.session.waiting, self.limits
        # What the other queues of the session leave of its share; the queue that grew too long is shed.
        messages = limits.session_queue_messages - together.messages + waiting.messages
        bytes_ = limits.session_queue_bytes - together.bytes + waiting.bytes
        for segment in waiting.shed(
            max(0, min(limits.queue_messages, messages)), max(0, min(limits.queue_bytes, bytes_))
        ):
            subscription.shed += len(segment.rows)
            self.shed_full += len(segment.rows)
            self._recorder.shed(segment.batch, segment.rows, subscription.number, Loss.QUEUE_FULL, now)

    def _deliver(
        self,
        subscription: Subscription,
        batch: Batch,
        rows: NDArray[np.int64],
        outbox: Outbox,
        now: int,
        places: NDArray[np.int64] | None = None,
    ) -> None:
        if subscription.guest is None:
            outbox.deliveries.append(Delivery(subscription, batch, rows))
        else:
            assert self.peers is not None
            self.peers.guests.deliver(subscription, batch, rows, now)
        subscription.delivered += len(rows)
        self.delivered += len(rows)
        self._recorder.delivered(batch, rows, subscription.recorded, now)
        if subscription.remote is not None and subscription.ack_mode is AckMode.AUTO:
            assert self.peers is not None
            self.peers.consumers.answer(subscription, integers_of(batch.ids[rows]), True, True, now)
        if subscription.ack_mode is not AckMode.AUTO:
            ids = integers_of(batch.ids[rows])
            if places is None:
                subscription.unacknowledged.update(dict.fromkeys(ids, -1))
            else:
                self.acknowledgements.expect(subscription, ids, places)

    def drainable(self, subscription: Subscription) -> int:
        """Return how many of the waiting messages its acknowledgements let through."""
        if subscription.queue is not None:
            return int(self.queues is not None and self.queues.drainable(subscription))
        waiting = subscription.waiting.messages
        if not subscription.blocked:
            waiting += subscription.waiting.stored
        if subscription.ack_mode is AckMode.AUTO:
            return waiting
        return min(waiting, self._acknowledgeable(subscription))

    def drain(self, subscription: Subscription, most: int, outbox: Outbox, now: int) -> int:
        """Deliver waiting messages, up to a number; return how many."""
        if subscription.queue is not None:
            assert self.queues is not None
            return self.queues.offer(subscription, outbox, now)
        delivered = 0
        # Expired messages do not count: with nothing delivered, no acknowledgement would ask for the rest.
        while (wanted := min(most - delivered, self.drainable(subscription))) > 0:
            if not subscription.waiting.messages:
                delivered += self._drain_stored(subscription, wanted, outbox, now)
                continue
            for segment in subscription.waiting.pull(wanted):
                rows = segment.rows
                if any_expires(segment.batch.envelopes):
                    rows = self.unexpired(subscription, segment.batch, rows, now)
                if len(rows):
                    self._deliver(subscription, segment.batch, rows, outbox, now)
                    delivered += len(rows)
        if subscription.pushes_back and self._is_half_empty(subscription):
            self.release_publishers(subscription, outbox)
        return delivered

    def drain_session(self, session: Session, outbox: Outbox, now: int) -> None:
        """Deliver what waited for a session, one turn's worth."""
        left = self.limits.drain_messages
        for subscription in session.subscriptions.values():
            if left <= 0:
                break
            left -= self.drain(subscription, left, outbox, now)

    def has_waiting(self, session: Session) -> bool:
        """Return whether `drain_session` would have more to deliver."""
        return any(self.drainable(subscription) for subscription in session.subscriptions.values())

    def pay_owed(self, outbox: Outbox, now: int, budget: int) -> None:
        """Deliver what sessions are owed; those that this turn has no time for are first in the next one."""
        if (turns := self._turns) is None:
            return
        owed = turns.take_owed()
        for at, session in enumerate(owed):
            if outbox.searched > budget or outbox.given > MAX_TURN_BYTES:
                turns.owe_first(owed[at:])
                return
            if not session.congested and self._sessions.get(session.number) is session:
                before = len(outbox.deliveries)
                self.drain_session(session, outbox, now)
                outbox.count_given(before)
                if self.has_waiting(session):
                    turns.owe(session)

    def _is_half_empty(self, subscription: Subscription) -> bool:
        """Return whether paused publishers may resume; if the queue were only just not full, they would pause again."""
        waiting, limits = subscription.waiting, self.limits
        if subscription.cursor is not None:
            assert self.stored is not None
            settings = self.stored.log.settings
            return 2 * subscription.cursor.bytes <= settings.subscription_bytes and not self.stored.is_full(
                subscription
            )
        if subscription.policy is OverflowPolicy.SPOOL:
            return 2 * waiting.bytes <= limits.spool_memory_bytes
        return 2 * waiting.messages <= limits.queue_messages and 2 * waiting.bytes <= limits.queue_bytes

    def _drain_stored(self, subscription: Subscription, most: int, outbox: Outbox, now: int) -> int:
        """Deliver what waited in the store; return how many rows."""
        stored = self.stored
        assert stored is not None
        keeps = subscription.durable is not None and subscription.ack_mode is not AckMode.AUTO
        delivered = 0
        for batch, rows, places, again, since in stored.pull(subscription, most):
            done = places
            if any_expires(batch.envelopes):
                fresh = self.unexpired(subscription, batch, rows, now)
                if len(fresh) < len(rows):
                    is_fresh = np.isin(rows, fresh)
                    stored.settle(subscription, places[~is_fresh])
                    rows, places = fresh, places[is_fresh]
                    done, again = places, None if again is None else again[is_fresh]
            if len(rows):
                self._deliver(subscription, batch, rows, outbox, now, places if keeps else None)
                if subscription.durable is not None:
                    record_stored_delivery(self._recorder, batch, rows, again, since, now)
                delivered += len(rows)
            if not keeps:
                stored.settle(subscription, done)
        return delivered

    def deliver_queued(self, subscription: Subscription, taken: Taken, outbox: Outbox, now: int) -> NDArray[np.int64]:
        """Deliver rows of a queue to a consumer; return the places of those that it got, without expired ones."""
        stored = self.stored
        assert stored is not None
        keeps = subscription.ack_mode is not AckMode.AUTO
        places, rows, done, tries = taken.places, taken.rows, taken.places[:0], taken.tries
        batch = with_redelivery_marks(taken)
        # Dead letters are kept for people to look at.
        if not taken.notes and any_expires(batch.envelopes):
            fresh = self.unexpired(subscription, batch, rows, now)
            is_fresh = np.isin(rows, fresh)
            done, rows, places = places[~is_fresh], fresh, places[is_fresh]
            tries = None if tries is None else tries[is_fresh]
            assert subscription.queue is not None
            subscription.queue.holder.expired += len(done)
        if len(rows):
            self._deliver(subscription, batch, rows, outbox, now, places if keeps else None)
            record_stored_delivery(self._recorder, batch, rows, None if tries is None else tries > 0, taken.stored, now)
        done = done if keeps else taken.places
        if len(done):
            stored.settle(subscription, done)
        return places

    def proceed_stored(self, outbox: Outbox, now: int) -> None:
        """Continue what waited for the store: it has written or read something."""
        stored = self.stored
        assert stored is not None
        stored.proceed(now)
        for subscription in stored.take_unblocked():
            if subscription.queue is not None:
                assert self.queues is not None
                self.queues.stored(subscription, outbox, now)
            elif subscription.outgoing is not None:
                assert self.peers is not None
                self.peers.outgoing.pump(subscription.outgoing, now)
            else:
                self._go_on(subscription, outbox, now)
        for subscription in list(stored.full.values()):
            # Not only its client makes room: the disk has caught up, or rows were given up.
            if not subscription.pushes_back or self._is_half_empty(subscription):
                del stored.full[subscription.number]
                self.release_publishers(subscription, outbox)

    def go_on(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        """Continue with a subscription: more of its history waits, or its live messages may follow now."""
        stored = self.stored
        assert stored is not None
        stored.unblock(subscription)
        self._go_on(subscription, outbox, now)

    def _go_on(self, subscription: Subscription, outbox: Outbox, now: int) -> None:
        session, before = subscription.session, len(outbox.deliveries)
        if session.congested or self._sessions.get(session.number) is not session:
            return
        if self._turns is None or outbox.given <= MAX_TURN_BYTES:
            self.drain(subscription, self.limits.drain_messages, outbox, now)
            outbox.count_given(before)
        if self._turns is not None and self.drainable(subscription):
            self._turns.owe(session)

    def release_publishers(self, subscription: Subscription, outbox: Outbox) -> None:
        """Resume those who were paused for this subscription, unless something else keeps them."""
        for number in sorted(subscription.pushes_back):
            if (session := self._sessions.get(number)) is not None:
                session.pushed_back_by.discard(subscription.number)
                if not session.paused:
                    outbox.resumes.append(number)
        subscription.pushes_back.clear()
