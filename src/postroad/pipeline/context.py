"""What the verdict on an id depends on beside the records of that id: coverage, retention, links, subscriptions.

All of it is small against the messages. It is read once by the driver and travels with the functions that need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking import Presence
from postroad.trail import DEFAULT_SKEW_MS, DEFAULT_TOLERANCE_MS, STANDING, standing_holes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.pipeline.sources import SourceFile, Sources
    from postroad.tracking import Stays
    from postroad.trail import Hole, Run

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["Context", "read_context"]


@dataclass(frozen=True, eq=False)
class Context:
    """What the driver knows of the whole trail.

    Attributes:
        runs: broker -> the times its record covers.
        holes: broker -> times in these for which it is not complete.
        retained_since: broker -> id times before this are deleted.
        links: broker -> its links over time.
        subscriptions: broker -> its subscriptions over time.
        tolerance: how long after its id's time, in ms, a message may still be on its way.
        skew: how far the clocks of brokers may be apart.
    """

    runs: dict[int, tuple[Run, ...]]
    holes: dict[int, tuple[Hole, ...]]
    retained_since: dict[int, int]
    links: dict[int, Stays]
    subscriptions: dict[int, Stays]
    tolerance: int = DEFAULT_TOLERANCE_MS
    skew: int = DEFAULT_SKEW_MS

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self.runs)

    def window(self, time: int) -> tuple[int, int]:
        """When a broker may have seen a message, by its own clock."""
        return time - self.skew, time + self.tolerance + self.skew

    def neighbours_at(self, broker: int, time: int) -> tuple[int, ...]:
        """The links of a broker around an id time."""
        return self.links[broker].between(*self.window(time))

    def is_complete(self, broker: Ints, time: Ints) -> Bits:
        """Whether the records of the brokers are surely complete around the id times and not yet deleted; row by row.

        Surely: the whole window lies in one run and in no hole. Where this says no, the general rules may still find
        that nothing is hidden, as right after a broker was stopped on purpose.
        """
        complete = np.zeros(len(broker), np.bool_)
        for number in np.unique(broker).tolist():
            if number in self.runs:
                rows = np.flatnonzero(broker == number)
                complete[rows] = self._is_complete(number, time[rows])
        return complete

    def _is_complete(self, broker: int, time: Ints) -> Bits:
        since, until = time - self.skew, time + self.tolerance + self.skew
        covered = np.zeros(len(time), np.bool_)
        for run in self.runs[broker]:
            covered |= (run.since <= since) & (until <= run.through)
        for hole in self.holes[broker]:
            covered &= (hole.until <= since) | (until <= hole.since)
        return covered & (time >= self.retained_since[broker])


def read_context(sources: Sources) -> Context:
    """Read what the driver needs to know.

    Raises:
        DamagedFileError: a file of the links or subscriptions cannot be read.
    """
    # What is left out later would be missing in the holes.
    sources.check()
    links = _rows(sources, "links", "neighbour", "up")
    subscriptions = _rows(sources, "subscriptions", "subscription", "begins")
    # Filters are asked about those who were there: where that is not known, a no of theirs is no proof.
    with_filters = {source.broker for source in sources.of("filters")}
    holes: dict[int, tuple[Hole, ...]] = {}
    for broker, pinned in sources.pins.items():
        holes[broker] = (*pinned.holes, *sources.holes(broker))
        if broker in with_filters:
            repeated = {at for _, at, begins in (*links[broker], *subscriptions[broker]) if begins == STANDING}
            holes[broker] += tuple(standing_holes(pinned.runs, pinned.holes, repeated))
    starts = {broker: [run.since for run in pinned.runs] for broker, pinned in sources.pins.items()}
    return Context(
        {broker: pinned.runs for broker, pinned in sources.pins.items()},
        holes,
        {broker: pinned.retained_since for broker, pinned in sources.pins.items()},
        {broker: Presence.of(rows, starts[broker]).stays() for broker, rows in links.items()},
        {broker: Presence.of(rows, starts[broker]).stays() for broker, rows in subscriptions.items()},
    )


def _rows(sources: Sources, table: str, number: str, begins: str) -> dict[int, list[tuple[int, int, int]]]:
    """(number, when, whether it begins) of each broker."""
    files: dict[int, list[SourceFile]] = {broker: [] for broker in sources.pins}
    for source in sources.of(table, always=True):
        files[source.broker].append(source)
    return {broker: _changes(sources, here, number, begins) for broker, here in files.items()}


def _changes(sources: Sources, files: Sequence[SourceFile], number: str, begins: str) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for source in files:
        found = sources.read(source, [number, "at", begins])
        rows += zip(*(found.column(name).to_pylist() for name in (number, "at", begins)), strict=True)
    return rows
