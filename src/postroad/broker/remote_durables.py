"""What the durable subscriptions of other brokers want, and what waits here for them.

Rule 1: a message that enters here and matches the standing interest of another broker is stored here, in an outgoing
    queue for that broker, before its publisher gets a receipt. From there it is put to that broker, which matches it
    again and stores it for its durable subscriptions and retained topics (`outgoing_queues`, `receptions`).
Rule 2: so messages for durable subscriptions do not travel with the others, whatever the strategy: they wait as long as
    their broker is away, survive crashes at both ends, and are stored once.
Rule 3: the interest of a broker is stored with its outgoing queue, and counts until that broker says another one.
Rule 4: a message is accepted under the last state of which all that it adds is known here. What waits is put with the
    states under which it was accepted: that broker matches it against what its subscriptions wanted then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from postroad.broker.budgets import NANOSECONDS
from postroad.broker.channel_items import ChannelError, Informed
from postroad.broker.outgoing_queue import RemoteInterestTerms, is_remote_interest
from postroad.broker.standing_interest import MATCH_ALL, MAX_STANDING_BYTES, MAX_STANDING_ROWS
from postroad.broker.stored_queues import Discard
from postroad.errors import PostroadError
from postroad.matching import NO_BUDGET
from postroad.matching.encoding import decode_exact, encode_exact
from postroad.store import NO_CEILING
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from postroad.broker.channel_items import StandingPart
    from postroad.broker.core import Broker
    from postroad.broker.outgoing_queue import OutgoingQueue
    from postroad.broker.peers import Peers
    from postroad.broker.stored_queues import StoredQueues
    from postroad.matching.cover import Row

__all__ = ["RemoteDurables"]


class _RemoteInterest:
    """What one broker wants.

    Attributes:
        queue: what waits for it.
        slots: where its rows are in the index.
        encoded: the bytes of each row, for the store.
        changed: the store does not have the interest as it is.
        heard: the rows of a whole interest that is being said; None if none is. One that is too long is cut.
        heard_bytes: their bytes, as they were said.
        wants_all: it wants everything. Otherwise match-all may be in the index, and stands for other rows.
        left_out: rows that the index has no room for.
        is_endless: it wants more than is known here.
        bytes: of its rows, for the store.
        work: what its rows have added to the work of the index, about.
        state: the last state that was completed over this channel; None if none was.
        informed_of: that broker knows that nothing waits of earlier states than this one.
    """

    def __init__(self, queue: OutgoingQueue) -> None:
        self.queue = queue
        self.slots: dict[Row, int] = {}
        self.encoded: dict[Row, bytes] = {}
        self.changed = False
        self.heard: dict[Row, None] | None = None
        self.heard_bytes = self.bytes = 0
        self.wants_all = self.is_endless = False
        self.left_out: dict[Row, None] = {}
        self.work = self.informed_of = 0
        self.state: int | None = None

    @property
    def hears_too_much(self) -> bool:
        """Return whether the interest that is being said is longer than an honest one."""
        assert self.heard is not None
        return len(self.heard) > MAX_STANDING_ROWS or self.heard_bytes > 2 * MAX_STANDING_BYTES


class RemoteDurables:
    """What one broker knows of the durable subscriptions of others.

    Args:
        core: the broker.
        stored: its store.
        peers: the channels to other brokers.

    Attributes:
        slots: where all their rows are in the index.
        heard: the brokers whose whole interest was said to this process.
    """

    def __init__(self, core: Broker, stored: StoredQueues, peers: Peers) -> None:
        self._core = core
        self._stored = stored
        self._log = stored.log
        self._peers = peers
        self._of: dict[int, _RemoteInterest] = {}
        self.slots: set[int] = set()
        self.heard: set[int] = set()
        # States to confirm when the store has reached a position.
        self._pending: deque[tuple[int, int, Informed]] = deque()

    def __bool__(self) -> bool:
        return bool(self.slots)

    def restore(self) -> None:
        """Restore what an earlier process knew, and what it left for others."""
        for cursor in list(self._log.cursors.values()):
            if not is_remote_interest(cursor.terms):
                continue
            terms = msgspec.msgpack.decode(cursor.terms, type=RemoteInterestTerms)
            if not self._core.homes.is_listed(terms.broker):
                left = self._log.unread(cursor)
                self._stored.discard(Discard(cursor, 0, left, Loss.BROKER_LEFT, ends=True, home=terms.broker))
                continue
            remote = _RemoteInterest(self._peers.outgoing.restore_for_durables(terms, cursor))
            self._of[terms.broker] = remote
            for row in (row for each in terms.interest for row in decode_exact(each)):
                self._enter(remote, row)
            remote.changed = False

    # --- what others want --------------------------------------------------------------------------------------------

    def learn(self, source: int, item: StandingPart) -> None:
        """Learn a part of what a broker wants.

        Raises:
            ChannelError: the bytes are not an interest.
        """
        try:
            added, removed = (decode_exact(each) if each else () for each in (item.added, item.removed))
        except PostroadError as error:
            raise ChannelError(f"what broker {source} wants cannot be read: {error}") from error
        remote = self._of.get(source)
        if remote is None:
            if not added:
                if item.is_last:
                    self.heard.add(source)
                    self._inform(source, item.number, item.number)
                    self.proceed()
                return
            # What is accepted before this state is complete belongs to the one before.
            before = max(0, item.number - 1)
            terms = RemoteInterestTerms(broker=source, interest=[], states=((0, before, before),))
            queue = self._peers.outgoing.make_for_durables(terms)
            remote = self._of[source] = _RemoteInterest(queue)
        if item.is_whole and item.is_first:
            remote.heard, remote.heard_bytes = {}, 0
        if remote.heard is not None:
            remote.heard_bytes += len(item.added)
            if not remote.hears_too_much:
                remote.heard.update(dict.fromkeys(added))
        for row in added:
            self._enter(remote, row)
        if removed or item.is_last:
            # All additions of a state come before its removals.
            self._take_effect(remote, item.number)
        for row in removed:
            self._strike(remote, row)
        if item.is_last:
            self._complete(source, remote, item.number)

    def _take_effect(self, remote: _RemoteInterest, number: int) -> None:
        """Accept messages under a state from now on."""
        queue = remote.queue
        if queue.states.newest != number:
            place = self._log.boundary()
            queue.states.begin(place, number, self._rows(queue))
            # With a crash before this is safe, whatever is accepted from now on is lost as well: it comes later in the
            # store.
            self._store(remote)

    def _rows(self, queue: OutgoingQueue) -> tuple[int, int] | None:
        """Return the places of the first and the last row that wait or are under way; None if there is none."""
        cursor = queue.cursor
        placed = [rows.runs for rows in (cursor.waiting, cursor.in_flight) if rows.count]
        # Rows without a place yet come after all that have one.
        if self._log.unread(cursor) > cursor.waiting.count:
            return min([NO_CEILING, *(int(runs.starts[0]) for runs in placed)]), NO_CEILING
        if not placed:
            return None
        return min(int(runs.starts[0]) for runs in placed), max(int(runs.ends[-1]) - 1 for runs in placed)

    def _store(self, remote: _RemoteInterest) -> None:
        remote.changed, queue = False, remote.queue
        rows = list(remote.encoded.values())
        terms = RemoteInterestTerms(broker=queue.home, interest=rows, states=queue.states.spans)
        self._log.change_cursor(queue.cursor, msgspec.msgpack.encode(terms))

    def _complete(self, source: int, remote: _RemoteInterest, number: int) -> None:
        """All of a state is known: store it, and say so."""
        self.heard.add(source)
        if remote.heard is not None:
            remote.is_endless = remote.hears_too_much
            for row in [each for each in (*remote.slots, *remote.left_out) if each not in remote.heard]:
                self._strike(remote, row)
            remote.heard = None
        for row in list(remote.left_out):
            # There may be room for it by now.
            if not self._take_in(remote, row):
                break
        self._end_match_all(remote)
        if remote.changed:
            self._store(remote)
        remote.state, remote.informed_of = number, remote.queue.states.oldest
        self._inform(source, number, remote.informed_of)
        self.proceed()

    def _inform(self, source: int, state: int, oldest: int) -> None:
        """Say that a state is stored, and which is the oldest of what waits, when both are safe."""
        self._pending.append((self._log.position, source, Informed(state, min(oldest, state))))

    def _enter(self, remote: _RemoteInterest, row: Row) -> None:
        if row == MATCH_ALL:
            remote.wants_all = True
        if row in remote.slots or self._take_in(remote, row):
            return
        if row == MATCH_ALL:
            raise ChannelError(f"the index has no room for what broker {remote.queue.home} wants")
        # It would cost every message too much: that broker gets all, and finds out itself.
        if len(remote.left_out) < MAX_STANDING_ROWS:
            remote.left_out[row] = None
        else:
            remote.is_endless = True
        if MATCH_ALL not in remote.slots and not self._take_in(remote, MATCH_ALL):
            raise ChannelError(f"the index has no room for what broker {remote.queue.home} wants")

    def _take_in(self, remote: _RemoteInterest, row: Row) -> bool:
        """Add a row to the index; return whether there was room for it."""
        if row != MATCH_ALL and len(remote.slots) - (MATCH_ALL in remote.slots) >= MAX_STANDING_ROWS:
            return False
        most = NO_BUDGET if row == MATCH_ALL else self._core.limits.matching_ms * NANOSECONDS - remote.work
        encoded = encode_exact([row])
        if row != MATCH_ALL and remote.bytes + len(encoded) > MAX_STANDING_BYTES:
            return False
        index, before = self._core.index, self._core.index.work
        key = (remote.queue.cursor.number, row)
        try:
            slot = index.add_disjunction(key, (row[1],), row[0], max(0, most))
        except PostroadError:
            return False
        remote.work += index.work - before
        remote.left_out.pop(row, None)
        remote.slots[row] = slot
        remote.encoded[row] = encoded
        remote.bytes += len(encoded)
        remote.changed = True
        self.slots.add(slot)
        self._core.residents.place_at(slot, remote.queue.holder)
        return True

    def _strike(self, remote: _RemoteInterest, row: Row) -> None:
        """A row is not wanted any more. Match-all stays while it stands for others."""
        remote.left_out.pop(row, None)
        if row == MATCH_ALL:
            remote.wants_all = False
        elif row in remote.slots:
            self._take_out(remote, row)

    def _take_out(self, remote: _RemoteInterest, row: Row) -> None:
        """Remove a row from the index."""
        slot = remote.slots.pop(row)
        remote.bytes -= len(remote.encoded.pop(row))
        remote.changed = True
        before = self._core.index.work
        self._core.index.remove((remote.queue.cursor.number, row))
        remote.work = max(0, remote.work + self._core.index.work - before)
        self.slots.discard(slot)
        self._core.residents.clear_at(slot)

    def _end_match_all(self, remote: _RemoteInterest) -> None:
        """Remove match-all, unless it is wanted itself or stands for rows that are not in the index."""
        if MATCH_ALL in remote.slots and not (remote.wants_all or remote.left_out or remote.is_endless):
            self._take_out(remote, MATCH_ALL)

    # --- later -------------------------------------------------------------------------------------------------------

    def lost(self, source: int) -> None:
        """Handle the loss of a channel: a whole interest that was being said will be said again."""
        remote = self._of.get(source)
        if remote is not None:
            remote.heard = remote.state = None
        # Its next process counts its states from the beginning.
        self._pending = deque(each for each in self._pending if each[1] != source)

    def proceed(self) -> None:
        """Confirm what is safe by now, and end queues that nobody needs: the store has written something."""
        for source, remote in self._of.items():
            states = remote.queue.states
            there = self._rows(remote.queue)
            states.end_before(None if there is None else there[0])
            if remote.state is not None and states.oldest > remote.informed_of:
                remote.informed_of = states.oldest
                self._inform(source, remote.state, remote.informed_of)
        safe = 2**62 if self._log.position <= self._log.safe else self._log.safe
        while self._pending and self._pending[0][0] <= safe:
            _, source, informed = self._pending.popleft()
            self._peers.send(source, informed)
        for source, remote in list(self._of.items()):
            queue = remote.queue
            if not remote.slots and not queue.messages and not queue.cursor.rows and remote.heard is None:
                self._peers.outgoing.end_for_durables(queue)
                del self._of[source]
