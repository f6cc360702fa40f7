"""Rows of subscriptions in the store: those of durable ones, and what slow ones cannot take now.

The store writes outside the loop. Rows that are appended here can be delivered once they are safe, and rows that have
waited long are read back first. A subscription whose next row is not there yet is *blocked*; when rows were written or
read, the driver says so (`Broker.stored`), and the subscription continues.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.given_up import GivenUp
from postroad.broker.marks import with_redelivery_marks
from postroad.broker.store_backlog import StoreBacklog
from postroad.messages.columns import FLAGS, MAYBE_DUPLICATE
from postroad.store import TIGHT_BYTES, Runs, StoreFullError, intersect, stored_bytes
from postroad.tracking.reasons import Loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.sessions import Subscription
    from postroad.messages import Batch
    from postroad.store import Cursor, Log, Taken
    from postroad.tracking import Recorder

__all__ = ["Discard", "StoredQueues", "TakenRows"]

# Space that the store and its disk keep free for acknowledgements and for publishers that are about to be paused.
RESERVE_BYTES = TIGHT_BYTES
# Of that, what puts of other brokers leave. They may use more of it than publishers here, or brokers whose stores are
# full of messages for each other would wait for each other for ever: taking a put is what makes room at the other end.
PUT_RESERVE_BYTES = RESERVE_BYTES // 4
# Rows that are discarded are read first, for the record; this many in one turn.
DISCARDED_PER_TURN = 20_000
# What taking up a discard counts, besides its rows: it takes some 100 microseconds, a row one or two.
DISCARD_ROWS = 50
# How much to shed at once from a subscription that is over its limit and may drop its oldest.
_SHED_SHARE = 8


NO_IDS: NDArray[np.bytes_] = np.empty(0, "S16")


def id_texts(ids: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Return ids as one column that can be sorted: the 16 bytes of each."""
    # numpy cuts off a zero byte at the end, but on both sides of a comparison, and no two ids become equal, because all
    # have 16 bytes.
    return np.ascontiguousarray(ids.astype(">u8")).view("S16").reshape(-1)


class TakenRows(NamedTuple):
    """Rows to deliver.

    Attributes:
        batch: where they are.
        rows: which ones.
        places: their places in the store, one for each.
        again: which of them were, or may have been, delivered before; None for none.
        stored: when they were stored, in ms.
    """

    batch: Batch
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    again: NDArray[np.bool_] | None
    stored: int


class Discard:
    """Rows of a cursor that no subscriber will get; each is recorded.

    Args:
        cursor: whose.
        subscription: the number in the record.
        left: how many, from the oldest on.
        reason: why, for the record.
        ends: the cursor ends when they are gone.
        owner: the subscription that waits until they are gone, if it continues.
        among: which rows, if not the oldest: what is in flight meanwhile and comes back stays.
        home: the broker they were for; 0 for a subscription of this one.
    """

    __slots__ = ("among", "cursor", "ends", "home", "left", "owner", "reason", "subscription")

    def __init__(
        self,
        cursor: Cursor,
        subscription: int,
        left: int,
        reason: str,
        ends: bool,
        owner: Subscription | None = None,
        among: Runs | None = None,
        home: int = 0,
    ) -> None:
        self.cursor = cursor
        self.subscription = subscription
        self.left = left
        self.reason = reason
        self.ends = ends
        self.owner = owner
        self.among = among
        self.home = home


