"""Rows of a batch into histories: hash, derive, keep the time range and set late ids apart, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters.bloom import add_word
from postroad.filters.hashing import id_word, mix_word
from postroad.kernels import Int, Truth, device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking.contract import Rows

    Ids = NDArray[np.uint64]
    Longs = NDArray[np.int64]

__all__ = ["EARLIEST", "LATES", "LATEST", "REPORT", "SCRATCH", "TAKEN", "take_bits", "take_keys"]

# What a kernel reports: rows taken; range of the id times within tolerance; times outside it (repeats left out).
TAKEN, EARLIEST, LATEST, LATES = range(4)
REPORT = 4
SCRATCH = 256  # keys that wait for their bits to be set: they stay in the fastest cache

_LOW_WORD = np.uint64(0xFFFFFFFF)
# An empty range of times.
_NO_TIMES_FROM = 1 << 62
_COUNTER_BITS = np.uint64(16)


@device
def _fill(
    ids: Ids,
    rows: Rows,
    first: Int,
    end: Int,
    derived: Truth,
    mixed: Int,
    now: Int,
    tolerance: Int,
    keys: NDArray[np.uint64],
    report: Longs,
    late: Longs,
) -> Int:
    """The keys of rows from `first` to `end`, while the origin stays the same; how many. Adds to the report."""
    origin = ids[rows[first], 0] & _LOW_WORD
    earliest, latest, lates = report[EARLIEST], report[LATEST], report[LATES]
    last = np.int64(-1)
    at = first
    while at < end:
        head, tail = ids[rows[at], 0], ids[rows[at], 1]
        if head & _LOW_WORD != origin:
            break
        word = id_word(head, tail)
        keys[at - first] = mix_word(word ^ mixed) if derived else word
        at += 1
        time = np.int64(tail >> _COUNTER_BITS)
        # Ids of one batch mostly bear the same few times.
        if time == last:
            continue
        last = time
        if abs(now - time) <= tolerance:
            earliest, latest = min(earliest, time), max(latest, time)
        elif lates == 0 or late[lates - 1] != time:
            late[lates] = time
            lates += 1
    report[EARLIEST], report[LATEST], report[LATES] = earliest, latest, lates
    return at - first


@kernel(
    "void(uint64[:, ::1], int32[::1], int64, boolean, uint64, int64, int64, uint64[::1], int64[::1], int64[::1])",
    "void(uint64[:, ::1], int64[::1], int64, boolean, uint64, int64, int64, uint64[::1], int64[::1], int64[::1])",
    allocates=False,
)
def take_keys(
    ids: Ids,
    rows: Rows,
    first: Int,
    derived: Truth,
    mixed: Int,
    now: Int,
    tolerance: Int,
    keys: NDArray[np.uint64],
    report: Longs,
    late: Longs,
) -> None:
    """Put the keys of rows from `first` on into `keys`, while there is room and the origin stays the same."""
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    end = min(len(rows), first + len(keys))
    report[TAKEN] = _fill(ids, rows, first, end, derived, mixed, now, tolerance, keys, report, late)


@kernel(
    "void(uint64[:, ::1], int32[::1], int64, boolean, uint64, int64, int64, uint64[::1], uint64, int64, int64,"
    " uint64[::1], int64[::1], int64[::1])",
    "void(uint64[:, ::1], int64[::1], int64, boolean, uint64, int64, int64, uint64[::1], uint64, int64, int64,"
    " uint64[::1], int64[::1], int64[::1])",
    allocates=False,
)
def take_bits(
    ids: Ids,
    rows: Rows,
    first: Int,
    derived: Truth,
    mixed: Int,
    now: Int,
    tolerance: Int,
    words: NDArray[np.uint64],
    m: Int,
    k: Int,
    room: Int,
    scratch: NDArray[np.uint64],
    report: Longs,
    late: Longs,
) -> None:
    """Set the positions of rows from `first` on, at most `room` of them, while the origin stays the same.

    Keys go through `scratch`: hashing some and then setting their bits takes two thirds of the time of both in turns,
    because the processor overlaps the keys of a plain loop.
    """
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    origin = ids[rows[first], 0] & _LOW_WORD
    end = min(len(rows), first + room)
    at = first
    while at < end and ids[rows[at], 0] & _LOW_WORD == origin:
        until = min(end, at + len(scratch))
        count = _fill(ids, rows, at, until, derived, mixed, now, tolerance, scratch, report, late)
        for index in range(count):
            add_word(words, m, k, scratch[index])
        at += count
    report[TAKEN] = at - first
