"""What other brokers put here for queues and durable subscriptions, each message once.

Rule 1: one record stores a message for its queue, or for the durable subscriptions that want it, and for the
    *reception* of the broker that put it: after a crash it is known in both, or in neither.
Rule 2: a reception keeps the id of a message until its broker says that it will not put it again.
Rule 3: a message that is put again and is known is left out; it is confirmed like the others.
Rule 4: what a reception keeps is bounded by `MAX_REMEMBERED` messages and `MAX_REMEMBERED_BYTES` in the current
    session, beyond which nothing new is accepted, and by `SESSIONS_KEPT` times that and one put of earlier ones, of
    which the oldest are forgotten. An honest broker says which of its puts are over, and puts again what is in doubt
    before anything new. From then on that belongs to the current session, so what is in doubt is no more than one
    session may bring, and not among what is forgotten.
Rule 5: the reception of a broker that the network does not list any more ends when this one starts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.channel_items import ChannelError, PutRefused, Stored
from postroad.broker.outgoing_queue import DURABLE_PUT
from postroad.broker.reception import (
    KnownPut,
    Reception,
    ReceptionTerms,
    UnmatchedPut,
    contains,
    is_reception,
    take_over,
)
from postroad.errors import PostroadError
from postroad.messages.columns import FLAGS, QUEUED, SOURCE
from postroad.selectors import check_topic
from postroad.store import intersect, rows_of_payload, runs_of, stored_bytes
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.channel_items import Put
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.former_versions import PutMatch
    from postroad.broker.named_queues import NamedQueue
    from postroad.broker.outbox import Outbox
    from postroad.broker.peers import Peers
    from postroad.messages import Batch

    Rows = NDArray[np.int64]

__all__ = ["Receptions"]

# Messages of one broker in one session whose ids are kept: five times what an honest one has unconfirmed, because it
# says what it will not put again only after it has stored that.
MAX_REMEMBERED = 100_000
# Their bytes, or what one subscription may have if that is less: they keep their records in the store, whoever has
# consumed them. An honest broker says that they are over after two commits and a round trip; a fast disk writes less
# than this meanwhile.
MAX_REMEMBERED_BYTES = 256 * 1024 * 1024
# Of earlier sessions so many times as much is kept: the last one, and one more for what was put again in part.
SESSIONS_KEPT = 2
# Puts of one broker for durable subscriptions that wait until they are matched: as many as an honest one has under way.
MAX_UNMATCHED = 256
# Their bytes, because they wait in memory: twice what an honest broker lets wait in its channel, and some turns' work
# even for an index that takes milliseconds for each put. One put is taken in any case.
MAX_UNMATCHED_BYTES = 16 * 1024 * 1024
# Queues that refuse one broker's puts, remembered to keep its messages in order; beyond this, all are tried again.
MAX_REFUSING = 10_000


class _Pending(NamedTuple):
    """A put to confirm when the store has reached a position."""

    position: int
    source: int
    session: int
    number: int
    known: KnownPut


class Receptions:
    """What other brokers put here.

    Args:
        core: the broker.
        deliveries: sheds what is too old.
        peers: the channels to other brokers.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, peers: Peers) -> None:
        assert deliveries.stored is not None
        self._core = core
        self._deliveries = deliveries
        self._stored = deliveries.stored
        self._log = self._stored.log
        self._peers = peers
        self._of: dict[int, Reception] = {}
        self._pending: deque[_Pending] = deque()
        self.repeated = self.forgotten = 0

    def restore(self) -> None:
        """Restore what an earlier process knew; it is read little by little."""
        for cursor in list(self._log.cursors.values()):
            if is_reception(cursor.terms):
                terms = msgspec.msgpack.decode(cursor.terms, type=ReceptionTerms)
                if not self._core.homes.is_listed(terms.reception):
                    # Nobody will ever ask for these ids, or say that they are not needed.
                    self._log.end_cursor(cursor)
                    continue
                reception = self._of[terms.reception] = Reception(cursor)
                reception.loading = True
        self._load()

    def is_ready(self, source: int) -> bool:
        """Return whether everything that a broker has put before is known; until then it has to wait."""
        reception = self._of.get(source)
        return reception is None or not reception.loading

    def _load(self) -> None:
        for reception in [each for each in self._of.values() if each.loading]:
            while reception.loading:
                taken = self._log.pull(reception.cursor, 2**30)
                for each in taken:
                    known = KnownPut(each.batch.ids[each.rows].copy(), stored_bytes(each.batch, each.rows))
                    known.places, known.is_taken = each.places, True
                    reception.earlier.append(known)
                reception.loading = bool(self._log.unread(reception.cursor))
                if not taken:
                    break
            # The session that was under way is among them.
            self._trim(reception, SESSIONS_KEPT + 1)

    # --- what others put ---------------------------------------------------------------------------------------------

    def put(self, source: int, item: Put, outbox: Outbox, now: int) -> None:
        """Take messages that a broker puts, for a queue or for durable subscriptions.

        Raises:
            ChannelError: the bytes are not messages, or the messages did not enter at that broker.
        """
        try:
            batch = rows_of_payload(item.rows)
        except PostroadError as error:
            raise ChannelError(f"broker {source} puts bytes that are not messages: {error}") from error
        if item.oldest > item.newest:
            raise ChannelError(f"broker {source} puts messages of the states from {item.oldest} to {item.newest}")
        if not len(batch) or (batch.envelopes[:, SOURCE] != source).any():
            raise ChannelError(f"broker {source} puts messages that did not enter there")
        if item.queue != DURABLE_PUT:
            batch.envelopes[:, FLAGS] |= QUEUED
        elif (batch.envelopes[:, FLAGS] & QUEUED).any():
            raise ChannelError(f"broker {source} puts messages of a queue to durable subscriptions")
        reception = self._reception(source)
        if item.number in reception.puts:
            raise ChannelError(f"broker {source} puts messages under the number {item.number} twice")
        attempt, reason = reception.refusing.get(item.queue, (-1, ""))
        if item.attempt > attempt:
            reason = self._store(source, reception, item, batch, outbox, now)
        if reason:
            if len(reception.refusing) >= MAX_REFUSING:
                reception.refusing.clear()
            reception.refusing[item.queue] = (item.attempt, reason)
            self._peers.send(source, PutRefused(item.number, reason[:1_000]))

    def _reception(self, source: int) -> Reception:
        reception = self._of.get(source)
        if reception is None:
            terms = msgspec.msgpack.encode(ReceptionTerms(reception=source))
            cursor = self._log.open_cursor(self._core.take_subscription_number(), terms)
            reception = self._of[source] = Reception(cursor)
        return reception

    def _store(self, source: int, reception: Reception, item: Put, batch: Batch, outbox: Outbox, now: int) -> str:
        """Store what is new; return why that is impossible, if it is."""
        queues = self._core.queues
        assert queues is not None
        known = contains(reception.earlier, batch.ids) if item.again and reception.earlier else None
        fresh = np.arange(len(batch)) if known is None else np.flatnonzero(~known)
        self.repeated += len(batch) - len(fresh)
        is_durable, position = item.queue == DURABLE_PUT, self._log.position
        # Those for durable subscriptions are added when they are matched and stored.
        first = fresh[:0] if is_durable else fresh
        size = stored_bytes(batch, fresh) if len(fresh) else 0
        put = KnownPut(batch.ids[first].copy(), size if len(first) else 0)
        if len(fresh) and (reason := self._overdue(reception, source, len(fresh), size)):
            return reason
        if len(fresh) and is_durable:
            if reason := _unmatched_reason(reception, size) or self._stored.put_refusal(batch, fresh):
                return reason
        elif len(fresh):
            try:
                check_topic(item.queue)
                queue = queues.named(item.queue, item.principal, now)
                if reason := self._refusal(queue, batch, fresh):
                    return reason
                position = self._append(reception, queue, batch, fresh, source, now)
                put.places = self._log.last_places(reception.cursor)
            except PostroadError as error:
                return str(error)
        reception.refusing.pop(item.queue, None)
        if known is not None and known.any():
            take_over(reception.earlier, put, batch.ids[known])
        reception.add(item.number, put)
        if len(fresh) and is_durable:
            new, is_next = batch.take(fresh), not reception.unmatched
            self._core.recorder.arrived(new, source, now)
            if not is_next:
                self._record(new, Detour.DEFERRED, now)
            waited, states = item.again or not is_next, (item.oldest, item.newest)
            waits = UnmatchedPut(item.number, item.attempt, new, put, states, is_begun=False, waited=waited)
            reception.wait(waits, size)
            if is_next:
                self._match(source, reception, outbox, now)
            return ""
        self._pending.append(_Pending(position, source, reception.session, item.number, put))
        return ""

    # --- for durable subscriptions -----------------------------------------------------------------------------------

    @property
    def has_unmatched(self) -> bool:
        """Return whether `match` has something to do."""
        return any(
            each.unmatched and not self._stored.put_refusal(each.unmatched[0].batch) for each in self._of.values()
        )

    def match(self, outbox: Outbox, now: int) -> None:
        """Match one turn's worth of each broker's puts for durable subscriptions."""
        for source, reception in self._of.items():
            if reception.unmatched and not self._stored.put_refusal(reception.unmatched[0].batch):
                self._match(source, reception, outbox, now)

    def _match(self, source: int, reception: Reception, outbox: Outbox, now: int) -> None:
        """Store what one turn can match of the first put of a broker; a put is confirmed when all of it is stored."""
        first, durables = reception.unmatched[0], self._core.durables
        assert durables is not None
        matched = durables.formers.match(first.batch, *first.states)
        if not first.is_begun and (reason := self._full_reason(matched)):
            self._refuse_unmatched(source, reception, reason, now)
            return
        done = len(matched.offsets) - 1
        part = first.batch if done == len(first.batch) else first.batch.take(np.arange(done))
        if first.waited:
            self._record(part, Detour.RESUMED, now)
        places = self._core.residents.store_put(part, matched, reception.holder, outbox, now)
        reception.matched(first.known, part.ids.copy(), stored_bytes(part), places)
        if done < len(first.batch):
            rest = first.batch.take(np.arange(done, len(first.batch)))
            reception.unmatched[0] = first._replace(batch=rest, is_begun=True, waited=True)
            if not first.is_begun:
                self._record(rest, Detour.DEFERRED, now)
            return
        reception.unmatched.popleft()
        self._pending.append(_Pending(self._stored.record, source, reception.session, first.number, first.known))

    def _full_reason(self, matched: PutMatch) -> str:
        """Return which durable subscription has no room, of those that messages are for; empty if all have."""
        if self._log.settings.at_limit != "push-back":
            return ""
        full = self._core.residents.full_durable(matched)
        if full is None or full.durable is None or full.cursor is None:
            return ""
        name, client, size = full.durable.name, full.durable.client, full.cursor.bytes
        return f"the durable subscription {name!r} of client {client!r} is full ({size:,} bytes)"

    def _record(self, batch: Batch, detour: Detour, now: int) -> None:
        self._core.recorder.dropped(batch, np.arange(len(batch)), 0, detour, now)

    def _refuse_unmatched(self, source: int, reception: Reception, reason: str, now: int) -> None:
        """Refuse the puts for durable subscriptions of which nothing is stored."""
        for each in reception.take_unmatched():
            if each.waited:
                self._record(each.batch, Detour.RESUMED, now)
            known = reception.remove(each.number)
            if len(known.ids):
                # Some of it was put before, and will be put again.
                known.is_taken = True
                reception.earlier.append(known)
            reception.refusing[DURABLE_PUT] = (each.attempt, reason)
            self._peers.send(source, PutRefused(each.number, reason[:1_000]))

    def _overdue(self, reception: Reception, source: int, count: int, size: int) -> str:
        """Return why a broker may put nothing new before it says what became of earlier messages; empty if it may."""
        most = self._most_bytes
        rows, taken = reception.rows + count, reception.bytes + reception.unmatched_bytes + size
        # One put is taken in any case.
        if not reception.rows or (rows <= MAX_REMEMBERED and taken <= most):
            return ""
        return (
            f"broker {source} has not said that it will not put {reception.rows:,} earlier messages again "
            f"({reception.bytes:,} bytes); the limits are {MAX_REMEMBERED:,} messages and {most:,} bytes "
            "(store.subscription_bytes, if that is less than 256 MiB)"
        )

    @property
    def _most_bytes(self) -> int:
        return min(MAX_REMEMBERED_BYTES, self._log.settings.subscription_bytes)

    def _refusal(self, queue: NamedQueue, batch: Batch, rows: Rows) -> str:
        if refusal := self._stored.put_refusal(batch, rows):
            return refusal
        if self._log.settings.at_limit != "drop-oldest" and self._stored.is_over(queue.holder):
            return f"the queue {queue.name!r} is full ({queue.cursor.bytes:,} bytes)"
        return ""

    def _append(self, reception: Reception, queue: NamedQueue, batch: Batch, fresh: Rows, source: int, now: int) -> int:
        rows = self._deliveries.unexpired(queue.holder, batch, fresh, now)
        matches = [(queue.cursor, rows), (reception.cursor, fresh)] if len(rows) else [(reception.cursor, fresh)]
        position = self._log.append(batch, matches, now)
        recorder, holder = self._core.recorder, queue.holder
        recorder.arrived(batch.take(fresh), source, now)
        if len(rows):
            assert self._core.queues is not None
            self._core.queues.note_expiry(queue, batch, rows, position)
            recorder.queued(batch, rows, holder.number, now)
            holder.waiting.stored = self._log.unread(queue.cursor)
            self._stored.block(holder)
            if self._stored.is_full(holder):
                self._deliveries.overflowed.add(holder)
                if self._log.settings.at_limit == "drop-oldest":
                    self._stored.shed_oldest(holder)
        return position

    # --- later -------------------------------------------------------------------------------------------------------

    def proceed(self) -> None:
        """Confirm what is safe by now: the store has written or read something."""
        self._load()
        safe = 2**62 if self._log.position <= self._log.safe else self._log.safe
        while self._pending and self._pending[0].position <= safe:
            _, source, session, number, known = self._pending.popleft()
            reception = self._of[source]
            if len(known.places):
                # Without rows that turned out to be damaged.
                found = intersect(runs_of(known.places), reception.cursor.waiting.runs)
                self._log.take(reception.cursor, found.places())
            known.is_taken = True
            if known.is_over:
                self._log.settle(reception.cursor, known.places)
            if session == reception.session:
                self._peers.send(source, Stored(number))

    def forget(self, source: int, number: int) -> None:
        """Forget the puts of a broker up to a number, which it will not repeat; 0 for all of earlier sessions.

        Raises:
            ChannelError: some of them are not confirmed.
        """
        reception = self._reception(source)
        if any(each.number <= number for each in reception.unmatched):
            raise ChannelError(f"broker {source} will not put messages again that are not stored here")
        if not number:
            over, reception.earlier = reception.earlier, []
        else:
            over = [reception.remove(each) for each in list(reception.puts) if each <= number]
        for known in over:
            self._release(reception, known)

    def _release(self, reception: Reception, known: KnownPut) -> None:
        """Forget messages; those that are not safe yet, as soon as they are."""
        known.is_over = True
        if known.is_taken and len(known.places):
            self._log.settle(reception.cursor, known.places)

    def _trim(self, reception: Reception, sessions: int = SESSIONS_KEPT) -> None:
        """Forget the oldest messages of earlier sessions, if they are more than some sessions may bring."""
        for known in reception.take_oldest(sessions * MAX_REMEMBERED, sessions * self._most_bytes):
            self.forgotten += len(known.ids)
            self._release(reception, known)

    def lost(self, source: int, now: int) -> None:
        """Handle the loss of the channel to a broker: it may put again all that it does not say is finished."""
        reception = self._of.get(source)
        if reception is not None:
            for each in reception.take_unmatched():
                # Some of it may be stored, and is to be known as such. Nobody waits for a confirmation any more.
                self._pending.append(_Pending(self._log.position, source, reception.session, each.number, each.known))
                self._record(each.batch, Detour.RESUMED, now)
            reception.end_session()
            self._trim(reception)


def _unmatched_reason(reception: Reception, size: int) -> str:
    """Return why no more bytes may wait to be matched; empty if they may."""
    if len(reception.unmatched) >= MAX_UNMATCHED:
        return f"{len(reception.unmatched)} puts of this broker wait to be matched, the limit"
    if reception.unmatched and reception.unmatched_bytes + size > MAX_UNMATCHED_BYTES:
        return (
            f"{reception.unmatched_bytes:,} bytes that this broker has put wait to be matched; with {size:,} more it "
            f"would be more than {MAX_UNMATCHED_BYTES:,}, the limit"
        )
    return ""
