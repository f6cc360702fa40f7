"""`PublisherOrder`: passes on what arrives over links in the order in which each publisher sent it.

Ids of one publisher ascend, so a row whose id is below one that was already delivered is *late*. Ids do not show which
row follows another, because ids of messages for other brokers lie between the two. So brokers mark where order is at
risk: a broker whose links or routes changed marks what it sends for a while (`OVERTAKING`), since rows sent before may
still be under way. Only marked rows wait, and rows of the same publisher after them; all others pass.

Rules, for each publisher:

1. A row below the highest that was delivered is late: it goes at once, with a mark for its subscriber.
2. A marked row waits. An unmarked row waits only if a marked one waits below it.
3. When a row has waited for `wait_ms`, it goes, and with it every row that waits below it.
4. Unmarked rows go with it too, up to the next marked row.
5. Rows that waited go in ascending order.

Bounds: waiting rows, by number and bytes; beyond that all of them go at once, and later ones are marked as late.
Publishers, by number; beyond that the most silent ones are forgotten, and an unknown publisher's row below their
highest id counts as late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.queues import copied_out
from postroad.kernels import kernel
from postroad.messages import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment

    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["MAX_PUBLISHERS", "MAX_WAITING", "MAX_WAITING_BYTES", "OrderStatistics", "PublisherOrder", "Released"]

# What waits at once: as much as may wait for a route. A fail-over takes 5 s at the usual heart-beats, so this is enough
# for 20,000 messages a second at one broker.
MAX_WAITING = 100_000
MAX_WAITING_BYTES = 64 * 1024 * 1024
# Publishers whose last id is known: 32 bytes each plus their slots, so 3 MB.
MAX_PUBLISHERS = 65_536
_FIRST_SIZE = 1_024
_GROWTH = 4

# The fate of a row.
_PASSES, _LATE, _WAITS = 0, 1, 2
# No row waits.
_NEVER = 2**62
_NONE_WAITS = np.uint64(2**64 - 1)


class OrderStatistics(NamedTuple):
    """Rows passed on late, rows passed on early for lack of room, rows that wait now, and their bytes."""

    late: int
    given_up: int
    waiting_now: int
    waiting_bytes_now: int


class Released(NamedTuple):
    """Rows that waited and now continue, those of each publisher in order, with their consignments."""

    batch: Batch
    consignments: list[Consignment]


class _Piece:
    """Rows that arrived together and wait. It holds its consignment until the last of them has gone."""

    __slots__ = ("batch", "consignment", "due", "left", "marked")

    def __init__(self, batch: Batch, marked: Flags, due: int, consignment: Consignment | None) -> None:
        self.batch = batch
        self.marked = marked
        self.due = due
        self.consignment = consignment
        self.left = np.arange(len(batch), dtype=np.int64)


class _Publishers:
    """Publisher -> the highest id (its second half) passed on, the lowest marked one that waits, how many rows wait."""

    __slots__ = ("count", "heads", "lasts", "lowest", "slots", "waiting")

    def __init__(self, size: int) -> None:
        self.heads = np.zeros(size, np.uint64)
        self.lasts = np.zeros(size, np.uint64)
        self.lowest = np.full(size, _NONE_WAITS, np.uint64)
        self.waiting = np.zeros(size, np.int64)
        # A power of two, at least twice the size: a search always meets a free slot.
        self.slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
        self.count = 0

    def keep(self, entries: Rows, size: int) -> _Publishers:
        """Return another table with these entries."""
        made = _Publishers(size)
        made.count = len(entries)
        for name in ("heads", "lasts", "lowest", "waiting"):
            getattr(made, name)[: made.count] = getattr(self, name)[entries]
        _enter(made.heads, made.count, made.slots)
        return made


class PublisherOrder:
    """The order of what arrives at one broker over links.

    Args:
        wait_ms: how long a row waits at most.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait = wait_ms
        self._publishers = _Publishers(_FIRST_SIZE)
        self._floor = 0  # of publishers that are not known (any more)
        self._pieces: list[_Piece] = []
        self._due = _NEVER  # when the first row has waited long enough
        self._waiting = self._bytes = self._late = self._given_up = 0

    @property
    def full(self) -> bool:
        """Return whether more waits than may; then release `everything`."""
        return self._waiting > MAX_WAITING or self._bytes > MAX_WAITING_BYTES

    def take(self, batch: Batch, marked: Flags, now: int, consignment: Consignment | None) -> tuple[Rows, Rows]:
        """Take rows that arrived; return those that continue now, in the order they came, and which are late."""
        fates = np.empty(len(batch), np.int8)
        done = 0
        while done < len(batch):
            table = self._publishers
            done, table.count = _judge(
                batch.ids,
                marked,
                done,
                np.uint64(self._floor),
                table.heads,
                table.lasts,
                table.lowest,
                table.waiting,
                table.slots,
                table.count,
                fates,
            )
            if done < len(batch):
                self._make_room()
        waits = np.flatnonzero(fates == _WAITS)
        if len(waits):
            self._keep(batch, waits, marked[waits], now + self._wait, consignment)
        late = np.flatnonzero(fates == _LATE)
        self._late += len(late)
        return np.flatnonzero(fates != _WAITS), late

    def release(self, now: int, *, everything: bool = False) -> Released | None:
        """Return what continues now, because time has passed or there is no room for what waits; None for nothing.

        Each of the consignments is held once more, for the delivery of the rows.
        """
        if not self._pieces or not (everything or now >= self._due):
            return None
        pieces = self._pieces
        ids = np.concatenate([piece.batch.ids[piece.left] for piece in pieces])
        due = np.repeat(np.array([piece.due for piece in pieces]), [len(piece.left) for piece in pieces])
        marked = np.concatenate([piece.marked[piece.left] for piece in pieces])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        goes = np.empty(len(ids), np.bool_)
        table = self._publishers
        _settle(
            np.ascontiguousarray(ids[order]),
            marked[order],
            due[order],
            _NEVER if everything else now,
            table.heads,
            table.lasts,
            table.lowest,
            table.waiting,
            table.slots,
            goes,
        )
        if everything:
            self._given_up += int(np.count_nonzero(due > now))
        picked = np.zeros(len(ids), np.bool_)
        picked[order[goes]] = True
        return self._released(picked, order[goes])

    def statistics(self) -> OrderStatistics:
        """Return what it did and what waits."""
        return OrderStatistics(self._late, self._given_up, self._waiting, self._bytes)

    def _keep(self, batch: Batch, rows: Rows, marked: Flags, due: int, consignment: Consignment | None) -> None:
        # A copy: a waiting row must not keep the whole read alive that it came in.
        piece = _Piece(copied_out(batch, rows), marked, due, consignment)
        self._pieces.append(piece)
        self._waiting += len(rows)
        self._bytes += piece.batch.buffer.nbytes
        self._due = min(self._due, due)
        if consignment is not None:
            consignment.hold()

    def _released(self, picked: Flags, order: Rows) -> Released | None:
        """Take rows out of their pieces; `picked` and `order` count the rows that waited, piece by piece."""
        batches, consignments, start = [], [], 0
        places = np.empty(len(picked), np.int64)
        places[np.flatnonzero(picked)] = np.arange(int(np.count_nonzero(picked)))
        for piece in self._pieces:
            chosen = picked[start : start + len(piece.left)]
            start += len(piece.left)
            if not chosen.any():
                continue
            batches.append(piece.batch.take(piece.left[chosen]))
            piece.left = piece.left[~chosen]
            if piece.consignment is not None:
                consignments.append(piece.consignment)
                if len(piece.left):
                    piece.consignment.hold()
        for piece in self._pieces:
            self._bytes -= 0 if len(piece.left) else piece.batch.buffer.nbytes
        self._pieces = [piece for piece in self._pieces if len(piece.left)]
        self._waiting -= len(order)
        self._due = min((piece.due for piece in self._pieces), default=_NEVER)
        return Released(Batch.concatenate(batches).take(places[order]), consignments) if batches else None

    def _make_room(self) -> None:
        """Grow; at the bound forget half of the publishers for whom nothing waits, the most silent ones."""
        table = self._publishers
        every = np.arange(table.count, dtype=np.int64)
        if len(table.heads) < MAX_PUBLISHERS:
            self._publishers = table.keep(every, min(MAX_PUBLISHERS, len(table.heads) * _GROWTH))
            return
        silent = every[table.waiting[: table.count] == 0]
        silent = silent[np.argsort(table.lasts[silent], kind="stable")][: max(1, len(silent) // 2)]
        if not len(silent):
            # Rows of every publisher wait, so the bound on waiting rows bounds the publishers too: grow.
            self._publishers = table.keep(every, 2 * len(table.heads))
            return
        self._floor = max(self._floor, int(table.lasts[silent].max()))
        kept = np.ones(table.count, np.bool_)
        kept[silent] = False
        self._publishers = table.keep(every[kept], len(table.heads))


@kernel("int64(uint64, uint64[::1], int32[::1])", allocates=False)
def _find(head: np.uint64, heads: NDArray[np.uint64], slots: NDArray[np.int32]) -> int:
    """Return the slot that holds a publisher, or the free one where it belongs.

    `slots` has 2^n entries, more than there are publishers, so the mask keeps every slot in range and the search ends;
    an entry that is not -1 is below the count of its table.
    """
    value = head * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((value ^ (value >> np.uint64(32))) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0 and heads[slots[slot]] != head:
        slot = (slot + 1) & (len(slots) - 1)
    return int(slot)


@kernel("void(uint64[::1], int64, int32[::1])", allocates=False)
def _enter(heads: NDArray[np.uint64], count: int, slots: NDArray[np.int32]) -> None:
    """Enter the first `count` publishers, all different, into free slots."""
    for entry in range(count):
        slots[_find(heads[entry], heads, slots)] = entry


@kernel(
    "UniTuple(int64, 2)(uint64[:, ::1], boolean[::1], int64, uint64, uint64[::1], uint64[::1], uint64[::1], int64[::1],"
    " int32[::1], int64, int8[::1])",
    allocates=False,
)
def _judge(
    ids: NDArray[np.uint64],
    marked: Flags,
    start: int,
    floor: np.uint64,
    heads: NDArray[np.uint64],
    lasts: NDArray[np.uint64],
    lowest: NDArray[np.uint64],
    waiting: NDArray[np.int64],
    slots: NDArray[np.int32],
    count: int,
    fates: NDArray[np.int8],
) -> tuple[int, int]:
    """Decide the fate of rows from `start` on; return the row where the table was full (or the end), and its entries.

    `count` is at most the size of the arrays, so every number below it is an index of each.
    """
    for row in range(start, len(ids)):
        head, tail = ids[row, 0], ids[row, 1]
        slot = _find(head, heads, slots)
        if slots[slot] < 0:
            if count == len(heads):
                return row, count
            heads[count], lasts[count], lowest[count], waiting[count] = head, floor, _NONE_WAITS, 0
            slots[slot] = count
            count += 1
        entry = slots[slot]
        if tail < lasts[entry]:
            fates[row] = _LATE
        elif marked[row] or tail > lowest[entry]:
            fates[row] = _WAITS
            waiting[entry] += 1
            if marked[row]:
                lowest[entry] = min(lowest[entry], tail)
        else:
            fates[row] = _PASSES
            lasts[entry] = tail
    return len(ids), count


@kernel(
    "void(uint64[:, ::1], boolean[::1], int64[::1], int64, uint64[::1], uint64[::1], uint64[::1], int64[::1],"
    " int32[::1], boolean[::1])",
    allocates=False,
)
def _settle(
    ids: NDArray[np.uint64],
    marked: Flags,
    due: Rows,
    now: int,
    heads: NDArray[np.uint64],
    lasts: NDArray[np.uint64],
    lowest: NDArray[np.uint64],
    waiting: NDArray[np.int64],
    slots: NDArray[np.int32],
    goes: Flags,
) -> None:
    """Decide which of the waiting rows go (`goes`); each of their publishers is in the table.

    Rows are sorted by publisher, then by id: [first, end) are those of one publisher, and those that go are a prefix of
    them. By the entry of a publisher, `lasts` is the highest id that went, `lowest` the lowest that still waits, and
    `waiting` how many do.
    """
    first = 0
    while first < len(ids):
        end = first
        overdue = first
        while end < len(ids) and ids[end, 0] == ids[first, 0]:
            if due[end] <= now:
                overdue = end + 1
            end += 1
        # All up to the last that has waited long enough, and then unmarked ones, up to the first marked one.
        while overdue > first and overdue < end and not marked[overdue]:
            overdue += 1
        for row in range(first, end):
            goes[row] = row < overdue
        if overdue > first:
            entry = slots[_find(ids[first, 0], heads, slots)]
            lasts[entry] = max(lasts[entry], ids[overdue - 1, 1])
            lowest[entry] = ids[overdue, 1] if overdue < end else _NONE_WAITS
            waiting[entry] -= overdue - first
        first = end
