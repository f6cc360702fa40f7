"""Lists of the exact record: what was reported of many rows, distributed to them.

Entries come in order of their numbers: each list is then ascending without being sorted, and duplicates are next to
each other.

Entries and rows are the book's own numbers of places; nothing from outside is an index here. Sizes are summed in 64
bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, kernel
from postroad.tracking.exact_book import WHOLE
from postroad.tracking.segments import Lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["FIELDS", "dealt"]

# The columns of `Passages` by the kinds of entries.
FIELDS = ("relayed_to", "delivered", "acknowledged", "refused", "queued")


@kernel("void(int64[:, ::1], int32[::1], int64, int64[::1], int64[::1], int64[::1])", allocates=False)
def _measure(entries: Ints, rows: NDArray[np.int32], kind: Int, row_of: Ints, last: Ints, lengths: Ints) -> None:
    """How long the list of each row is."""
    for index in range(len(entries)):
        if entries[index, 0] != kind:
            continue
        number, start, first, size = entries[index, 1], entries[index, 2], entries[index, 3], entries[index, 4]
        for step in range(size):
            row = row_of[start + (step if first == WHOLE else rows[first + step])]
            if last[row] != number:
                last[row] = number
                lengths[row] += 1


@kernel("void(int64[:, ::1], int32[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _deal(
    entries: Ints, rows: NDArray[np.int32], kind: Int, row_of: Ints, last: Ints, ends: Ints, numbers: Ints
) -> None:
    """Put the numbers into the lists; `ends` moves from the start of each list to its end."""
    for index in range(len(entries)):
        if entries[index, 0] != kind:
            continue
        number, start, first, size = entries[index, 1], entries[index, 2], entries[index, 3], entries[index, 4]
        for step in range(size):
            row = row_of[start + (step if first == WHOLE else rows[first + step])]
            if last[row] != number:
                last[row] = number
                numbers[ends[row]] = number
                ends[row] += 1


def dealt(entries: Ints, rows: NDArray[np.int32], kind: int, row_of: Ints, count: int) -> Lists:
    """The lists of one kind: entries, in order of their numbers, are about places, and `row_of` says whose row."""
    offsets = np.zeros(count + 1, np.int64)
    if not (entries[:, 0] == kind).any():
        return Lists(offsets, np.empty(0, np.int64))
    last = np.full(count, -1, np.int64)
    _measure(entries, rows, kind, row_of, last, offsets[1:])
    np.cumsum(offsets, out=offsets)
    last[:] = -1
    ends = offsets[:-1].copy()
    numbers = np.empty(int(offsets[-1]), np.int64)
    _deal(entries, rows, kind, row_of, last, ends, numbers)
    return Lists(offsets, numbers)
