"""Seals a busy broker's book the short way: as runs, where messages came in runs and were reported together.

A batch of one publisher is a run of ids, and what happens to it happens to all of its rows or to a few stretches of
them. So blocks are cut where anything begins or ends, the pieces are put in order, and lists are made for pieces:
nothing is done per message. At millions of messages a second this is a hundredth of the work of laying out rows.

Stretches and pieces count places of the book, in 64 bits. The tails of a run were tested not to leave its counter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, kernel
from postroad.messages.id_columns import COUNTER, COUNTERS, ORIGIN, PUBLISHER_SHIFT, TIME_SHIFT, id_order
from postroad.tracking.exact_book import KINDS, WHOLE
from postroad.tracking.exact_lists import FIELDS
from postroad.tracking.segments import ADDENDUM, Lists, PassageRuns, Shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking.exact_book import Book

    Words = NDArray[np.uint64]
    Ints = NDArray[np.int64]

__all__ = ["LEAST_ROWS", "MEAN_RUN", "runs_of"]

# Fewer are laid out row by row at no cost to speak of.
LEAST_ROWS = 1 << 14
# With shorter runs than this, rows are cheaper; and files of rows smaller.
MEAN_RUN = 8


@kernel("int64(int64[:, ::1], int32[::1], int64[:, ::1])", allocates=False)
def _stretches(entries: Ints, rows: NDArray[np.int32], out: Ints) -> Int:
    """Entries as (kind, number, begin, end) of places that follow each other; how many, or -1 if there is no room.

    Rows of an entry that do not rise make more stretches, and nothing else.
    """
    count = 0
    for index in range(len(entries)):
        start, first, size = entries[index, 2], entries[index, 3], entries[index, 4]
        at = 0
        while at < size:
            if count == len(out):
                return -1
            begin = np.int64(0) if first == WHOLE else np.int64(rows[first + at])
            end = begin + 1
            at += 1
            if first == WHOLE:
                end = size
                at = size
            while at < size and rows[first + at] == end:
                end += 1
                at += 1
            out[count, 0], out[count, 1] = entries[index, 0], entries[index, 1]
            out[count, 2], out[count, 3] = start + begin, start + end
            count += 1
    return count


@kernel("boolean(uint64[::1], uint64[::1], int64[::1])", allocates=False)
def _rise(heads: Words, tails: Words, counts: Ints) -> Truth:
    """Whether each run lies wholly after the one before, by (origin, time, publisher, counter)."""
    for row in range(1, len(heads)):
        origin, before = heads[row] & ORIGIN, heads[row - 1] & ORIGIN
        if origin < before:
            return False
        if origin > before:
            continue
        last = tails[row - 1] + np.uint64(counts[row - 1] - 1)
        time, earlier = tails[row] >> TIME_SHIFT, last >> TIME_SHIFT
        if time < earlier:
            return False
        if time == earlier and (heads[row] < heads[row - 1] or (heads[row] == heads[row - 1] and tails[row] <= last)):
            return False
    return True


@kernel("int64(int64[:, ::1], int64, int64[::1], int64[::1], int64[:, ::1])", allocates=False)
def _grow(stretches: Ints, kind: Int, index: Ints, first: Ints, nodes: Ints) -> Int:
    """A tree of lists: a report about a piece moves it from its list to the one with one number more.

    Args:
        stretches: (kind, number, begin, end), in order of their numbers; begin and end count pieces.
        kind: of those to take.
        index: the node of each piece, 0 at first.
        first: by node, the latest that grew out of it. As numbers come in order, no other has the present number.
        nodes: takes (parent, number, depth) of each.

    Returns how many nodes there are.
    """
    count = 1
    nodes[0, 0], nodes[0, 1], nodes[0, 2] = -1, -1, 0
    first[0] = -1
    for row in range(len(stretches)):
        if stretches[row, 0] != kind:
            continue
        number = stretches[row, 1]
        for piece in range(stretches[row, 2], stretches[row, 3]):
            node = index[piece]
            if nodes[node, 1] == number:
                continue  # reported twice
            child = first[node]
            if child < 0 or nodes[child, 1] != number:
                child = count
                nodes[child, 0], nodes[child, 1], nodes[child, 2] = node, number, nodes[node, 2] + 1
                first[child] = -1
                first[node] = child
                count += 1
            index[piece] = child
    return count


@kernel("void(int64[:, ::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _spell(nodes: Ints, chosen: Ints, offsets: Ints, numbers: Ints) -> None:
    """The numbers from the root to each chosen node."""
    for row in range(len(chosen)):
        node = chosen[row]
        at = offsets[row + 1]
        while node > 0:
            at -= 1
            numbers[at] = nodes[node, 1]
            node = nodes[node, 0]


def runs_of(book: Book, least_rows: int = LEAST_ROWS) -> PassageRuns | None:
    """The rows of a book as runs; none if it is small, or its messages did not come as runs, each once."""
    runs = book.runs()
    if runs is None or book.count < least_rows:
        return None
    blocks, entries, _ = book.tables()
    most = book.count // MEAN_RUN
    if (blocks[:, 2] == ADDENDUM).any() or ((runs[:, 3] & COUNTER) + runs[:, 1]).max() > COUNTERS:
        return None
    stretches = np.empty((most, 4), np.int64)
    used = _stretches(entries, book.rows, stretches)
    if used < 0:
        return None
    stretches = stretches[:used]
    begins = np.unique(np.concatenate([blocks[:, 0], stretches[:, 2], stretches[:, 3]]))
    begins = begins[begins < book.count]
    if len(begins) > most:
        return None
    block = np.searchsorted(blocks[:, 0], begins, side="right") - 1
    heads, tails = runs[block, 2], runs[block, 3] + (begins - blocks[block, 0]).astype(np.uint64)
    counts = np.diff(begins, append=book.count)
    order = _order(heads, tails, counts)
    if order is None:
        return None
    heads, tails = heads[order], tails[order]
    return PassageRuns(
        counts[order],
        (heads & ORIGIN).astype(np.int64),
        (tails >> TIME_SHIFT).astype(np.int64),
        (heads >> PUBLISHER_SHIFT).astype(np.int64),
        (tails & COUNTER).astype(np.int64),
        blocks[block[order], 2],
        _lists(stretches, begins, order),
    )


def _order(heads: Words, tails: Words, counts: Ints) -> Ints | None:
    """What puts runs in order; none if some overlap, as where a message came twice."""
    if _rise(heads, tails, counts):
        return np.arange(len(heads), dtype=np.int64)
    order = id_order(heads, tails)
    return order if _rise(heads[order], tails[order], counts[order]) else None


def _lists(stretches: Ints, begins: Ints, order: Ints) -> dict[str, Shared]:
    """The lists of each kind that has any, for the pieces that begin at `begins`, put in order."""
    pieces = stretches[np.argsort(stretches[:, 1], kind="stable")]
    pieces[:, 2:] = np.searchsorted(begins, pieces[:, 2:])
    sizes = np.bincount(pieces[:, 0], pieces[:, 3] - pieces[:, 2], KINDS).astype(np.int64)
    found = {}
    for kind in np.flatnonzero(sizes).tolist():
        # Each step from piece to piece makes one node at most.
        nodes, first = np.empty((sizes[kind] + 1, 3), np.int64), np.empty(sizes[kind] + 1, np.int64)
        index = np.zeros(len(begins), np.int64)
        _grow(pieces, kind, index, first, nodes)
        used, places = np.unique(index[order], return_inverse=True)
        offsets = np.concatenate([[0], np.cumsum(nodes[used, 2])]).astype(np.int64)
        numbers = np.empty(int(offsets[-1]), np.int64)
        _spell(nodes, used, offsets, numbers)
        found[FIELDS[kind]] = Shared(places.astype(np.int32), Lists(offsets, numbers))
    return found
