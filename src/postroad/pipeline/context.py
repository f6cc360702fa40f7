"""What the verdict on an id depends on beside the records of that id: coverage, retention, links, subscriptions.

All of it is small against the messages. It is read once by the driver and travels with the functions that need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from postroad.tracking import Gap
from postroad.trail import FOREVER, gaps_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from postroad.pipeline.sources import Source, Sources

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["Context", "Stays", "read_context"]

# A broker sees an id some time after its publisher made it, by another clock. A record counts as complete for an id when
# it is from so long before the id's time until so long after it.
BEFORE_MS = 0
AFTER_MS = 0


class Stays(NamedTuple):
    """The times between which numbered things were there: links of a broker, or its subscribers.

    Attributes:
        number: of each stay.
        since: when it began.
        until: when it ended; `FOREVER` where it goes on.
    """

    number: Ints
    since: Ints
    until: Ints

    @classmethod
    def of(cls, changes: Iterable[tuple[int, int, int]]) -> Stays:
        """From (number, when, whether it begins) in order of time. A second beginning changes nothing."""
        here: dict[int, int] = {}
        ended: list[tuple[int, int, int]] = []
        for number, at, begins in changes:
            if begins:
                here.setdefault(number, at)
            elif number in here:
                ended.append((number, here.pop(number), at))
        rows = np.array(ended + [(number, at, FOREVER) for number, at in here.items()], np.int64).reshape(-1, 3)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        return cls(rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy())

    def between(self, since: int, until: int) -> tuple[int, ...]:
        """Who was there at any time from `since` to `until`, ascending."""
        here = (self.since <= until) & (self.until >= since)
        return tuple(np.unique(self.number[here]).tolist())


@dataclass(frozen=True, eq=False)
class Context:
    """What the driver knows of the whole trail.

    Attributes:
        gaps: broker -> all times for which its record is not complete, in order.
        retained_since: broker -> id times before this are deleted.
        links: broker -> its links over time.
        subscribers: broker -> its subscribers over time.
    """

    gaps: dict[int, tuple[Gap, ...]]
    retained_since: dict[int, int]
    links: dict[int, Stays]
    subscribers: dict[int, Stays]

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self.gaps)

    def gaps_at(self, broker: int, time: int) -> tuple[Gap, ...]:
        """The gaps of a broker's record around an id time."""
        since, until = time - BEFORE_MS, time + AFTER_MS
        return tuple(gap for gap in self.gaps[broker] if gap.since <= until and gap.until >= since)

    def neighbours_at(self, broker: int, time: int) -> tuple[int, ...]:
        """The links of a broker around an id time."""
        return self.links[broker].between(time - BEFORE_MS, time + AFTER_MS)

    def is_complete(self, broker: Ints, time: Ints) -> Bits:
        """Whether the records of the brokers are complete around the id times, and not yet deleted; row by row."""
        complete = np.zeros(len(broker), np.bool_)
        for number in np.unique(broker):
            if int(number) not in self.gaps:
                continue
            rows = np.flatnonzero(broker == number)
            complete[rows] = self._is_complete(int(number), time[rows])
        return complete

    def _is_complete(self, broker: int, time: Ints) -> Bits:
        gaps = self.gaps[broker]
        begins = np.sort(np.array([gap.since for gap in gaps], np.int64))
        ends = np.sort(np.array([gap.until for gap in gaps], np.int64))
        begun = np.searchsorted(begins, time + AFTER_MS, side="right")
        ended = np.searchsorted(ends, time - BEFORE_MS, side="left")
        return (begun == ended) & (time >= self.retained_since[broker])


def read_context(sources: Sources) -> Context:
    """Read what the driver needs to know.

    Raises:
        DamagedFileError: a file of the links or attachments cannot be read.
    """
    brokers = list(sources.pins)
    return Context(
        {
            broker: gaps_within(pinned.runs, [*pinned.holes], 0, FOREVER)
            for broker, pinned in sources.pins.items()
        },
        {broker: pinned.retained_since for broker, pinned in sources.pins.items()},
        _stays(sources, "links", "neighbour", "up", brokers),
        _stays(sources, "attachments", "subscriber", "begins", brokers),
    )


def _stays(sources: Sources, table: str, number: str, begins: str, brokers: Sequence[int]) -> dict[int, Stays]:
    files: dict[int, list[Source]] = {broker: [] for broker in brokers}
    for source in sources.of(table, always=True):
        files[source.broker].append(source)
    return {broker: Stays.of(_changes(sources, here, number, begins)) for broker, here in files.items()}


def _changes(sources: Sources, files: Sequence[Source], number: str, begins: str) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for path in sources.paths(files):
        found = pq.ParquetFile(path).read(columns=[number, "at", begins])
        rows += zip(*(found.column(name).to_pylist() for name in (number, "at", begins)), strict=True)
    # An end and a beginning in the same millisecond: the end is of what was there before.
    return sorted(rows, key=lambda row: (row[1], row[2]))
