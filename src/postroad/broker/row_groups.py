"""Inverts the result of the index: from the subscriptions of each row to the rows of each subscription.

The index returns a table by rows: row r has slots[offsets[r]:offsets[r + 1]]. Sessions need it by slots: slot s has
rows[starts[g]:starts[g + 1]], where g is the place of s in `groups`. A counting sort makes the one from the other in
three passes over the pairs, without comparing any.

Slots and offsets come from the index itself, and are never negative. `Grouping` gives every array its size from them:
`counts` has a word for each slot that the index may return, `groups` and `starts` one for each of these as well, and
`rows` one for each pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import kernel
from postroad.messages.columns import EXPIRY, FLAGS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Grouping", "any_expires", "has_flag", "unmatched"]


# numpy takes ten times as long for either: a view, a temporary array and a reduction.
@kernel("boolean(int64[:, ::1])", allocates=False)
def any_expires(envelopes: NDArray[np.int64]) -> bool:
    """Return whether any message expires."""
    seen = np.int64(0)
    for row in range(np.uint64(len(envelopes))):
        seen |= envelopes[row, EXPIRY]
    return bool(seen != 0)


@kernel("boolean(int64[:, ::1], int64)", allocates=False)
def has_flag(envelopes: NDArray[np.int64], flag: int) -> bool:
    """Return whether any message has a flag."""
    seen = np.int64(0)
    for row in range(np.uint64(len(envelopes))):
        seen |= envelopes[row, FLAGS]
    return bool(seen & flag != 0)


@kernel("int64(int64[::1])", allocates=False)
def unmatched(offsets: NDArray[np.int64]) -> int:
    """Return how many rows no subscription wants."""
    count = 0
    for row in range(np.uint64(len(offsets) - 1)):
        count += offsets[row] == offsets[row + np.uint64(1)]
    return count


@kernel(
    "int64(int64[::1], int32[::1], int32[::1], int32[::1], int64[::1], int64[::1])",
    allocates=False,
)
def group_rows(
    offsets: NDArray[np.int64],
    slots: NDArray[np.int32],
    counts: NDArray[np.int32],
    groups: NDArray[np.int32],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> int:
    """Counting sort of (row, slot) pairs by slot; returns the number of groups.

    `counts` has a word for every slot and is zero between calls. Group g is slot groups[g], and its rows, in order,
    are rows[starts[g]:starts[g + 1]].
    """
    count = 0
    # How many rows each slot has, and the slots in the order in which they occur first.
    for slot in slots:
        if counts[slot] == 0:
            groups[count] = slot
            count += 1
        counts[slot] += 1
    at = 0
    # From here on counts[slot] is the place in `rows` where the slot's next row goes.
    for group in range(count):
        starts[group] = at
        size = counts[groups[group]]
        counts[groups[group]] = at
        at += size
    starts[count] = at
    for row in range(offsets.size - 1):
        for place in range(offsets[row], offsets[row + 1]):
            slot = slots[place]
            rows[counts[slot]] = row
            counts[slot] += 1
    # Only the words that were used: the next call finds zeros without a pass over all slots.
    for group in range(count):
        counts[groups[group]] = 0
    return count


class Grouping:
    """Groups matches by slot; keeps its scratch arrays between calls."""

    def __init__(self) -> None:
        self._make_room(64)

    def _make_room(self, slots: int) -> None:
        self._counts = np.zeros(slots, np.int32)
        self._groups, self._starts = np.empty(slots, np.int32), np.empty(slots + 1, np.int64)

    def by_slot(
        self, offsets: NDArray[np.int64], slots: NDArray[np.int32], slot_limit: int
    ) -> list[tuple[int, NDArray[np.int64]]]:
        """Return (slot, its rows in order) for each slot that occurs; every slot is below `slot_limit`."""
        total = len(slots)
        if total == 0:
            return []
        if len(self._counts) < slot_limit:
            self._make_room(2 * slot_limit)
        groups, starts = self._groups, self._starts
        rows = np.empty(total, np.int64)
        count = group_rows(offsets, slots, self._counts, groups, starts, rows)
        if count == 1:
            return [(int(groups[0]), rows)]
        bounds = starts[: count + 1].tolist()
        return [(slot, rows[bounds[g] : bounds[g + 1]]) for g, slot in enumerate(groups[:count].tolist())]
