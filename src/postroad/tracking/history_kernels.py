"""Rows of a batch into histories: hash, derive, keep the time range and set late ids apart, piece by piece.

A piece is looked at first: mostly its rows follow each other, come from one origin and are all in time. Then its keys
are made by loops without a branch, which the compiler turns into vectors: a third of the time of one loop that looks at
each id by itself.

Rows are those of the batch that the broker holds, never negative; `late` has room for one time a row. Times are what
clients put into ids: they are compared and noted, and never become an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters.bloom import add_words
from postroad.filters.hashes import id_word, mix_word
from postroad.kernels import Int, Truth, device, kernel
from postroad.messages.id_columns import ORIGIN, TIME_SHIFT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking.contract import Rows

    Ids = NDArray[np.uint64]
    Longs = NDArray[np.int64]

__all__ = ["EARLIEST", "LATES", "LATEST", "PIECE", "REPORT", "TAKEN", "take_bits", "take_keys"]

# What a kernel reports: rows taken; range of the id times within tolerance; times outside it (repeats left out).
TAKEN, EARLIEST, LATEST, LATES = range(4)
REPORT = 4
PIECE = 256  # rows in a piece: their ids and keys stay in the fastest cache

# An empty range of times.
_NO_TIMES_FROM = 1 << 62
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@device
def _is_run(rows: Rows, first: Int, count: Int) -> Truth:
    """Whether the rows are consecutive."""
    start, apart = np.int64(rows[first]), np.int64(0)
    for at in range(count):
        apart |= (np.int64(rows[first + at]) - np.int64(at)) ^ start
    return apart == 0


@device
def _note_times(
    flat: Ids, rows: Rows, first: Int, count: Int, now: Int, tolerance: Int, report: Longs, late: Longs
) -> None:
    """Add the times of rows to the report, one by one."""
    earliest, latest, lates = report[EARLIEST], report[LATEST], report[LATES]
    last = np.int64(-1)
    for at in range(first, first + count):
        time = np.int64(flat[2 * rows[at] + 1] >> TIME_SHIFT)
        # Ids of one batch mostly have the same few times.
        if time == last:
            continue
        last = time
        if abs(now - time) <= tolerance:
            earliest, latest = min(earliest, time), max(latest, time)
        elif lates == 0 or late[lates - 1] != time:
            late[lates] = time
            lates += 1
    report[EARLIEST], report[LATEST], report[LATES] = earliest, latest, lates


@device
def _look(
    flat: Ids, rows: Rows, first: Int, count: Int, run: Truth, now: Int, tolerance: Int, report: Longs, late: Longs
) -> Int:
    """How many of the rows, from the first on, have the origin of the first; adds their times to the report."""
    begin = np.uint64(rows[first]) << _ONE
    origin = flat[begin] & ORIGIN
    others, earliest, latest = _ZERO, ~_ZERO, _ZERO
    for at in range(count):
        place = begin + (at << _ONE) if run else np.uint64(rows[first + at]) << _ONE
        others |= flat[place] ^ origin
        earliest, latest = min(earliest, flat[place + _ONE]), max(latest, flat[place + _ONE])
    begins, ends = np.int64(earliest >> TIME_SHIFT), np.int64(latest >> TIME_SHIFT)
    if others & ORIGIN != _ZERO:
        # Some row has another origin, so this ends before the piece does.
        count = _ZERO
        while flat[2 * rows[first + count]] & ORIGIN == origin:
            count += _ONE
    elif now - begins <= tolerance and ends - now <= tolerance:
        report[EARLIEST], report[LATEST] = min(report[EARLIEST], begins), max(report[LATEST], ends)
        return count
    _note_times(flat, rows, first, count, now, tolerance, report, late)
    return count


@device
def _hash(
    flat: Ids, rows: Rows, first: Int, count: Int, run: Truth, derived: Truth, mixed: Int, keys: Ids, out: Int
) -> None:
    """Put the keys of some rows into `keys` from `out` on."""
    begin = np.uint64(rows[first]) << _ONE
    for at in range(count):
        place = begin + (at << _ONE) if run else np.uint64(rows[first + at]) << _ONE
        keys[out + at] = id_word(flat[place], flat[place + _ONE])
    if derived:
        for at in range(out, out + count):
            keys[at] = mix_word(keys[at] ^ mixed)


@device
def _take_piece(
    flat: Ids,
    rows: Rows,
    first: Int,
    end: Int,
    derived: Truth,
    mixed: Int,
    now: Int,
    tolerance: Int,
    keys: Ids,
    out: Int,
    report: Longs,
    late: Longs,
) -> Int:
    """Put the keys of one piece into `keys` from `out` on, while the origin stays the same; how many."""
    count = np.uint64(min(PIECE, end - first))
    run = _is_run(rows, np.uint64(first), count)
    count = _look(flat, rows, np.uint64(first), count, run, now, tolerance, report, late)
    _hash(flat, rows, np.uint64(first), count, run, derived, mixed, keys, np.uint64(out))
    return np.int64(count)


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
    """Put the keys of rows from `first` on into `keys`, while there is room and the origin stays the same.

    `end` leaves at most as many rows as `keys` has places; row i goes to place i - first.
    """
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    # The compiler does not see that a row has two words: to flat words it can apply vectors.
    flat = ids.reshape(ids.size)
    origin = flat[2 * rows[first]] & ORIGIN
    end = min(len(rows), first + len(keys))
    at = first
    while at < end and flat[2 * rows[at]] & ORIGIN == origin:
        at += _take_piece(flat, rows, at, end, derived, mixed, now, tolerance, keys, at - first, report, late)
    report[TAKEN] = at - first


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

    The keys of a piece go through `scratch`, which holds PIECE of them.
    """
    report[EARLIEST], report[LATEST], report[LATES] = _NO_TIMES_FROM, -1, 0
    # The compiler does not see that a row has two words: to flat words it can apply vectors.
    flat = ids.reshape(ids.size)
    origin = flat[2 * rows[first]] & ORIGIN
    end = min(len(rows), first + room)
    at = first
    while at < end and flat[2 * rows[at]] & ORIGIN == origin:
        count = _take_piece(flat, rows, at, end, derived, mixed, now, tolerance, scratch, 0, report, late)
        add_words(words, m, k, scratch, count)
        at += count
    report[TAKEN] = at - first
