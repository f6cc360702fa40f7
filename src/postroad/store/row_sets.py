"""Sets of stored rows, as runs.

A *place* names a stored row: `number of the record << ROW_BITS | row in the record`, as an int64. Places rise in the
order in which rows were stored. A set of places is kept as sorted half-open *runs* `starts[i]..ends[i]` that neither
overlap nor touch: a backlog of a million rows in records of a thousand is a thousand runs, 16 bytes each.

A record has fewer rows than a row number can count (`MAX_RECORD_ROWS`), so a run never spans two records.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    Places = NDArray[np.int64]

__all__ = [
    "MAX_NUMBER",
    "MAX_RECORD_ROWS",
    "NO_RUNS",
    "ROW_BITS",
    "RowSet",
    "Runs",
    "by_record",
    "first_places",
    "intersect",
    "runs_of",
    "subtract",
    "unite",
]

ROW_BITS = 20
# One less than would fit: the run that ends a record must not touch the run that begins the next one.
MAX_RECORD_ROWS = 2**ROW_BITS - 1
# Places are signed 64-bit integers. At a million records a second this lasts 278 years.
MAX_NUMBER = 2 ** (62 - ROW_BITS)


class Runs(NamedTuple):
    """Sorted, disjoint, non-touching runs of places."""

    starts: Places
    ends: Places

    @property
    def size(self) -> int:
        """Return how many places there are."""
        return int((self.ends - self.starts).sum())

    def places(self) -> Places:
        """Return all places, in order."""
        sizes = self.ends - self.starts
        offsets = np.cumsum(sizes) - sizes
        return np.repeat(self.starts - offsets, sizes) + np.arange(int(sizes.sum()), dtype=np.int64)

    def contains(self, places: Places) -> NDArray[np.bool_]:
        """Return which of the places are in the set."""
        if not len(self.starts):
            return np.zeros(len(places), np.bool_)
        before = np.searchsorted(self.starts, places, "right") - 1
        return np.asarray((before >= 0) & (places < self.ends[np.maximum(before, 0)]))

    @property
    def is_sound(self) -> bool:
        """Return whether they are sorted, apart, not empty and not negative: every function here relies on that."""
        return bool(
            len(self.starts) == len(self.ends)
            and (not len(self.starts) or self.starts[0] >= 0)
            and (self.ends > self.starts).all()
            and (self.starts[1:] > self.ends[:-1]).all()
        )


NO_RUNS = Runs(np.empty(0, np.int64), np.empty(0, np.int64))


def runs_of(places: ArrayLike) -> Runs:
    """Return the runs of ascending places."""
    wanted = np.ascontiguousarray(places, np.int64)
    if not len(wanted):
        return NO_RUNS
    breaks = np.flatnonzero(np.diff(wanted) != 1)
    first = np.concatenate(([0], breaks + 1))
    last = np.concatenate((breaks, [len(wanted) - 1]))
    return Runs(wanted[first], wanted[last] + 1)


@kernel("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _unite(
    starts: Places, ends: Places, more_starts: Places, more_ends: Places, out_starts: Places, out_ends: Places
) -> int:
    """Merge two lists of runs; return how many runs come out.

    Each step takes one run of either list and writes at most one. The output is as long as both lists together, so
    `count`, which rises only when `a` or `b` does, stays in range.
    """
    a, b, count = 0, 0, 0
    while a < len(starts) or b < len(more_starts):
        if b == len(more_starts) or (a < len(starts) and starts[a] <= more_starts[b]):
            start, end = starts[a], ends[a]
            a += 1
        else:
            start, end = more_starts[b], more_ends[b]
            b += 1
        if count and start <= out_ends[count - 1]:
            out_ends[count - 1] = max(out_ends[count - 1], end)
        else:
            out_starts[count], out_ends[count] = start, end
            count += 1
    return count


@kernel("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _subtract(
    starts: Places, ends: Places, less_starts: Places, less_ends: Places, out_starts: Places, out_ends: Places
) -> int:
    """Subtract one list of runs from another; return how many runs are left.

    Every run of the first list ends at most one output run, and every run of the second list begins at most one more.
    The output is as long as both lists together, so its index stays in range.
    """
    b, count = 0, 0
    for a in range(len(starts)):
        start, end = starts[a], ends[a]
        while b < len(less_starts) and less_ends[b] <= start:
            b += 1
        at = b
        while at < len(less_starts) and less_starts[at] < end:
            if less_starts[at] > start:
                out_starts[count], out_ends[count] = start, less_starts[at]
                count += 1
            start = max(start, less_ends[at])
            at += 1
        # The last one may reach into the next run of the first list: `b` must not pass it.
        b = max(b, at - 1)
        if start < end:
            out_starts[count], out_ends[count] = start, end
            count += 1
    return count


def unite(one: Runs, other: Runs) -> Runs:
    """Return all places of both."""
    if not len(other.starts):
        return one
    if not len(one.starts):
        return other
    starts = np.empty(len(one.starts) + len(other.starts), np.int64)
    ends = np.empty_like(starts)
    count = _unite(*_contiguous(one), *_contiguous(other), starts, ends)
    return Runs(starts[:count], ends[:count])


def subtract(one: Runs, other: Runs) -> Runs:
    """Return the places of one that the other does not have."""
    if not len(one.starts) or not len(other.starts):
        return one
    starts = np.empty(len(one.starts) + len(other.starts), np.int64)
    ends = np.empty_like(starts)
    count = _subtract(*_contiguous(one), *_contiguous(other), starts, ends)
    return Runs(starts[:count], ends[:count])


def intersect(one: Runs, other: Runs) -> Runs:
    """Return the places that both have."""
    return subtract(one, subtract(one, other))


def _contiguous(runs: Runs) -> Runs:
    return Runs(np.ascontiguousarray(runs.starts), np.ascontiguousarray(runs.ends))


def first_places(runs: Runs, most: int, below: int) -> Runs:
    """Return the first places of runs, at most so many, that are below a place."""
    starts, ends = runs
    count = int(np.searchsorted(starts, below, "left"))
    if not count or most <= 0:
        return NO_RUNS
    reached = np.cumsum(ends[:count] - starts[:count])
    count = min(count, int(np.searchsorted(reached, most, "left")) + 1)
    taken = Runs(starts[:count].copy(), np.minimum(ends[:count], below))
    taken.ends[-1] -= max(0, taken.size - most)
    return taken


def by_record(runs: Runs) -> Iterator[tuple[int, Runs]]:
    """Yield the runs of each record, with its number."""
    if len(runs.starts):
        numbers = runs.starts >> ROW_BITS
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in itertools.pairwise(bounds):
            yield int(numbers[first]), Runs(runs.starts[first:last], runs.ends[first:last])


class RowSet:
    """A set of places. Adding at its end and removing from its start is cheap; other changes cost its length.

    Attributes:
        count: how many places there are.
    """

    __slots__ = ("_ends", "_first", "_last", "_starts", "count")

    def __init__(self, runs: Runs = NO_RUNS) -> None:
        self._set(runs)

    def _set(self, runs: Runs) -> None:
        room = max(4, 2 * len(runs.starts))
        self._starts, self._ends = np.empty(room, np.int64), np.empty(room, np.int64)
        self._first, self._last = 0, len(runs.starts)
        self._starts[: self._last], self._ends[: self._last] = runs.starts, runs.ends
        self.count = runs.size

    def __len__(self) -> int:
        return self.count

    @property
    def runs(self) -> Runs:
        """Return the set as it is now. The arrays are the set's own: copy them to keep them."""
        return Runs(self._starts[self._first : self._last], self._ends[self._first : self._last])

    @property
    def first(self) -> int:
        """Return the first place; -1 for none."""
        return int(self._starts[self._first]) if self.count else -1

    def append(self, runs: Runs) -> None:
        """Add places after all others."""
        size = len(runs.starts)
        if not size:
            return
        if self._last + size > len(self._starts):
            self._make_room(size)
        self._starts[self._last : self._last + size] = runs.starts
        self._ends[self._last : self._last + size] = runs.ends
        self._last += size
        self.count += runs.size

    def _make_room(self, size: int) -> None:
        kept = self.runs
        room = max(2 * (len(kept.starts) + size), 4)
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        starts[: len(kept.starts)], ends[: len(kept.starts)] = kept.starts, kept.ends
        self._starts, self._ends, self._first, self._last = starts, ends, 0, len(kept.starts)

    def front(self, most: int, below: int) -> Runs:
        """Return the first places, at most so many, that are below a place; they stay."""
        return first_places(self.runs, most, below)

    def drop_front(self, runs: Runs) -> None:
        """Remove what `front` has returned."""
        if not len(runs.starts):
            return
        whole = len(runs.starts) - 1
        at = self._first + whole
        if runs.ends[-1] == self._ends[at]:
            self._first = at + 1
        else:
            self._first = at
            self._starts[at] = runs.ends[-1]
        self.count -= runs.size

    def add(self, runs: Runs) -> None:
        """Add places anywhere."""
        last = int(self._ends[self._last - 1]) if self.count else -1
        if len(runs.starts) and runs.starts[0] > last:
            self.append(runs)
        else:
            self._set(unite(self.runs, runs))

    def remove(self, runs: Runs) -> int:
        """Remove places; return how many of them were there."""
        before = self.count
        if before and len(runs.starts):
            if len(runs.starts) == 1 and runs.starts[0] <= self.first and runs.ends[0] <= self._ends[self._first]:
                # The common case: the oldest ones, of one record.
                end = max(int(runs.ends[0]), self.first)
                self.drop_front(Runs(self._starts[self._first : self._first + 1].copy(), np.array([end])))
            else:
                self._set(subtract(self.runs, runs))
        return before - self.count

    def clear(self) -> None:
        """Remove all."""
        self._set(NO_RUNS)
