"""What a verdict depends on besides the records of the id: coverage, retention, links and subscriptions.

All of this is small compared with the messages, and travels with the functions that need it. Brokers record their
links and subscriptions again with each day of a trail. Workers read them, broker by broker, and return only the
intervals of presence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.pipeline.errors import DamagedFileError
from postroad.pipeline.units import Unit, done
from postroad.tracking import Presence
from postroad.trail import (
    DEFAULT_SKEW_MS,
    DEFAULT_TOLERANCE_MS,
    STANDING,
    STANDING_TABLES,
    Reads,
    TrailDamageError,
    TrailFile,
    standing_holes,
)
from postroad.trail.coverage import hides_late_entry
from postroad.trail.read_ahead import asked_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.pipeline.sources import Sources
    from postroad.tracking import Stays
    from postroad.trail import FileEntry, Hole, Run
    from postroad.trail.locations import Location

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["Context", "read_context"]


@dataclass(frozen=True, eq=False)
class Context:
    """What the driver knows about the whole trail.

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
        """Return when a broker may have seen a message, by its own clock."""
        return time - self.skew, time + self.tolerance + self.skew

    def neighbours_at(self, broker: int, time: int) -> tuple[int, ...]:
        """Return the links of a broker around an id time."""
        return self.links[broker].between(*self.window(time))

    def is_complete(self, broker: Ints, time: Ints) -> Bits:
        """Return, row by row, whether the broker's record around the id time is surely complete and not yet deleted.

        Surely complete: the whole window lies in one run and in no gap. Where this is False, the general rules may
        still find that nothing is missing, for example right after an orderly stop of the broker.
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

    def is_denied(self, origin: Ints, time: Ints) -> Bits:
        """Return, row by row, whether a message that left no trace surely never entered, at its time or later."""
        denied = self.is_complete(origin, time)
        for number in np.unique(origin[denied]).tolist():
            late = [hole.until for hole in self.holes[number] if hides_late_entry(hole.reason)]
            rows = np.flatnonzero(denied & (origin == number))
            denied[rows] = time[rows] - self.skew >= max(late, default=0)
        return denied


class _Standing(NamedTuple):
    """Who was linked and subscribed at a broker, and when the broker recorded all of them again."""

    links: Stays
    subscriptions: Stays
    repeated: frozenset[int]


# For each table: the column with the number of a link or subscription, and the column that marks a beginning.
_COLUMNS = {"links": ("neighbour", "up"), "subscriptions": ("subscription", "begins")}


def read_context(sources: Sources) -> Context:
    """Read what verdicts need besides the records of messages.

    Raises:
        DamagedFileError: a file of links or subscriptions cannot be read.
    """
    # Check all files first: a file that is left out later would be missing from the gaps.
    sources.check()
    standing = _standing(sources)
    # Filters are probed for those who were present. Where that is unknown, a negative answer proves nothing.
    with_filters = {source.broker for source in sources.of("filters")}
    holes: dict[int, tuple[Hole, ...]] = {}
    for broker, pinned in sources.pins.items():
        holes[broker] = (*pinned.holes, *sources.holes(broker))
        if broker in with_filters:
            holes[broker] += tuple(standing_holes(pinned.runs, pinned.holes, standing[broker].repeated))
    return Context(
        {broker: pinned.runs for broker, pinned in sources.pins.items()},
        holes,
        {broker: pinned.retained_since for broker, pinned in sources.pins.items()},
        {broker: here.links for broker, here in standing.items()},
        {broker: here.subscriptions for broker, here in standing.items()},
    )


def _standing(sources: Sources) -> dict[int, _Standing]:
    """Return who was present at each broker; workers read this if it is much."""
    files: dict[int, list[FileEntry]] = {broker: [] for broker in sources.pins}
    for table in STANDING_TABLES:
        for source in sources.of(table, always=True):
            files[source.broker].append(source.entry)
    starts = {broker: tuple(run.since for run in pinned.runs) for broker, pinned in sources.pins.items()}
    root, journalled = sources.root, _journalled_changes(sources)
    workers = sources.workers_for(entry for entries in files.values() for entry in entries)
    if workers is None:
        try:
            found = asked_together(
                root,
                files.items(),
                lambda one, reads: _standing_of(root, *one, starts[one[0]], reads, journalled.get(one[0], {})),
                sources.reads,
            )
            return dict(zip(files, found, strict=True))
        except TrailDamageError as error:
            raise DamagedFileError(error.path, error.problem) from error

    def read(_: int, unit: Unit) -> Iterator[tuple[int, _Standing]]:
        more = journalled.get(unit.broker, {})
        yield unit.broker, _standing_of(root, unit.broker, unit.entries, starts[unit.broker], Reads(), more)

    units = [Unit(broker, "", 0, tuple(entries)) for broker, entries in files.items()]
    return dict(sorted(done(workers, units, read), key=lambda one: one[0]))


def _journalled_changes(sources: Sources) -> dict[int, dict[str, list[tuple[int, int, int]]]]:
    """Return the arrivals and departures in journals: by broker and table, (number, time, whether it begins)."""
    found: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
    for table, (number, begins) in _COLUMNS.items():
        if table in sources.journalled:
            columns = (sources.journalled[table].column(name).to_pylist() for name in ("broker", number, "at", begins))
            for broker, which, at, what in zip(*columns, strict=True):
                found.setdefault(broker, {}).setdefault(table, []).append((which, at, what))
    return found


def _standing_of(
    root: Location,
    broker: int,
    entries: Sequence[FileEntry],
    starts: Sequence[int],
    reads: Reads,
    journalled: Mapping[str, list[tuple[int, int, int]]],
) -> _Standing:
    """Return who was present, by the files of one broker and by what its journal has beyond them.

    Raises:
        TrailDamageError: one of them cannot be read.
    """
    changes: dict[str, list[tuple[int, int, int]]] = {table: list(journalled.get(table, ())) for table in _COLUMNS}
    for entry in entries:
        number, begins = _COLUMNS[entry.table]
        rows = TrailFile(root, entry, broker, reads).read([number, "at", begins])
        changes[entry.table] += zip(*(rows.column(name).to_pylist() for name in (number, "at", begins)), strict=True)
    repeated = frozenset(at for rows in changes.values() for _, at, begins in rows if begins == STANDING)
    stays = {table: Presence.of(rows, starts).stays() for table, rows in changes.items()}
    return _Standing(stays["links"], stays["subscriptions"], repeated)
