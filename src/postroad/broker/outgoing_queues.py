"""Messages for queues and durable subscriptions of other brokers, on their way from the broker where they entered.

Rule 1: a message to a queue whose home is elsewhere, or that a durable subscription elsewhere wants, is stored here
    first, and put to that broker from the store, in order. It is settled here when that broker has stored it.
Rule 2: messages that were put and not confirmed when a channel was lost, or when this process began, are in doubt. They
    are put again, marked as such, and the home leaves out those that it has (`receptions`).
Rule 3: when nothing is in doubt any more, this broker tells the home, which forgets the ids.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from postroad.broker.asked_rows import AskedRows, drop_closed
from postroad.broker.channel_items import Forget, Put
from postroad.broker.errors import BrokerError
from postroad.broker.id_batches import ids_alone
from postroad.broker.outgoing_queue import (
    OutgoingQueue,
    OutgoingTerms,
    RemoteInterestTerms,
    is_outgoing,
    put_pieces,
)
from postroad.broker.queue_names import rows_by_name
from postroad.broker.stored_queues import Discard
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import first_places, rows_payload, subtract
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from postroad.broker.channel_items import PutRefused, Stored
    from postroad.broker.core import Broker
    from postroad.broker.outgoing_queue import PutPiece
    from postroad.broker.peers import Peers
    from postroad.broker.sessions import Session
    from postroad.broker.stored_queues import StoredQueues
    from postroad.messages import Batch
    from postroad.store import Cursor

    Rows = NDArray[np.int64]

__all__ = ["MAX_OUTGOING", "OutgoingQueues"]

# Each outlives its publishers while something waits in it: without a bound, clients with ever new names would fill
# memory.
MAX_OUTGOING = 10_000
# Of one principal: as many queues as it may have at a home, so that nobody takes the places of all others.
MAX_OUTGOING_PER_PRINCIPAL = 1_000
# Messages that one home has not confirmed. It keeps their ids until it hears that they are not needed any more.
MAX_UNCONFIRMED = 20_000
# Messages of one put, so that others have their turn in between.
PUT_ROWS = 1_000
# How much may wait in a channel before no more is read from the store for it.
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
# How long a queue waits after its home has refused something.
RETRY_MS = 1_000


class _Unconfirmed(NamedTuple):
    queue: OutgoingQueue
    places: Rows
    ids_only: Batch
    again: bool
    attempt: int


class _UnderWay:
    """What is under way to one home.

    Attributes:
        puts: unconfirmed ones, by number, in order.
        rows: how many messages these are.
        session: counts sessions of the channel.
        again: puts of doubtful rows whose settlement is not safe yet.
        owes: the home has not been told that nothing is in doubt.
        purged: rows that may be in doubt were given up, and a crash may still bring them back.
    """

    def __init__(self) -> None:
        self.puts: dict[int, _Unconfirmed] = {}
        self.rows = self.session = self.again = 0
        self.owes = self.purged = False


class OutgoingQueues:
    """The outgoing queues of a broker.

    Args:
        core: the broker.
        stored: its store.
        peers: the channels to other brokers.
    """

    def __init__(self, core: Broker, stored: StoredQueues, peers: Peers) -> None:
        self._core = core
        self._stored = stored
        self._log = stored.log
        self._peers = peers
        self._named: dict[str, OutgoingQueue] = {}
        self._for_durables: dict[int, OutgoingQueue] = {}
        self._of_principal: Counter[str] = Counter()
        self._ways: dict[int, _UnderWay] = {}
        self._next = 1
        # Those that have more to put than they may now.
        self._stalled: dict[int, OutgoingQueue] = {}
        # Settled here, and not safe yet: the number of the store, the home and its session, the put, whether in doubt.
        self._settling: deque[tuple[int, int, int, int, bool]] = deque()

    def listed(self) -> list[OutgoingQueue]:
        """Return those for queues, by name."""
        return sorted(self._named.values(), key=lambda each: each.name)

    def for_durables(self) -> list[OutgoingQueue]:
        """Return those for durable subscriptions, by the number of their broker."""
        return [self._for_durables[home] for home in sorted(self._for_durables)]

    def find(self, name: str) -> OutgoingQueue | None:
        """Return the one of this name."""
        return self._named.get(name)

    @property
    def messages(self) -> int:
        """Return how many messages the brokers that they are for have not confirmed."""
        return sum(each.messages for each in self._every())

    def _every(self) -> Iterator[OutgoingQueue]:
        yield from self._named.values()
        yield from self._for_durables.values()

    def restore(self) -> None:
        """Restore what an earlier process left for queues: all of it is in doubt."""
        for cursor in list(self._log.cursors.values()):
            if is_outgoing(cursor.terms):
                before = msgspec.msgpack.decode(cursor.terms, type=OutgoingTerms)
                terms = before.at(home := self._home(before.outgoing), waits=cursor.rows > 0)
                if terms != before:
                    self._log.change_cursor(cursor, msgspec.msgpack.encode(terms))
                self._doubt(self._enter(terms, home, cursor))

    def restore_for_durables(self, terms: RemoteInterestTerms, cursor: Cursor) -> OutgoingQueue:
        """Restore what an earlier process left for the durable subscriptions of another broker."""
        return self._doubt(self._enter(terms, terms.broker, cursor))

    def _doubt(self, queue: OutgoingQueue) -> OutgoingQueue:
        queue.doubtful = self._log.unread(queue.cursor)
        self._stored.block(queue.holder)
        return queue

    def _home(self, name: str) -> int:
        """Return the home of a queue by the current plan; 0 if the plan lists no brokers."""
        try:
            return self._core.homes.of(name)
        except BrokerError:
            return 0

    def _enter(self, terms: OutgoingTerms | RemoteInterestTerms, home: int, cursor: Cursor) -> OutgoingQueue:
        queue = OutgoingQueue(terms, home, cursor, self._log.boundary())
        queue.holder.waiting.stored = self._log.unread(cursor)
        if queue.is_for_durables:
            queue.holder.stores = True
            self._for_durables[home] = queue
        else:
            self._named[queue.name] = queue
            self._of_principal[queue.principal] += 1
        return queue

    def make_for_durables(self, terms: RemoteInterestTerms) -> OutgoingQueue:
        """Make the queue for the durable subscriptions of another broker."""
        cursor = self._log.open_cursor(self._core.take_subscription_number(), msgspec.msgpack.encode(terms))
        return self._enter(terms, terms.broker, cursor)

    def end_for_durables(self, queue: OutgoingQueue) -> None:
        """End the queue for a broker whose durable subscriptions want nothing any more; nothing waits in it."""
        self._log.end_cursor(queue.cursor)
        del self._for_durables[queue.home]
        self._stalled.pop(queue.cursor.number, None)

    def named(self, name: str, home: int, principal: str, spared: Collection[str] = ()) -> OutgoingQueue:
        """Return the outgoing queue of this name; make it if there is none.

        Args:
            name: of the queue.
            home: the broker that has it.
            principal: who sends to it.
            spared: queues that are about to get messages, and so do not make room although they are empty.

        Raises:
            BrokerError: the limit is reached, or the store takes nothing.
        """
        queue = self._named.get(name)
        if queue is not None:
            return queue
        if len(self._named) >= MAX_OUTGOING or self._of_principal[principal] >= MAX_OUTGOING_PER_PRINCIPAL:
            self._end_empty(spared)
        if self._of_principal[principal] >= MAX_OUTGOING_PER_PRINCIPAL:
            limit = MAX_OUTGOING_PER_PRINCIPAL
            raise BrokerError(
                f"messages of this login for {limit:,} queues of other brokers wait here, the limit "
                "(MAX_OUTGOING_PER_PRINCIPAL); send to them again when their brokers can be reached"
            )
        if len(self._named) >= MAX_OUTGOING:
            raise BrokerError(
                f"messages for {MAX_OUTGOING:,} queues of other brokers wait here, the limit (MAX_OUTGOING); send "
                "again when those brokers can be reached, or to another broker"
            )
        if refusal := self._stored.refusal:
            raise BrokerError(f"nothing can be kept for a queue of another broker now: {refusal}")
        terms = OutgoingTerms(outgoing=name, principal=principal, homes=(home,))
        cursor = self._log.open_cursor(self._core.take_subscription_number(), msgspec.msgpack.encode(terms))
        return self._enter(terms, home, cursor)

    def _end_empty(self, spared: Collection[str]) -> None:
        for queue in list(self._named.values()):
            if queue.name not in spared and not queue.cursor.rows and not self._log.unread(queue.cursor):
                self._log.end_cursor(queue.cursor)
                del self._named[queue.name]
                self._of_principal[queue.principal] -= 1

    def refusal(self, queue: OutgoingQueue, now: int) -> str:
        """Return why nothing may be sent to a queue now; empty if something may."""
        if self._core.queue_settings.when_home_is_down == "keep":
            return ""
        if self._peers.is_down(queue.home, now):
            return (
                f"the queue {queue.name!r} is at broker {queue.home} of this network, which cannot be reached now; "
                "send again later (setting queues.when_home_is_down)"
            )
        return "" if not queue.trouble else f"broker {queue.home} does not take it: {queue.trouble}"

    def accepted(self, queue: OutgoingQueue, batch: Batch, rows: Rows, source: Session | None, now: int) -> None:
        """Note messages that were stored here for another broker."""
        self._core.recorder.dropped(batch, rows, queue.home, Detour.HELD, now)
        if source is not None and not queue.is_for_durables and self._core.queue_settings.when_home_is_down == "refuse":
            drop_closed(queue.asked)
            places = self._log.last_places(queue.cursor)
            waits = self._peers.confirmations(source)
            queue.asked.append(AskedRows(int(places[0]), int(places[-1]), len(places), waits, self._peers.time(now)))

    def sent_again(self, batch: Batch, source: Session, now: int) -> None:
        """Let a session that sends messages again wait for those that are still here.

        They were stored before, so nothing is stored now, but their homes may not have them. Which of the rows in a
        queue they are is not known any more: the session waits for all.
        """
        if self._core.queue_settings.when_home_is_down != "refuse":
            return
        for name, _ in rows_by_name(batch, np.flatnonzero(batch.envelopes[:, FLAGS] & QUEUED)):
            queue = self._named.get(name)
            if queue is None or not queue.messages:
                continue
            waiting = self._stored.waiting_rows(queue.cursor)
            under_way = [each.places for each in self._way(queue.home).puts.values() if each.queue is queue]
            count = waiting.size + sum(map(len, under_way))
            last = max([int(each[-1]) for each in under_way] + [int(each) - 1 for each in waiting.ends[-1:]])
            waits = self._peers.confirmations(source)
            queue.asked_again = [each for each in queue.asked_again if each.is_open]
            # Once is enough for all that a client sends again and again.
            if not any(each.is_of(waits) and each.last == last for each in queue.asked_again):
                queue.asked_again.append(AskedRows(0, last, count, waits, self._peers.time(now)))

    # --- putting -----------------------------------------------------------------------------------------------------

    def pump(self, queue: OutgoingQueue, now: int) -> None:
        """Put as much to the home of a queue as may be under way."""
        if self._stored.is_discarding(queue.cursor):
            self._stored.block(queue.holder)
            return
        if queue.home == self._core.number:
            self._come_home(queue, now)
            return
        if not self._log.unread(queue.cursor):
            return
        if not self._peers.is_open(queue.home):
            self._peers.want(queue.home, now)
            return
        way = self._way(queue.home)
        while way.rows < MAX_UNCONFIRMED and self._peers.backlog(queue.home) < MAX_BACKLOG_BYTES:
            if self._peers.time(now) < queue.retry_at or (queue.trouble and queue.unconfirmed):
                # After a refusal, try one put alone: later ones must not overtake it.
                break
            # A home that refuses may do so for hours: it is asked about one message.
            most = 1 if queue.trouble else min(PUT_ROWS, MAX_UNCONFIRMED - way.rows, queue.doubtful or PUT_ROWS)
            taken = self._log.pull(queue.cursor, most)
            for each in taken:
                for piece in put_pieces(each, queue.states):
                    self._put(queue, way, piece, now)
            queue.holder.waiting.stored = self._log.unread(queue.cursor)
            if not taken:
                if queue.holder.waiting.stored:
                    # It is not safe yet, or not in memory.
                    self._stored.block(queue.holder)
                return
        self._stalled[queue.cursor.number] = queue

    def _put(self, queue: OutgoingQueue, way: _UnderWay, piece: PutPiece, now: int) -> None:
        number, self._next = self._next, self._next + 1
        (places, batch, span), again, count = piece, queue.doubtful > 0, len(piece.places)
        queue.doubtful = max(0, queue.doubtful - count)
        ids_only, every = ids_alone(batch.ids), np.arange(count)
        way.puts[number] = _Unconfirmed(queue, places, ids_only, again, queue.attempt)
        way.rows += count
        way.again += again
        queue.unconfirmed += count
        # On record it is kept here until its home has stored it (`stored_there`).
        if again:
            self._release_former(queue, ids_only, now)
            # Version 0.2.0 recorded them as sent on when it put them. Others were kept for a former home.
            self._core.recorder.dropped(ids_only, every, queue.home, Detour.HELD, now)
        self._core.recorder.relayed(ids_only, every, queue.home, now)
        rows = rows_payload(batch)
        put = Put(number, queue.attempt, queue.name, queue.principal, again, rows, span.oldest, span.newest)
        self._peers.send(queue.home, put)

    def _come_home(self, queue: OutgoingQueue, now: int) -> None:
        """Move waiting messages to the queue itself: by a new plan it is at this broker."""
        assert self._core.queues is not None
        if not self._log.unread(queue.cursor):
            return
        try:
            target = self._core.queues.named(queue.name, queue.principal, now)
        except BrokerError as error:
            # A limit is reached, or the store takes nothing: they wait on, and nothing else has to.
            queue.trouble, self._stalled[queue.cursor.number] = str(error), queue
            return
        queue.trouble = ""
        taken = self._log.pull(queue.cursor, PUT_ROWS)
        while taken:
            for each in taken:
                ids_only, every = ids_alone(each.batch.ids[each.rows]), np.arange(len(each.places))
                self._release_former(queue, ids_only, now)
                self._core.recorder.dropped(ids_only, every, queue.home, Detour.SENT_ON, now)
                self._core.recorder.queued(ids_only, every, target.cursor.number, now)
                self._log.transfer(queue.cursor, each.places, target.cursor, b"")
            self._stored.block(target.holder)
            taken = self._log.pull(queue.cursor, PUT_ROWS)
        queue.holder.waiting.stored = self._log.unread(queue.cursor)
        if queue.holder.waiting.stored:
            self._stored.block(queue.holder)

    def _release_former(self, queue: OutgoingQueue, ids_only: Batch, now: int) -> None:
        """Record that messages are not kept for a former home any more."""
        for home in queue.former_homes:
            self._core.recorder.dropped(ids_only, np.arange(len(ids_only)), home, Detour.SENT_ON, now)

    def _way(self, home: int) -> _UnderWay:
        return self._ways.setdefault(home, _UnderWay())

    def purge(self, queue: OutgoingQueue, reason: str) -> int:
        """Give up all that waits for a queue, as an operator wants it; returns how many messages that is.

        What is under way to the home stays.
        """
        among = self._stored.waiting_rows(queue.cursor)
        doubtful = first_places(among, queue.doubtful, 2**62)
        rest, doubt = subtract(among, doubtful), f"{reason}, after it may have come to its home"
        for runs, why in ((doubtful, doubt), (rest, reason)):
            if len(runs.starts):
                self._stored.discard(
                    Discard(queue.cursor, 0, runs.size, why, False, queue.holder, among=runs, home=queue.home)
                )
        queue.holder.waiting.stored = among.size
        for asked in (*queue.asked, *queue.asked_again):
            asked.purged(among, f"what was sent to the queue {queue.name!r} was {reason}")
        # The home has nothing left to take, so it cannot show that it takes messages again.
        queue.doubtful, queue.trouble = 0, ""
        self._way(queue.home).purged = True
        return among.size

    def shed(self, queue: OutgoingQueue) -> None:
        """Note that the oldest rows of a queue are given up, and some of them may have come to its home."""
        self._way(queue.home).purged = True

    # --- what the home says ------------------------------------------------------------------------------------------

    def stored_there(self, home: int, item: Stored, now: int) -> None:
        """Settle a put that is safe at its home."""
        way = self._way(home)
        put = way.puts.pop(item.number, None)
        if put is None:
            return
        queue, count = put.queue, len(put.places)
        way.rows -= count
        queue.unconfirmed -= count
        if put.attempt == queue.attempt:
            # Not one from before a refusal: others of that time may still be refused.
            queue.trouble = ""
        self._core.recorder.dropped(put.ids_only, np.arange(count), home, Detour.SENT_ON, now)
        self._log.settle(queue.cursor, put.places)
        self._settling.append((self._log.position, home, way.session, item.number, put.again))
        for asked in queue.asked:
            if asked.first > put.places[-1]:
                break
            asked.stored(put.places)
        for asked in queue.asked_again:
            asked.stored(put.places)
        drop_closed(queue.asked)
        self._pump_stalled(now)

    def refused_there(self, home: int, item: PutRefused, now: int) -> None:
        """Keep a put that its home does not take now."""
        way = self._way(home)
        put = way.puts.pop(item.number, None)
        if put is not None:
            if (time := self._peers.time(now)) >= put.queue.retry_at:
                put.queue.attempt += 1
                put.queue.retry_at = time + RETRY_MS
            put.queue.trouble = item.reason
            way.again -= put.again
            self._take_back(way, put, home, now)
            self._stalled[put.queue.cursor.number] = put.queue

    def _take_back(self, way: _UnderWay, put: _Unconfirmed, home: int, now: int) -> None:
        queue, every = put.queue, np.arange(len(put.places))
        way.rows -= len(every)
        queue.unconfirmed -= len(every)
        if put.again:
            queue.doubtful += len(every)
        self._log.give_back(queue.cursor, put.places)
        queue.holder.waiting.stored = self._log.unread(queue.cursor)
        self._core.recorder.dropped(put.ids_only, every, home, Detour.RETURNED, now)

    def lost(self, home: int, now: int) -> None:
        """Handle the loss of the channel to a home: what it has not confirmed is in doubt."""
        way = self._ways.get(home)
        if way is None:
            return
        puts, way.puts = list(way.puts.values()), {}
        way.again, way.session = 0, way.session + 1
        for put in puts:
            self._take_back(way, put._replace(again=True), home, now)
        for queue in self._of(home):
            # Nobody else has what the home refused before.
            queue.attempt, queue.retry_at, queue.trouble = 0, 0, ""
            if self._log.unread(queue.cursor):
                self._peers.want(home, now)

    def opened(self, home: int, now: int) -> None:
        """Handle the opening of the channel to a home."""
        self._way(home).owes = True
        for queue in self._of(home):
            self.pump(queue, now)
        self._end_doubts(home)

    def proceed(self, now: int) -> None:
        """Continue: the store has written something."""
        safe = 2**62 if self._log.position <= self._log.safe else self._log.safe
        over: dict[int, int] = {}
        while self._settling and self._settling[0][0] <= safe:
            _, home, session, number, again = self._settling.popleft()
            way = self._way(home)
            over.setdefault(home, 0)
            if session == way.session:
                way.again -= again
                over[home] = number
        for home, number in over.items():
            if number:
                self._peers.send(home, Forget(number))
            self._end_doubts(home)
        for home in [each for each, way in self._ways.items() if way.purged]:
            self._end_doubts(home)

    def _end_doubts(self, home: int) -> None:
        """Tell the home, once, that nothing from before this session is in doubt."""
        way = self._way(home)
        if way.purged and self._log.position <= self._log.safe:
            way.purged = any(self._stored.is_discarding(each.cursor) for each in self._of(home))
        if not way.owes or way.again or way.purged or not self._peers.is_open(home):
            return
        if any(settled[1] == home and settled[2] != way.session for settled in self._settling):
            # Settled in an earlier session and not safe yet: after a crash these rows would be put once more.
            return
        for queue in self._of(home):
            if not queue.unconfirmed and not self._log.unread(queue.cursor):
                # Damaged rows are never put.
                queue.doubtful = 0
        if not any(each.doubtful for each in self._of(home)):
            way.owes = False
            self._peers.send(home, Forget(0))

    def tick(self, now: int) -> None:
        """Try again what was refused."""
        if self._stalled:
            self._pump_stalled(now)

    def _pump_stalled(self, now: int) -> None:
        stalled, self._stalled = self._stalled, {}
        for queue in stalled.values():
            self.pump(queue, now)

    def _of(self, home: int) -> Iterator[OutgoingQueue]:
        return (each for each in self._every() if each.home == home)
