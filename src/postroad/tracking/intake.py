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

__all__ = ["EARLIEST", "LATES", "LATEST", "REPORT", "TAKEN", "take_bits", "take_keys"]

# What a kernel reports: rows taken; range of the id times within tolerance; times outside it (repeats left out).
TAKEN, EARLIEST, LATEST, LATES = range(4)
REPORT = 4

_LOW_WORD = np.uint64(0xFFFFFFFF)
# An empty range of times.
_NO_TIMES_FROM = 1 << 62
_COUNTER_BITS = np.uint64(16)


@device
def _note_time(tail: Int, now: Int, tolerance: Int, report: Longs, late: Longs) -> None:
    time = np.int64(tail >> _COUNTER_BITS)
    if abs(now - time) <= tolerance:
        report[EARLIEST] = min(report[EARLIEST], time)
        report[LATEST] = max(report[LATEST], time)
    elif report[LATES] == 0 or late[report[LATES] - 1] != time:
        late[report[LATES]] = time
        report[LATES] += 1


@device
def _key(ids: Ids, row: Int, derived: Truth, mixed: Int) -> Int:
    word = id_word(ids[row, 0], ids[row, 1])
    return mix_word(word ^ mixed) if derived else word


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
    origin = ids[rows[first], 0] & _LOW_WORD
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    end = min(len(rows), first + len(keys))
    at = first
    while at < end and ids[rows[at], 0] & _LOW_WORD == origin:
        keys[at - first] = _key(ids, rows[at], derived, mixed)
        _note_time(ids[rows[at], 1], now, tolerance, report, late)
        at += 1
    report[TAKEN] = at - first


@kernel(
    "void(uint64[:, ::1], int32[::1], int64, boolean, uint64, int64, int64, uint64[::1], uint64, int64, int64,"
    " int64[::1], int64[::1])",
    "void(uint64[:, ::1], int64[::1], int64, boolean, uint64, int64, int64, uint64[::1], uint64, int64, int64,"
    " int64[::1], int64[::1])",
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
    report: Longs,
    late: Longs,
) -> None:
    """Set the positions of rows from `first` on, at most `room` of them, while the origin stays the same."""
    origin = ids[rows[first], 0] & _LOW_WORD
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    end = min(len(rows), first + room)
    at = first
    while at < end and ids[rows[at], 0] & _LOW_WORD == origin:
        add_word(words, m, k, _key(ids, rows[at], derived, mixed))
        _note_time(ids[rows[at], 1], now, tolerance, report, late)
        at += 1
    report[TAKEN] = at - first
