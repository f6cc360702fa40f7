"""Passages that are runs, as a table: as many rows as they stand for, cut by date and into row groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.tracking import PassageRuns, Shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["RunTable"]


class RunTable(NamedTuple):
    """Stands where an Arrow table of passages stands otherwise."""

    runs: PassageRuns

    @property
    def num_rows(self) -> int:
        return int(self.runs.counts.sum())

    @property
    def nbytes(self) -> int:
        lists = sum(one.which.nbytes + one.lists.numbers.nbytes for one in self.runs.lists.values())
        return 6 * self.runs.counts.nbytes + lists

    def chosen(self, wanted: NDArray[np.bool_] | slice) -> RunTable:
        """Some of the runs."""
        counts, origin, time, publisher, counter, arrived_from, lists = self.runs
        return RunTable(
            PassageRuns(
                counts[wanted],
                origin[wanted],
                time[wanted],
                publisher[wanted],
                counter[wanted],
                arrived_from[wanted],
                {name: Shared(one.which[wanted], one.lists) for name, one in lists.items()},
            )
        )

    def portions(self, rows: int) -> Iterator[PassageRuns]:
        """So many rows each, and what is left; a run at the edge goes into both."""
        counts = self.runs.counts
        ends = np.cumsum(counts)
        for begin in range(0, int(ends[-1]), rows):
            end = min(begin + rows, int(ends[-1]))
            first, last = np.searchsorted(ends, begin, side="right"), np.searchsorted(ends, end, side="left")
            part = self.chosen(slice(int(first), int(last) + 1)).runs
            before = begin - int(ends[first] - counts[first])
            after = int(ends[last]) - end
            sizes, counters = part.counts.copy(), part.counter.copy()
            sizes[0] -= before
            counters[0] += before
            sizes[-1] -= after
            yield part._replace(counts=sizes, counter=counters)
