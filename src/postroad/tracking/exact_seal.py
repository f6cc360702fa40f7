"""Sealing a book: one row for each message, in order, with its lists filled in. Heavy work, for a thread.

Three steps. Ids are put in order of (origin, time, publisher, counter). Equal ids are folded into one row, or several
where the message came from several neighbours. Entries, in order of their numbers, are dealt out to the rows: each list
is then ascending without being sorted, and duplicates are next to each other.

Places are numbers of ids in the book, from 0 on; ids from outside are compared and ordered, and never become an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import Int, Truth, kernel
from postroad.messages.id_columns import COUNTER, ORIGIN, PUBLISHER_SHIFT, TIME_SHIFT, id_order
from postroad.tracking.exact_book import ENTRY_FIELDS, KINDS, WHOLE
from postroad.tracking.exact_lists import dealt
from postroad.tracking.segments import ADDENDUM, Passages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking.exact_book import Book

    Words = NDArray[np.uint64]
    Ints = NDArray[np.int64]

__all__ = ["seal"]

_NUMBER = np.uint64(0xFFFFFFFF)


@kernel("boolean(uint64[:, ::1])", allocates=False)
def _in_order(ids: Words) -> Truth:
    """Whether ids rise by (origin, time, publisher, counter): as one publisher's do, and those of one link mostly."""
    for row in range(1, len(ids)):
        origin, before = ids[row, 0] & ORIGIN, ids[row - 1, 0] & ORIGIN
        if origin != before:
            if origin < before:
                return False
            continue
        time, earlier = ids[row, 1] >> TIME_SHIFT, ids[row - 1, 1] >> TIME_SHIFT
        if time < earlier:
            return False
        if time == earlier and (
            ids[row, 0] < ids[row - 1, 0] or (ids[row, 0] == ids[row - 1, 0] and ids[row, 1] < ids[row - 1, 1])
        ):
            return False
    return True


@kernel("int64(uint64[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])", allocates=False)
def _fold(ids: Words, arrived_from: Ints, order: Ints, out: Ints, row_of: Ints) -> Int:
    """One row for each id, in order, and one more for each further neighbour it came from; returns how many.

    Args:
        ids: as they came.
        arrived_from: for each, or ADDENDUM.
        order: sorts the ids.
        out: takes place and arrived_from of each row; has a row for each id, and each id adds at most one.
        row_of: takes the first row of each id, by place.
    """
    rows = np.int64(0)
    first = np.int64(0)
    before = np.int64(-1)
    for index in range(len(order)):
        place = order[index]
        came = arrived_from[place]
        same = before >= 0 and ids[place, 0] == ids[before, 0] and ids[place, 1] == ids[before, 1]
        before = place
        if not same:
            first = rows
        known = False
        if same:
            known = came == ADDENDUM
            for other in range(first, rows):
                if out[other, 1] == came:
                    known = True
            if not known and out[first, 1] == ADDENDUM:
                out[first, 1] = came
                known = True
        if not known:
            out[rows, 0] = place
            out[rows, 1] = came
            rows += 1
        row_of[place] = first
    return rows


@kernel("void(uint64[:, ::1], int64[:, ::1], int64[:, ::1], int32[::1])", allocates=False)
def _split(ids: Words, folded: Ints, columns: Ints, counters: NDArray[np.int32]) -> None:
    """The fields of the id of each row: origin, time, publisher and arrived_from; and the counter."""
    for row in range(len(counters)):
        head, tail = ids[folded[row, 0], 0], ids[folded[row, 0], 1]
        columns[0, row] = np.int64(head & ORIGIN)
        columns[1, row] = np.int64(tail >> TIME_SHIFT)
        columns[2, row] = np.int64(head >> PUBLISHER_SHIFT)
        columns[3, row] = folded[row, 1]
        counters[row] = np.int32(tail & COUNTER)


class _BookArrays(NamedTuple):
    """A book as arrays: all ids with where they came from, and all entries in order of their numbers."""

    ids: Words
    arrived_from: Ints
    entries: Ints


def _arrays_of(book: Book) -> _BookArrays:
    blocks, entries, notes = book.tables()
    ids = book.ids()
    arrived_from = np.repeat(blocks[:, 2], blocks[:, 1])
    if len(notes):
        # A note is a block of one id, and an entry about it.
        more = np.empty((len(notes), ENTRY_FIELDS), np.int64)
        more[:, 0] = notes[:, 2] >> np.uint64(32)
        more[:, 1] = notes[:, 2] & _NUMBER
        more[:, 2] = len(ids) + np.arange(len(notes))
        more[:, 3] = WHOLE
        more[:, 4] = 1
        entries = np.concatenate([entries, more])
        ids = np.concatenate([ids, notes[:, :2]])
        arrived_from = np.concatenate([arrived_from, np.full(len(notes), ADDENDUM, np.int64)])
    by_number = np.argsort(entries[:, 1], kind="stable")
    return _BookArrays(np.ascontiguousarray(ids), arrived_from, np.ascontiguousarray(entries[by_number]))


def _order(ids: Words) -> Ints:
    if _in_order(ids):
        return np.arange(len(ids), dtype=np.int64)
    return id_order(ids[:, 0], ids[:, 1])


def seal(book: Book) -> Passages | None:
    """The rows of a book; none when it is empty."""
    if book.empty:
        return None
    arrays = _arrays_of(book)
    out = np.empty((len(arrays.ids), 2), np.int64)
    row_of = np.empty(len(arrays.ids), np.int64)
    count = _fold(arrays.ids, arrays.arrived_from, _order(arrays.ids), out, row_of)
    columns, counters = np.empty((4, count), np.int64), np.empty(count, np.int32)
    _split(arrays.ids, out, columns, counters)
    origin, time, publisher, arrived_from = columns
    lists = [dealt(arrays.entries, book.rows, kind, row_of, count) for kind in range(KINDS)]
    return Passages(origin, time, publisher, counters, arrived_from, *lists)