class StoredQueues:
    """What subscriptions have in the store.

    Args:
        log: the store.
        recorder: keeps the record.

    Attributes:
        blocked: subscriptions that wait for the store, by number.
        full: subscriptions that keep publishers waiting because of the store, by number.
        shed: rows that were given up, for any reason.
        record: the number of the record that holds the last rows.
        recent: ids that an earlier process has stored, sorted: neighbours may send them again.
        repeated: how many such rows were sent again, and left out.
        lack: why rows of the last batch that a crash must not lose were not stored; empty if they were.
        backlog: what arrived over links and waits until the store has room.
        given_up: rows that were given up and are not on record yet.
        storing: rows of the current batch that are to be stored.
        on_follow: called when rows were delivered to a subscription whose history is being read.
    """

    def __init__(self, log: Log, recorder: Recorder) -> None:
        self.log = log
        self._recorder = recorder
        self.blocked: dict[int, Subscription] = {}
        self.full: dict[int, Subscription] = {}
        self.backlog = StoreBacklog()
        self.given_up = GivenUp(log)
        self.storing: list[tuple[Subscription, NDArray[np.int64]]] = []
        self._consigned: deque[tuple[int, Consignment]] = deque()
        self._discards: deque[Discard] = deque()
        # How many of them a cursor has, by its number: needed for every row that is delivered.
        self._discarding: Counter[int] = Counter()
        self.shed = self.record = 0
        self.recent = NO_IDS
        self.repeated = 0
        self.lack = ""
        self.on_follow: Callable[[Subscription], None] | None = None

    def remember(self, ids: NDArray[np.uint64]) -> None:
        """Remember ids that an earlier process has stored."""
        self.recent = np.unique(id_texts(ids))

    def forget(self) -> None:
        """Forget these ids: nobody sends them again."""
        self.recent = NO_IDS

    def repeats(self, batch: Batch) -> NDArray[np.bool_] | None:
        """Return which rows from a link an earlier process has stored; None for none.

        Only rows that a neighbour has marked as possibly sent before are looked up.
        """
        again = np.flatnonzero(batch.envelopes[:, FLAGS] & MAYBE_DUPLICATE)
        if not len(again):
            return None
        mask = np.zeros(len(batch), np.bool_)
        mask[again] = self.stored_before(batch.ids[again])
        return mask if mask.any() else None

    def stored_before(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which ids an earlier process has stored recently."""
        if not len(self.recent):
            return np.zeros(len(ids), np.bool_)
        wanted = id_texts(ids)
        at = np.minimum(np.searchsorted(self.recent, wanted), len(self.recent) - 1)
        return np.asarray(self.recent[at] == wanted)

    # --- storing -----------------------------------------------------------------------------------------------------

    def store(self, subscription: Subscription, rows: NDArray[np.int64]) -> None:
        """Store rows of the current batch for a subscription; `flush` does it for all subscriptions at once."""
        if subscription.cursor is None:
            subscription.cursor = self.log.open_cursor(subscription.number, durable=False)
        self.storing.append((subscription, rows))

    def flush(self, batch: Batch, now: int, consignment: Consignment | None) -> list[Subscription]:
        """Store the batch once for all who want rows of it; return the subscriptions that have too much now.

        If there is no room for it, rows of a consignment wait until there is; other rows are shed, and `lack` says so
        if that matters to the sender.
        """
        storing, self.storing, self.lack = self.storing, [], ""
        if self.backlog and consignment is not None:
            # Rows of the same publishers wait for room, and come first.
            storing = self._postpone(batch, storing, consignment)
            if not storing:
                return []
        matches = [(each.cursor, rows) for each, rows in storing if each.cursor is not None]
        try:
            position = self.record = self.log.append(batch, matches, now)
        except StoreFullError as error:
            if consignment is not None and stored_bytes(batch) <= self.log.settings.max_bytes // 2:
                storing = self._postpone(batch, storing, consignment)
            self._shed_unstored(batch, storing, str(error), now)
            return []
        queued = [(subscription, rows) for subscription, rows in storing if not subscription.retains]
        for subscription, rows in queued:
            subscription.waiting.stored += len(rows)
            self.block(subscription)
        if consignment is not None:
            # The neighbour may forget it once a crash here would not lose it.
            consignment.hold()
            self._consigned.append((position, consignment))
        return [subscription for subscription, _ in queued if self.is_full(subscription)]

    def _postpone(
        self, batch: Batch, storing: list[tuple[Subscription, NDArray[np.int64]]], consignment: Consignment
    ) -> list[tuple[Subscription, NDArray[np.int64]]]:
        """Let rows wait for room that a crash must not lose; returns the others."""
        lasting = [each for each in storing if each[0].cursor is not None and each[0].cursor.durable]
        if lasting:
            self.backlog.push(batch, lasting, consignment)
        return [each for each in storing if each[0].cursor is None or not each[0].cursor.durable]

    def _shed_unstored(
        self, batch: Batch, storing: list[tuple[Subscription, NDArray[np.int64]]], reason: str, now: int
    ) -> None:
        """Shed rows that there is no room for."""
        if any(each.cursor is not None and each.cursor.durable for each, _ in storing):
            self.lack = reason
        for subscription, rows in storing:
            if subscription.retains:
                continue
            subscription.shed += len(rows)
            self.shed += len(rows)
            self._recorder.shed(batch, rows, subscription.number, Loss.STORE_FULL, now)
            self._close_if_empty(subscription)

    def _store_backlog(self, now: int) -> None:
        """Store what waited for room, as far as there is some."""
        for position, (batch, matches, consignment), gone in self.backlog.store(self.log, now, self._has_ended):
            for subscription, rows in gone:
                if not subscription.retains:
                    self.shed += len(rows)
                    self._recorder.shed(batch, rows, subscription.number, Loss.SUBSCRIPTION_ENDED, now)
            for subscription, rows in matches:
                if not subscription.retains:
                    subscription.waiting.stored += len(rows)
                    self.block(subscription)
            # Held since it waits; released when a crash would not lose the rows.
            self._consigned.append((position, consignment))

    def _has_ended(self, subscription: Subscription) -> bool:
        cursor = subscription.cursor
        if cursor is None or self.log.cursors.get(cursor.number) is not cursor:
            return True
        return any(each.ends and each.cursor is cursor for each in self._discards)

    def is_full(self, subscription: Subscription) -> bool:
        """Return whether a subscription has as much in the store as it may, or the store is full."""
        return subscription.cursor is not None and (self.is_over(subscription) or self.log.room.left < RESERVE_BYTES)

    def is_over(self, subscription: Subscription) -> bool:
        """Return whether a subscription has as much in the store as it may."""
        cursor = subscription.cursor
        return cursor is not None and cursor.bytes > self.log.settings.subscription_bytes

    @property
    def shortage(self) -> str:
        """Return why publishers are paused or refused though the disk works; empty if it has enough room."""
        return self.log.room.lack_on_disk(RESERVE_BYTES)

    @property
    def refusal(self) -> str:
        """Return why nothing more should be stored; empty while all is well."""
        return self.log.trouble or self.log.room.lack(RESERVE_BYTES // 2)

    def put_refusal(self, batch: Batch, rows: NDArray[np.int64] | None = None) -> str:
        """Return why rows that another broker puts here, all by default, cannot be stored now; empty if they can."""
        return self.log.trouble or self.log.room.lack(PUT_RESERVE_BYTES + stored_bytes(batch, rows))

    def refusal_of(self, batch: Batch, rows: NDArray[np.int64] | None = None) -> str:
        """Return why rows of a batch, all by default, cannot be stored now; empty if they can."""
        return self.log.trouble or self.log.room.lack(max(RESERVE_BYTES // 2, stored_bytes(batch, rows)))

    # --- delivery ----------------------------------------------------------------------------------------------------

    def pull(self, subscription: Subscription, most: int) -> list[TakenRows]:
        """Return the next rows of a subscription; it is blocked if there are fewer than wanted and more to come."""
        cursor = subscription.cursor
        assert cursor is not None
        if self.is_discarding(cursor):
            # Rows being given up come first, or later rows would be given up in their place.
            self.block(subscription)
            return []
        pulled = self.log.pull(cursor, most)
        taken = [
            TakenRows(with_redelivery_marks(each), each.rows, each.places, each.tried, each.stored) for each in pulled
        ]
        count = sum(len(each.places) for each in taken)
        subscription.waiting.stored -= count
        if subscription.replays and self.on_follow is not None:
            self.on_follow(subscription)
        if count < most:
            # Damaged rows wait no longer.
            subscription.waiting.stored = self.log.unread(cursor)
            if subscription.waiting.stored:
                self.block(subscription)
            else:
                self._close_if_empty(subscription)
        return taken

    def settle(self, subscription: Subscription, places: NDArray[np.int64]) -> None:
        """Settle rows of a subscription."""
        if subscription.cursor is not None:
            self.log.settle(subscription.cursor, places)
            self._close_if_empty(subscription)

    def _close_if_empty(self, subscription: Subscription) -> None:
        cursor = subscription.cursor
        if cursor is None or cursor.durable or subscription.replays:
            return
        if not subscription.waiting.stored:
            self.log.end_cursor(cursor)
            subscription.cursor, subscription.stores = None, False
            self.blocked.pop(subscription.number, None)

    def block(self, subscription: Subscription) -> None:
        """Let a subscription wait until something is written or read."""
        subscription.blocked = True
        self.blocked[subscription.number] = subscription

    def unblock(self, subscription: Subscription) -> None:
        """Let a subscription continue: there may be new rows for it."""
        subscription.blocked = False
        self.blocked.pop(subscription.number, None)
        if subscription.cursor is not None:
            subscription.waiting.stored = self.log.unread(subscription.cursor)
            self._close_if_empty(subscription)

    def take_unblocked(self) -> list[Subscription]:
        """Return those that were blocked and may continue: something was written or read."""
        unblocked, self.blocked = list(self.blocked.values()), {}
        for subscription in unblocked:
            subscription.blocked = False
        return unblocked

    # --- giving up ---------------------------------------------------------------------------------------------------

    def ended(self, subscription: Subscription, reason: str) -> None:
        """Discard what a subscription that is over, and not durable, has in the store."""
        cursor = subscription.cursor
        self.blocked.pop(subscription.number, None)
        self.full.pop(subscription.number, None)
        if cursor is not None and not cursor.durable:
            left, subscription.waiting.stored, subscription.cursor = subscription.waiting.stored, 0, None
            self.discard(Discard(cursor, subscription.number, left, reason, ends=True))

    def discard(self, discard: Discard) -> None:
        """Give up rows; this takes as long as reading them."""
        self._discards.append(discard)
        self._discarding[discard.cursor.number] += 1
        self.log.wake()

    def purge(self, subscription: Subscription, reason: str) -> int:
        """Give up all that waits for a subscription, as an operator wants it; returns how many rows that is."""
        cursor = subscription.cursor
        assert cursor is not None
        among = self.waiting_rows(cursor)
        subscription.waiting.stored = left = among.size
        self.discard(Discard(cursor, cursor.number, left, reason, ends=False, owner=subscription, among=among))
        return left

    def waiting_rows(self, cursor: Cursor) -> Runs:
        """Return all rows that wait for a cursor now."""
        # Those of the open record get their places.
        self.log.boundary()
        return Runs(*(each.copy() for each in cursor.waiting.runs))

    def shed_oldest(self, subscription: Subscription) -> None:
        """Shed the oldest rows of a subscription that is over its limit."""
        cursor = subscription.cursor
        # After one round of this its consumer has its turn, or with much coming in it would never get anything. A fence
        # of another kind does not count: a dead-letter queue has a new one with each message that comes to it.
        if cursor is not None and not self.is_discarding(cursor) and cursor.given_up <= self.log.safe:
            unread, over = self.log.unread(cursor), cursor.bytes - self.log.settings.subscription_bytes
            # At least the excess: more may come between two looks than a share of what waits.
            left = 1 + max(unread // _SHED_SHARE, unread * max(0, over) // max(1, cursor.bytes))
            home = 0 if subscription.outgoing is None else subscription.outgoing.home
            number = 0 if home else subscription.number
            self.discard(Discard(cursor, number, left, Loss.STORE_FULL, ends=False, owner=subscription, home=home))

    def proceed(self, now: int) -> None:
        """Release what came over links, and discard rows: something was written or read."""
        self.given_up.proceed(now)
        if self.backlog:
            self._store_backlog(now)
        safe = self.log.safe
        while self._consigned and self._consigned[0][0] <= safe:
            self._consigned.popleft()[1].release()
        if self._discards:
            self._proceed_discards(now)

    def _proceed_discards(self, now: int) -> None:
        """Give up as many rows as one turn takes; the cursors that it does not reach are first in the next one."""
        if self.given_up.is_crowded:
            # The disk is behind: the next commit continues this.
            return
        room, left = DISCARDED_PER_TURN, []
        while self._discards and room > 0:
            discard = self._discards.popleft()
            count = self._discarded(discard, now, room)
            room -= DISCARD_ROWS + count
            if self._is_over(discard):
                self._forget_discard(discard.cursor.number)
            else:
                left.append(discard)
        if self._discards:
            self.log.wake()
        self._discards.extend(left)

    @property
    def discards(self) -> int:
        """Return how many cursors have rows that are being given up."""
        return len(self._discards)

    def is_discarding(self, cursor: Cursor) -> bool:
        """Return whether rows of a cursor are being given up."""
        return cursor.number in self._discarding

    def _forget_discard(self, cursor: int) -> None:
        self._discarding[cursor] -= 1
        if not self._discarding[cursor]:
            del self._discarding[cursor]

    def _discarded(self, discard: Discard, now: int, room: int) -> int:
        """Give up up to so many of its rows that are in memory; return how many."""
        before = discard.left
        while discard.left > 0 and room > 0:
            taken = self._take_discarded(discard, min(discard.left, room))
            for each in taken:
                self.log.settle(discard.cursor, each.places)
                self._note_given_up(discard, each, now)
                discard.left -= len(each.places)
                room -= len(each.places)
                self.shed += len(each.places)
                if discard.owner is not None:
                    discard.owner.waiting.stored -= len(each.places)
                    discard.owner.shed += len(each.places)
            if not taken:
                break
        if discard.owner is not None and discard.owner.replays and self.on_follow is not None:
            self.on_follow(discard.owner)
        return before - discard.left

    def _note_given_up(self, discard: Discard, taken: Taken, now: int) -> None:
        def record(batch: Batch, rows: NDArray[np.int64], at: int) -> None:
            if discard.home:
                self._recorder.dropped(batch, rows, discard.home, discard.reason, at)
            else:
                self._recorder.shed(batch, rows, discard.subscription, discard.reason, at)

        self.given_up.note(discard.cursor, taken.batch, taken.rows, record, now)

    def _is_over(self, discard: Discard) -> bool:
        """Return whether nothing of it is left; then its cursor ends, if it is to."""
        if discard.left > 0 and self._has_more(discard):
            return False
        if discard.ends:
            self.log.end_cursor(discard.cursor)
        else:
            # A crash may bring these rows back, so no later one goes out before they are gone for good.
            self.log.fence(discard.cursor)
            discard.cursor.given_up = discard.cursor.fence if discard.cursor.durable else 0
        return True

    def _take_discarded(self, discard: Discard, most: int) -> list[Taken]:
        """Return the next rows of those that are given up, as far as they are in memory."""
        if discard.among is None:
            return self.log.pull(discard.cursor, most)
        among = intersect(discard.among, discard.cursor.waiting.runs)
        taken = self.log.peek(discard.cursor, among, most)
        for each in taken:
            self.log.take(discard.cursor, each.places)
        return taken

    def _has_more(self, discard: Discard) -> bool:
        """Return whether rows of it are left: some may have turned out to be damaged."""
        if discard.among is None:
            return self.log.unread(discard.cursor) > 0
        return len(intersect(discard.among, discard.cursor.waiting.runs).starts) > 0
