"""`SeenIds`: the last ids from each origin, so that nothing is delivered twice.

Exact: an id is compared whole. Bounded: for each origin (the broker in the id) it remembers at least the last `window`
ids and at most twice as many, in two tables; when the newer one is full, the older one is forgotten. A copy that comes
later than that is not recognised, and is delivered again.

A row is remembered when it is first seen, marked or not: the copy that was sent again can overtake the one it repeats.
To enter an id means to look for it, so unmarked rows are compared as well, for one more look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import device, kernel
from postroad.routing.errors import RoutingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.routing.sets import Flags, Integers, Words

    Slots = NDArray[np.int32]

__all__ = ["DEFAULT_WINDOW", "SeenIds", "WindowStatistics"]

# At 100,000 messages/s from one origin this is a sixth of a second at least: longer than a resend after a reconnect on
# a local network. Plans for long links say more.
DEFAULT_WINDOW = 16_384
# Tables begin small: most origins are quiet.
_FIRST_SIZE = 64
_GROWTH = 4
# All tables together: some 130 MB. Beyond it tables stop growing, and each origin's window is as long as it has become.
MAX_REMEMBERED = 2**22

_BROKER = np.uint64(0xFFFFFFFF)


class WindowStatistics(NamedTuple):
    """Origins known, places in their tables, ids refused as seen before, ids forgotten for want of room."""

    origins: int
    places: int
    refused: int
    forgotten: int


class _Table:
    """Up to `size` ids, found by hash."""

    __slots__ = ("count", "ids", "slots")

    def __init__(self, size: int) -> None:
        self.ids = np.zeros((size, 2), np.uint64)
        self.slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
        self.count = 0


_EMPTY = _Table(0)


class SeenIds:
    """Remembers ids by origin."""

    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        if window < _FIRST_SIZE:
            raise RoutingError(f"a window has {_FIRST_SIZE} ids or more, not {window}")
        self._window = window
        self._tables: dict[int, tuple[_Table, _Table]] = {}
        self._places = 0
        self._refused = 0
        self._forgotten = 0

    def admit(self, ids: Words, rows: Integers) -> Flags:
        """Whether each of the rows is new, and remember those that are. Equal ids in one call: the first is new."""
        fresh = np.empty(len(rows), np.bool_)
        if not len(rows):
            return fresh
        chosen = np.ascontiguousarray(ids[rows])
        origins = chosen[:, 0] & _BROKER
        if (origins == origins[0]).all():
            self._admit_origin(int(origins[0]), chosen, fresh)
        else:
            for origin in np.unique(origins).tolist():
                places = np.flatnonzero(origins == origin)
                answer = np.empty(len(places), np.bool_)
                self._admit_origin(origin, chosen[places], answer)
                fresh[places] = answer
        self._refused += len(fresh) - int(np.count_nonzero(fresh))
        return fresh

    def statistics(self) -> WindowStatistics:
        """What it holds and what it did."""
        return WindowStatistics(len(self._tables), self._places, self._refused, self._forgotten)

    def _admit_origin(self, origin: int, ids: Words, fresh: Flags) -> None:
        older, newer = self._tables.get(origin) or self._begin(origin)
        done = 0
        while True:
            done, newer.count = _admit(ids, done, older.ids, older.slots, newer.ids, newer.slots, newer.count, fresh)
            if done == len(ids):
                return
            older, newer = self._make_room(origin)

    def _begin(self, origin: int) -> tuple[_Table, _Table]:
        # Whoever is linked may name any origin; those that came first are forgotten first.
        while self._tables and self._places + _FIRST_SIZE > MAX_REMEMBERED:
            tables = self._tables.pop(next(iter(self._tables)))
            self._places -= sum(len(table.ids) for table in tables)
            self._forgotten += sum(table.count for table in tables)
        self._tables[origin] = (_EMPTY, _Table(_FIRST_SIZE))
        self._places += _FIRST_SIZE
        return self._tables[origin]

    def _make_room(self, origin: int) -> tuple[_Table, _Table]:
        """Forget the older table and begin a new one; but as long as the window is not reached, grow instead."""
        older, newer = self._tables[origin]
        size = len(newer.ids)
        larger = min(self._window, size * _GROWTH)
        if larger > size and self._places + larger <= MAX_REMEMBERED:
            grown = _Table(larger)
            ignored = np.empty(size, np.bool_)
            _, grown.count = _admit(newer.ids, 0, _EMPTY.ids, _EMPTY.slots, grown.ids, grown.slots, 0, ignored)
            self._places += larger - size
            self._tables[origin] = (older, grown)
        else:
            self._forgotten += older.count
            self._places += size - len(older.ids)
            self._tables[origin] = (newer, _Table(size))
        return self._tables[origin]


@device
def _find(head: np.uint64, tail: np.uint64, ids: Words, slots: Slots) -> int:
    """The slot that holds an id, or the free one where it belongs."""
    value = (head * np.uint64(0x9E3779B97F4A7C15)) ^ tail
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    value ^= value >> np.uint64(32)
    slot = np.int64(value & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        entry = slots[slot]
        if ids[entry, 1] == tail and ids[entry, 0] == head:
            break
        slot = (slot + 1) & (len(slots) - 1)
    return int(slot)


@kernel(
    "UniTuple(int64, 2)(uint64[:, ::1], int64, uint64[:, ::1], int32[::1], uint64[:, ::1], int32[::1], int64,"
    " boolean[::1])",
    allocates=False,
)
def _admit(
    ids: Words,
    start: int,
    older_ids: Words,
    older_slots: Slots,
    newer_ids: Words,
    newer_slots: Slots,
    count: int,
    fresh: Flags,
) -> tuple[int, int]:
    """Enter ids from `start` on; returns the row where the table was full (or the end), and the entries in it."""
    for row in range(start, len(ids)):
        head = ids[row, 0]
        tail = ids[row, 1]
        fresh[row] = False
        if older_slots[_find(head, tail, older_ids, older_slots)] >= 0:
            continue
        slot = _find(head, tail, newer_ids, newer_slots)
        if newer_slots[slot] >= 0:
            continue
        if count == len(newer_ids):
            return row, count
        newer_ids[count, 0] = head
        newer_ids[count, 1] = tail
        newer_slots[slot] = count
        count += 1
        fresh[row] = True
    return len(ids), count
