"""`SeenIds`: the ids that were delivered here, so that nothing is delivered twice.

Ids of one publisher ascend, and those of one moment are next to each other: (publisher, broker), then (time, counter).
So they are kept as *blocks*: the first half of the id, the second half without its last six bits, and 64 bits that say
which of the 64 ids there were seen. A publisher that sends many takes a quarter of a byte for an id, one that sends a
message now and then takes a block for each.

For each origin (the broker in the id) there are two tables of blocks. When the newer one is full it grows, as long as
it is younger than `REMEMBER_MS` and there is room; otherwise the older one is forgotten, the newer one takes its place,
and a new one begins. So what came within `REMEMBER_MS` is known, unless there is no room.

What was forgotten is not guessed. The floor of a publisher is the first id that no forgotten one reaches (`Floors`). An
id below it that is not in the tables may have been here before: it counts as new and as *doubtful*, and the code that
delivers it says so. It is remembered from then on.

A row is remembered when it is first seen, marked or not: the copy that was sent again can overtake the one it repeats.
To enter an id means to look for it, so unmarked rows are compared as well, for one more look.

Entries of `slots` are -1 or the place of a block, below the count of its table, and slots are masked by their number;
at most half of them are taken, so every search ends. Publishers with ids of their own, and neighbours, choose ids:
the hash is keyed by a *secret*, so that no client can choose many that collide. Results do not depend on it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import Int, device, fold_product, kernel
from postroad.messages.id_columns import ORIGIN
from postroad.routing.errors import RoutingError
from postroad.routing.floors import HIGHEST, MAX_PUBLISHERS, Floors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.routing.destinations import Flags, Integers, Words

    Slots = NDArray[np.int32]
    Halves = NDArray[np.uint64]

__all__ = ["DEFAULT_WINDOW", "FIXED_SECRET", "REMEMBER_MS", "Admitted", "SeenIds", "WindowStatistics", "all_fresh"]

# How long ids are remembered at least, room permitting. A copy that is late waited for a way at some broker, 10 s at
# each at most, or at a broker that was frozen; a minute covers six waits, or a freeze of a minute.
REMEMBER_MS = 60_000
# Blocks remembered for each origin whatever their age, so that a quiet network remembers far longer than a minute.
DEFAULT_WINDOW = 16_384
# Tables begin small: most origins are quiet.
_FIRST_SIZE = 64
_GROWTH = 4
# Blocks in all tables together, at 32 to 40 bytes each: 84 MB at most. One publisher with 64,000 messages/s or more
# fills 1,000 blocks a second for each 64,000; many publishers with a message a time fill a block with each.
MAX_REMEMBERED = 2**21
# What tables beyond the window must leave free, so that a busy origin does not push out quiet ones: a quarter.
_RESERVED_SHARE = 4
# Origins that were pushed out and whose floors are kept: all broker numbers there are.
_MAX_EVICTED = 65_536

# The secret of a window that is given none: in tests and in the simulation the same in every run.
FIXED_SECRET = 0x9E3779B97F4A7C15

_ID_BITS = np.uint64(6)
_IN_BLOCK = np.uint64(63)
_ONE = np.uint64(1)


class WindowStatistics(NamedTuple):
    """Origins known, blocks in their tables, ids refused as seen before, blocks forgotten for want of room or for their
    age, ids that were new or forgotten."""

    origins: int
    places: int
    refused: int
    forgotten: int
    doubtful: int


class Admitted(NamedTuple):
    """What became of rows.

    Attributes:
        fresh: bool[rows]; not seen before, as far as is known.
        doubtful: bool[rows]; fresh, and perhaps forgotten; None when that is said of no row.
    """

    fresh: Flags
    doubtful: Flags | None = None


class _Table:
    """Up to `size` blocks, found by hash.

    Block i is `heads[i]` (the first half of its ids), `blocks[i]` (the second half without its last six bits) and
    `bits[i]` (which of its 64 ids were seen). The first `count` are in use; `slots` finds them.
    """

    __slots__ = ("begun", "bits", "blocks", "count", "heads", "slots")

    def __init__(self, size: int, begun: int) -> None:
        self.heads = np.zeros(size, np.uint64)
        self.blocks = np.zeros(size, np.uint64)
        self.bits = np.zeros(size, np.uint64)
        # A power of two, and twice the size at least: a search always meets a free slot.
        self.slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
        self.count = 0
        self.begun = begun

    @property
    def size(self) -> int:
        return len(self.heads)


class _OriginIds:
    __slots__ = ("floors", "newer", "older")

    def __init__(self, now: int, floor: int) -> None:
        self.older = _EMPTY
        self.newer = _Table(_FIRST_SIZE, now)
        self.floors = Floors(floor)


_EMPTY = _Table(0, 0)


class SeenIds:
    """Remembers ids by origin.

    Args:
        window: blocks that are remembered for each origin whatever their age: as many ids, or up to 64 times as many.
        secret: 64 bits that its hash depends on, from a source of randomness where ids are not trusted.
    """

    def __init__(self, window: int = DEFAULT_WINDOW, secret: int = FIXED_SECRET) -> None:
        if window < _FIRST_SIZE:
            raise RoutingError(f"a window has {_FIRST_SIZE} ids or more, not {window}")
        self._window = window
        # Spread over 64 bits, odd, and with its highest bit set: a hash that multiplies by 1 or by -1 would be none.
        spread = hashlib.blake2b((secret & (2**64 - 1)).to_bytes(8, "little"), digest_size=8).digest()
        self._secret = np.uint64(int.from_bytes(spread, "little") | 1 << 63 | 1)
        self._origins: dict[int, _OriginIds] = {}
        self._evicted: dict[int, int] = {}
        self._floor = 0  # that of origins which are in neither of the two
        self._places = self._refused = self._forgotten = self._doubtful = 0

    def admit(self, ids: Words, rows: Integers, now: int) -> Admitted:
        """Whether each of the rows is new, and remember those that are. Equal ids in one call: the first is new."""
        fresh = np.empty(len(rows), np.bool_)
        if not len(rows):
            return Admitted(fresh)
        origin = _common_origin(ids, rows)
        if origin >= 0:
            doubtful = self._admit_origin(origin, ids, rows, fresh, now)
        else:
            doubtful = self._admit_origins(ids, rows, fresh, now)
        if not all_fresh(fresh):
            self._refused += len(fresh) - int(np.count_nonzero(fresh))
        if doubtful is not None:
            self._doubtful += int(np.count_nonzero(doubtful))
        return Admitted(fresh, doubtful)

    def statistics(self) -> WindowStatistics:
        """What it holds and what it did."""
        return WindowStatistics(len(self._origins), self._places, self._refused, self._forgotten, self._doubtful)

    def _admit_origins(self, ids: Words, rows: Integers, fresh: Flags, now: int) -> Flags | None:
        origins = ids[rows, 0] & ORIGIN
        doubtful = np.zeros(len(rows), np.bool_)
        for origin in np.unique(origins).tolist():
            places = np.flatnonzero(origins == origin)
            answer = np.empty(len(places), np.bool_)
            doubts = self._admit_origin(origin, ids, rows[places], answer, now)
            fresh[places] = answer
            if doubts is not None:
                doubtful[places] = doubts
        return doubtful if doubtful.any() else None

    def _admit_origin(self, number: int, ids: Words, rows: Integers, fresh: Flags, now: int) -> Flags | None:
        """Fills in which rows are fresh; returns which of them are doubtful, None for none."""
        origin = self._origins.get(number) or self._begin(number, now)
        done = below = 0
        while done < len(rows):
            older, newer, floor = origin.older, origin.newer, np.uint64(origin.floors.highest)
            done, newer.count, more = _admit(
                ids,
                rows,
                done,
                older.heads,
                older.blocks,
                older.bits,
                older.slots,
                newer.heads,
                newer.blocks,
                newer.bits,
                newer.slots,
                newer.count,
                floor,
                self._secret,
                fresh,
            )
            below += more
            if done < len(rows):
                self._make_room(origin, now)
        if not below:
            return None
        # Floors may have risen above rows of this very call, to make room for others: more doubt than there must be.
        doubtful = fresh & origin.floors.doubtful(ids[rows])
        return doubtful if doubtful.any() else None

    # --- room --------------------------------------------------------------------------------------------------------

    def _begin(self, number: int, now: int) -> _OriginIds:
        # A neighbour may name any origin; the first ones are forgotten first.
        while self._origins and self._places + _FIRST_SIZE > MAX_REMEMBERED:
            self._evict(next(iter(self._origins)))
        origin = self._origins[number] = _OriginIds(now, self._evicted.pop(number, self._floor))
        self._places += _FIRST_SIZE
        return origin

    def _evict(self, number: int) -> None:
        origin = self._origins.pop(number)
        for table in (origin.older, origin.newer):
            self._forget(origin, table)
        self._evicted[number] = origin.floors.highest
        if len(self._evicted) > _MAX_EVICTED:
            first = next(iter(self._evicted))
            self._floor = max(self._floor, self._evicted.pop(first))

    def _forget(self, origin: _OriginIds, table: _Table) -> None:
        self._places -= table.size
        self._forgotten += table.count
        if not table.count:
            return
        heads, floors = np.empty(MAX_PUBLISHERS, np.uint64), np.empty(MAX_PUBLISHERS, np.uint64)
        slots = np.full(4 * MAX_PUBLISHERS, -1, np.int32)
        count, highest = _floors_of(
            self._secret, table.heads, table.blocks, table.bits, table.count, heads, floors, slots
        )
        if count < 0:
            origin.floors.raise_all(min(int(highest) + 1, HIGHEST))
            return
        each = zip(heads[:count].tolist(), floors[:count].tolist(), strict=True)
        origin.floors.raise_each({head: min(last + 1, HIGHEST) for head, last in each})

    def _make_room(self, origin: _OriginIds, now: int) -> None:
        """Grow as long as the table is young or small; otherwise forget the older table and begin a new one."""
        newer = origin.newer
        age, larger = now - newer.begun, newer.size * _GROWTH
        if larger <= self._window:
            grows = self._places + larger <= MAX_REMEMBERED
        else:
            most = MAX_REMEMBERED - MAX_REMEMBERED // _RESERVED_SHARE
            grows = age < REMEMBER_MS and self._places + larger <= most
        if grows:
            grown = _Table(larger, newer.begun)
            _move(
                self._secret,
                newer.heads,
                newer.blocks,
                newer.bits,
                newer.count,
                grown.heads,
                grown.blocks,
                grown.bits,
                grown.slots,
            )
            grown.count = newer.count
            self._places += larger - newer.size
            origin.newer = grown
            return
        self._forget(origin, origin.older)
        # A table that lasted four times as long as it must was four times too large.
        smaller = newer.size // _GROWTH
        size = smaller if age >= _GROWTH * REMEMBER_MS and smaller >= self._window else newer.size
        origin.older = newer
        if self._places + size > MAX_REMEMBERED:
            self._forget(origin, newer)
            origin.older = _EMPTY
        origin.newer = _Table(size, now)
        self._places += size


@kernel("boolean(boolean[::1])", allocates=False)
def all_fresh(fresh: Flags) -> bool:
    """Whether every row is new, as it is nearly always; numpy takes ten times as long to say so."""
    for row in range(len(fresh)):
        if not fresh[row]:
            return False
    return True


@device
def _hashed(secret: np.uint64, head: np.uint64, block: np.uint64) -> Int:
    """A keyed hash of a block: each multiplication folds the upper half of its product back in."""
    return fold_product(fold_product(head ^ secret, secret) ^ block, secret)


@device
def _find(secret: np.uint64, head: np.uint64, block: np.uint64, heads: Halves, blocks: Halves, slots: Slots) -> int:
    """The slot that holds a block, or the free one where it belongs.

    `slots` has 2^n entries, more than there are blocks, so the mask keeps every slot in range and the search ends; an
    entry that is not -1 is below the count of its table.
    """
    slot = np.int64(_hashed(secret, head, block) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        entry = slots[slot]
        if blocks[entry] == block and heads[entry] == head:
            break
        slot = (slot + 1) & (len(slots) - 1)
    return int(slot)


@kernel("int64(uint64[:, ::1], int64[::1])", allocates=False)
def _common_origin(ids: Words, rows: Integers) -> int:
    """The origin of all rows, of which there are some; -1 when they have several."""
    origin = ids[rows[0], 0] & ORIGIN
    for place in range(1, len(rows)):
        if ids[rows[place], 0] & ORIGIN != origin:
            return -1
    return int(origin)


@kernel(
    "UniTuple(int64, 3)(uint64[:, ::1], int64[::1], int64,"
    " uint64[::1], uint64[::1], uint64[::1], int32[::1],"
    " uint64[::1], uint64[::1], uint64[::1], int32[::1], int64, uint64, uint64, boolean[::1])",
    allocates=False,
)
def _admit(
    ids: Words,
    rows: Integers,
    start: int,
    older_heads: Halves,
    older_blocks: Halves,
    older_bits: Halves,
    older_slots: Slots,
    newer_heads: Halves,
    newer_blocks: Halves,
    newer_bits: Halves,
    newer_slots: Slots,
    count: int,
    floor: np.uint64,
    secret: np.uint64,
    fresh: Flags,
) -> tuple[int, int, int]:
    """Enter rows from `start` on: the row where the table was full (or the end), the blocks in it, and how many fresh
    rows are below the floor.

    Rows of one batch mostly lie in the block of the row before: `old` and `new` are that block's entries, or -1.
    """
    below = 0
    last_head, last_block = np.uint64(0), np.uint64(0)
    old, new, known = np.int64(-1), np.int64(-1), False
    for place in range(start, len(rows)):
        row = rows[place]
        head, tail = ids[row, 0], ids[row, 1]
        block, bit = tail >> _ID_BITS, _ONE << (tail & _IN_BLOCK)
        if not known or block != last_block or head != last_head:
            old = np.int64(older_slots[_find(secret, head, block, older_heads, older_blocks, older_slots)])
            new = np.int64(newer_slots[_find(secret, head, block, newer_heads, newer_blocks, newer_slots)])
            last_head, last_block, known = head, block, True
        fresh[place] = False
        if old >= 0 and older_bits[old] & bit:
            continue
        if new < 0:
            # `count` is at most the size of the arrays: below, it is an index of each.
            if count == len(newer_heads):
                return place, count, below
            newer_heads[count], newer_blocks[count], newer_bits[count] = head, block, np.uint64(0)
            newer_slots[_find(secret, head, block, newer_heads, newer_blocks, newer_slots)] = count
            new = np.int64(count)
            count += 1
        elif newer_bits[new] & bit:
            continue
        newer_bits[new] |= bit
        fresh[place] = True
        below += tail < floor
    return len(rows), count, below


@kernel(
    "void(uint64, uint64[::1], uint64[::1], uint64[::1], int64, uint64[::1], uint64[::1], uint64[::1], int32[::1])",
    allocates=False,
)
def _move(
    secret: np.uint64,
    heads: Halves,
    blocks: Halves,
    bits: Halves,
    count: int,
    larger_heads: Halves,
    larger_blocks: Halves,
    larger_bits: Halves,
    larger_slots: Slots,
) -> None:
    """Enter the first `count` blocks, all different, into an empty table that has room for them."""
    for entry in range(count):
        larger_heads[entry], larger_blocks[entry], larger_bits[entry] = heads[entry], blocks[entry], bits[entry]
        larger_slots[_find(secret, heads[entry], blocks[entry], larger_heads, larger_blocks, larger_slots)] = entry


@kernel(
    "Tuple((int64, uint64))(uint64, uint64[::1], uint64[::1], uint64[::1], int64,"
    " uint64[::1], uint64[::1], int32[::1])",
    allocates=False,
)
def _floors_of(
    secret: np.uint64,
    heads: Halves,
    blocks: Halves,
    bits: Halves,
    count: int,
    publishers: Halves,
    lasts: Halves,
    slots: Slots,
) -> tuple[int, np.uint64]:
    """The last id (its second half) of each publisher in a table: how many publishers, and the last id of all.

    -1 when there are more publishers than `publishers` and `lasts` have room for. `slots` has 2^n entries, more than
    there is room for publishers, so the mask keeps every slot in range and the search ends.
    """
    found, crowded = 0, False
    highest = np.uint64(0)
    for entry in range(count):
        top, rest = np.uint64(0), bits[entry] >> _ONE
        while rest:
            top += _ONE
            rest >>= _ONE
        last = blocks[entry] << _ID_BITS | top
        highest = max(highest, last)
        if crowded:
            continue
        head = heads[entry]
        slot = np.int64(_hashed(secret, head, np.uint64(0)) & np.uint64(len(slots) - 1))
        while slots[slot] >= 0 and publishers[slots[slot]] != head:
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] < 0:
            if found == len(publishers):
                crowded = True
                continue
            slots[slot] = found
            publishers[found], lasts[found] = head, last
            found += 1
        else:
            lasts[slots[slot]] = max(lasts[slots[slot]], last)
    return -1 if crowded else found, highest
