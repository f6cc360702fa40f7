"""What a job reads: the files that one pinned manifest of each broker names, checked before Spark sees them.

A job sees one state of the trail from beginning to end, whatever brokers and compactions commit meanwhile. A file that
is damaged, or has another format, stops the job, and the error names it. With `skip_damaged` it is left out and
reported.
"""

from __future__ import annotations

import datetime
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.pipeline.errors import DamagedFileError, EmptyRangeError, MissingTableError, PipelineError
from postroad.pipeline.units import Unit, done
from postroad.trail import (
    DAY_MS,
    DEFAULT_SKEW_MS,
    DEFAULT_TOLERANCE_MS,
    FOREVER,
    STANDING_TABLES,
    TABLES,
    Hole,
    Pinned,
    Reads,
    TrailDamageError,
    TrailFile,
    manifest_brokers,
    noted_brokers,
    pin_fitting,
)
from postroad.trail.coverage import UNREAD
from postroad.trail.locations import location
from postroad.trail.manifest_needs import is_met, unmet
from postroad.trail.read_ahead import asked_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from postroad.trail import FileEntry
    from postroad.trail.locations import Location
    from postroad.trail.spots import Spots

__all__ = ["Damage", "SourceFile", "Sources", "moment", "open_sources"]

# Reading a file is mostly waiting for the disk, and the checksum releases the interpreter lock.
_THREADS = 16
# If more bytes than this are to be compared, workers do it.
WORKERS_BYTES = 64 << 20
# Larger files of links and subscriptions are read by workers: as Python rows they take a hundred times as much.
STANDING_BYTES = 1 << 20
# A trail of more files than this is not small, whatever their sizes: each costs some milliseconds.
MAX_SMALL_FILES = 2_000
# Tables that a verdict on a message rests on.
_OF_VERDICTS = ("passages", "journeys", "shed", "records", "filters", *STANDING_TABLES)


class SourceFile(NamedTuple):
    """A file of the trail."""

    broker: int
    entry: FileEntry


class Damage(NamedTuple):
    """A file that was left out, and why; the broker's record is not complete for the id times of its rows."""

    path: str
    problem: str
    broker: int
    time_from: int
    time_to: int


@dataclass
class Sources:
    """The pinned state of a trail, and the range of times that a job is about.

    Attributes:
        root: the trail: a directory, or a folder of a store.
        pins: the manifest of each broker.
        since: the first id time that is wanted, in Unix ms.
        until: the first that is not.
        skip_damaged: leave out what cannot be read, instead of refusing to continue.
        damaged: what was left out so far.
        reads: what the driver itself read.
        workers: compare files with their checksums if they are large; without workers, the driver does it.
        journalled: rows of tables that journals have beyond the files, with `broker` and `run`: see
            `journals.with_journals`.
        pinned_ms: when the pins were taken, in Unix ms.
    """

    root: Location
    pins: dict[int, Pinned]
    since: int = 0
    until: int = FOREVER
    skip_damaged: bool = False
    damaged: list[Damage] = field(default_factory=list)
    reads: Reads = field(default_factory=Reads)
    workers: SparkSession | None = None
    journalled: Mapping[str, Any] = field(default_factory=dict)
    pinned_ms: int = 0
    _checked: dict[str, str] = field(default_factory=dict)
    _removed: Mapping[int, set[str]] = field(default_factory=dict)
    _added: Mapping[int, list[FileEntry]] = field(default_factory=dict)
    _found: dict[tuple[str, bool], list[SourceFile]] = field(default_factory=dict)
    _spots: Spots | None = None
    _compared_by_readers: bool = False

    def of(self, table: str, *, always: bool = False) -> list[SourceFile]:
        """Return the files of a table with rows between `since` and `until`; with `always`, of all times.

        Raises:
            DamagedFileError: one of them cannot be read.
        """
        if (table, always) not in self._found:
            self._found[table, always] = self._good(self._named(table, always=always))
        return list(self._found[table, always])

    def asked(self, spots: Spots) -> Sources:
        """Return the same trail for a question about some minutes of origins: no other files are examined."""
        return replace(self, _spots=spots, _checked=dict(self._checked), _found={})

    def read_here(self) -> Sources:
        """Return the same trail for a caller that reads it all with pyarrow, and checks files as it reads."""
        return replace(self, _compared_by_readers=True, _checked=dict(self._checked), _found={})

    def _times(self, table: str, always: bool) -> tuple[int, int]:
        """Return the times that the files of a table are chosen by."""
        if table in STANDING_TABLES and self._spots is not None:
            # Links and subscriptions are recorded again with each day, so their state is known from the start of the
            # day.
            first = self._spots.since - DEFAULT_SKEW_MS
            last = self._spots.until + DEFAULT_TOLERANCE_MS + DEFAULT_SKEW_MS
            return max(0, first // DAY_MS * DAY_MS), last
        return (0, FOREVER) if always else (self.since, self.until - 1)

    def _named(self, table: str, *, always: bool) -> list[SourceFile]:
        since, until = self._times(table, always)
        among = self._spots if TABLES[table].origin and not always else None
        found = []
        for broker, pinned in self.pins.items():
            entries, holes = pinned.entries(table, None, since, until, self.reads, among)
            for hole in holes:
                self.leave_out(_part_damage(pinned, hole))
            gone = self._removed.get(broker, ())
            found += [SourceFile(broker, entry) for entry in entries if entry.path not in gone]
            found += [
                SourceFile(broker, entry)
                for entry in self._added.get(broker, ())
                if entry.table == table
                and entry.time_from <= until
                and entry.time_to >= since
                and (among is None or any(among.has(one.origin, one.time_from, one.time_to) for one in entry.groups))
            ]
        return found

    def changed(self, removed: Mapping[int, set[str]], added: Mapping[int, list[FileEntry]]) -> Sources:
        """Return the trail with some files removed and some added, as a future manifest would have it."""
        return replace(self, _removed=removed, _added=added, _checked=dict(self._checked), _found={})

    def inside(self, table: str) -> list[SourceFile]:
        """Return the files of a table whose rows all lie between `since` and `until`, each with all its groups.

        Callers that remove files must use this: `of` also returns files that begin or end outside, cut to what fits.

        Raises:
            DamagedFileError: one of them cannot be read.
        """
        found = []
        for broker, pinned in self.pins.items():
            entries, holes = pinned.all_entries(table)
            for hole in holes:
                self.leave_out(_part_damage(pinned, hole))
            gone = self._removed.get(broker, ())
            kept = [entry for entry in entries if entry.path not in gone]
            kept += [entry for entry in self._added.get(broker, ()) if entry.table == table]
            found += [SourceFile(broker, entry) for entry in kept if self._covers(entry)]
        return self._good(found)

    def _covers(self, entry: FileEntry) -> bool:
        # If a part of the manifest is lost, its groups are lost too, and nothing is sure about such a file. Late ids in
        # filters have groups of their own, without rows.
        whole = entry.table == "filters" or sum(group.rows for group in entry.groups) == entry.rows
        return whole and self.since <= entry.time_from and entry.time_to < self.until

    def all_entries(self) -> dict[int, list[FileEntry]]:
        """Return every file of each broker, whatever its time."""
        found = {}
        for broker, pinned in self.pins.items():
            gone = self._removed.get(broker, ())
            kept = [entry for entry in pinned.all_entries()[0] if entry.path not in gone]
            found[broker] = [*kept, *self._added.get(broker, ())]
        return found

    def messages(self) -> int:
        """Estimate from the manifests how many messages the exact record has between `since` and `until`.

        Each has a journey, or a passage at its origin, or several if something was recorded later.
        """
        journeys = sum(source.entry.rows for source in self._named("journeys", always=False))
        passages = (
            group.rows
            for source in self._named("passages", always=False)
            for group in source.entry.groups
            if group.origin == source.broker
        )
        return journeys + sum(passages)

    def is_small(self, size: int) -> bool:
        """Return whether all files of the trail together have at most this many bytes; many files never do.

        Looks at few entries of the manifests, however large the trail is.
        """
        checkpoints = [pinned.checkpoint for pinned in self.pins.values() if pinned.checkpoint]
        listed = sum(count for one in checkpoints for part in one.parts for count in part.tables.values())
        if listed > MAX_SMALL_FILES:
            return False
        return sum(entry.size for here in self.all_entries().values() for entry in here) <= size

    @property
    def is_bounded(self) -> bool:
        """Return whether the job covers only a part of the time."""
        return self.since > 0 or self.until < FOREVER

    def named(self, table: str, *, always: bool = False) -> list[SourceFile]:
        """Return what `of` returns, from the manifests alone, without looking at any file."""
        return self._named(table, always=always)

    def has_any(self, tables: Iterable[str]) -> bool:
        """Return whether the manifests name a relevant file of one of some tables, or a journal has rows of it."""
        return any(name in self.journalled or self._named(name, always=False) for name in tables)

    def need(self, tables: Iterable[str], needed_for: str) -> list[str]:
        """Return those tables that have rows between `since` and `until`: at least one.

        Raises:
            MissingTableError: the trail has none of them.
            EmptyRangeError: it has, but for other times.
        """
        names = list(tables)
        found = [name for name in names if self._named(name, always=False)]
        if found:
            return found
        entries = [entry for here in self.all_entries().values() for entry in here if entry.table in names]
        if not entries:
            raise MissingTableError(self.root, names[0], needed_for)
        first, last = min(entry.time_from for entry in entries), max(entry.time_to for entry in entries)
        raise EmptyRangeError(
            f"{self.root}: nothing between {moment(self.since)} and {moment(self.until)}; "
            f"the trail has {moment(first)} to {moment(last)}"
        )

    def read(self, source: SourceFile, columns: Sequence[str]) -> Any:
        """Return columns of a file, for the driver itself.

        Raises:
            DamagedFileError: it cannot be read; it is not left out, because it was whole a moment ago.
        """
        try:
            return TrailFile(self.root, source.entry, source.broker, self.reads).read(columns)
        except TrailDamageError as error:
            raise DamagedFileError(error.path, error.problem) from error

    @property
    def directory(self) -> Path:
        """Return the directory of the trail, for jobs that change it.

        Raises:
            PipelineError: it is in a store.
        """
        if isinstance(self.root, Path):
            return self.root
        # Stores, as pyarrow uses them, cannot refuse a name that somebody else just took. So this job and the broker
        # could overwrite each other's manifest with the next number.
        raise PipelineError(
            f"{self.root}: only brokers write here, and would write over what others change; compact the directory "
            "that each of them writes its trail to, and what they ship follows (docs/pipeline.md, Stores)"
        )

    def is_far(self, source: SourceFile) -> bool:
        """Return whether a file is in a store: the whole trail, or only this file after its local copy was dropped."""
        return not isinstance(self.root, Path) or not (self.root / source.entry.path).exists()

    def _good(self, found: list[SourceFile]) -> list[SourceFile]:
        fresh = [source for source in found if source.entry.path not in self._checked]
        if not self.skip_damaged and (self._compared_by_readers or not isinstance(self.root, Path)):
            # A reader with pyarrow compares the file first, and stops if it differs from what was written.
            return found
        for source, problem in zip(fresh, self._problems(fresh), strict=True):
            self._checked[source.entry.path] = problem
            if problem:
                path, entry = str(self.root / source.entry.path), source.entry
                until = entry.time_to + 1
                if entry.table in STANDING_TABLES:
                    # An arrival counts until the next day begins, when the broker records everybody present again.
                    until = (entry.time_to // DAY_MS + 1) * DAY_MS
                self.leave_out(Damage(path, problem, source.broker, entry.time_from, until))
        return [source for source in found if not self._checked[source.entry.path]]

    def _problems(self, files: list[SourceFile]) -> list[str]:
        """Return what is wrong with each file; mostly nothing."""
        root = self.root
        if self.workers is None or sum(source.entry.size for source in files) < WORKERS_BYTES:
            with ThreadPoolExecutor(_THREADS) as threads:
                return list(threads.map(lambda source: _problem(root, source), files))

        def look(_: int, unit: Unit) -> Iterator[tuple[str, str]]:
            for entry in unit.entries:
                problem = _problem(root, SourceFile(unit.broker, entry))
                if problem:
                    yield entry.path, problem

        units = [Unit(one.broker, one.entry.table, one.entry.day, (one.entry,)) for one in files]
        found = dict(done(self.workers, units, look))
        return [found.get(one.entry.path, "") for one in files]

    def holes(self, broker: int) -> list[Hole]:
        """Return the gaps that the files left out cause."""
        return [
            Hole(lost.time_from, lost.time_to, f"{UNREAD}{PurePosixPath(lost.path).name}")
            for lost in self.damaged
            if lost.broker == broker
        ]

    def check(self) -> None:
        """Check all files that a verdict on a message may rest on, so that all damage is known.

        Raises:
            DamagedFileError: one of them cannot be read.
        """
        for name in _OF_VERDICTS:
            self.of(name, always=name in STANDING_TABLES)

    def absent(self) -> list[int]:
        """Return brokers that others name as neighbours or origins, and that have no record here.

        Raises:
            DamagedFileError: a file of links cannot be read.
        """
        named = self._neighbours(self.of("links", always=True))
        for pinned in self.pins.values():
            named |= pinned.origins(_OF_VERDICTS, self.reads)
        try:
            named |= noted_brokers(self.root)
        except TrailDamageError as error:
            self.leave_out(Damage(error.path, error.problem, 0, 0, 0))
        return sorted(named - self.pins.keys())

    def workers_for(self, entries: Iterable[FileEntry]) -> SparkSession | None:
        """Return workers, if files of links and subscriptions are too large for the driver to read."""
        return self.workers if sum(entry.size for entry in entries) >= STANDING_BYTES else None

    def _neighbours(self, links: list[SourceFile]) -> set[int]:
        """Return the brokers that files of links name; workers read them if they are large."""
        workers = self.workers_for(one.entry for one in links)
        if workers is None:
            try:
                found = asked_together(self.root, links, _neighbours_in(self.root), self.reads)
            except TrailDamageError as error:
                raise DamagedFileError(error.path, error.problem) from error
            return set().union(*found)
        root = self.root

        def read(_: int, unit: Unit) -> Iterator[int]:
            for entry in unit.entries:
                yield from _neighbours_in(root)(SourceFile(unit.broker, entry), Reads())

        units = [Unit(one.broker, "links", one.entry.day, (one.entry,)) for one in links]
        return set(done(workers, units, read))

    def leave_out(self, damage: Damage) -> None:
        """Continue without a file.

        Raises:
            DamagedFileError: `skip_damaged` is off.
        """
        if not self.skip_damaged:
            raise DamagedFileError(damage.path, damage.problem)
        if damage not in self.damaged:
            self.damaged.append(damage)


def open_sources(
    trail: str | Location, since: int | None = None, until: int | None = None, *, skip_damaged: bool = False
) -> Sources:
    """Pin the manifests of all brokers of a trail.

    Args:
        trail: its directory, or where it is in a store.
        since: the first id time that is wanted, in Unix ms; all by default.
        until: the first that is not.
        skip_damaged: leave out what cannot be read.

    Raises:
        PipelineError: this is not a trail, it has another format, or the range is empty.
        DamagedFileError: a manifest cannot be read.
    """
    # Executors have working directories of their own.
    root = location(trail).absolute()
    numbers = manifest_brokers(root)
    if not numbers:
        raise PipelineError(f"{root}: is not a trail (there is no {root / 'manifests'} with a broker in it)")
    if since is not None and until is not None and since >= until:
        raise EmptyRangeError(f"nothing lies between {moment(since)} and {moment(until)}; give --since before --until")
    reads, pinned_ms = Reads(), int(time.time() * 1_000)
    found = asked_together(root, numbers, lambda one, counts: pin_fitting(root, one, counts), reads)
    pins = _consistent(root, dict(zip(numbers, found, strict=True)), reads)
    times = since or 0, until or FOREVER
    sources = Sources(root, dict(sorted(pins.items())), *times, skip_damaged, reads=reads, pinned_ms=pinned_ms)
    for pinned in sources.pins.values():
        if pinned.other_version:
            raise PipelineError(f"{pinned.folder} has another format; run the pipeline of the Postroad that wrote it")
        for warning in pinned.warnings:
            path, _, problem = warning.partition(": ")
            sources.leave_out(Damage(path, problem, pinned.broker, 0, 0))
    return sources


def _consistent(root: Location, pins: dict[int, Pinned], reads: Reads) -> dict[int, Pinned]:
    """Return pins of which none rests on what another one lacks, or with holes where that is so.

    One manifest is pinned after the other: a compaction may have changed them in between.
    """
    needs = [need for pinned in pins.values() for need in pinned.needs]
    for number in {need.broker for need in needs if need.broker in pins and not is_met(need, pins[need.broker])}:
        pins[number] = pin_fitting(root, number, reads)
    return with_unmet(pins)


def with_unmet(pins: Mapping[int, Pinned]) -> dict[int, Pinned]:
    """Return pins with holes where one rests on what another one lacks."""
    lacking = {broker: unmet(pinned, pins) for broker, pinned in pins.items()}
    return {broker: one._replace(holes=(*one.holes, *lacking[broker])) for broker, one in pins.items()}


def _problem(root: Location, source: SourceFile) -> str:
    """Return what is wrong with a file; mostly nothing.

    The whole file is compared with its checksum here, before anybody reads it: Spark's reader checks only the checksums
    of pages, which do not cover their headers.
    """
    try:
        TrailFile(root, source.entry, source.broker, Reads()).verify()
    except TrailDamageError as error:
        return error.problem
    return ""


def _neighbours_in(root: Location) -> Callable[[SourceFile, Reads], set[int]]:
    """Return what reads the brokers that a file of links names."""

    def read(source: SourceFile, reads: Reads) -> set[int]:
        rows = TrailFile(root, source.entry, source.broker, reads).read(["neighbour"])
        return {int(number) for number in rows.column(0).to_pylist()}

    return read


def _part_damage(pinned: Pinned, hole: Hole) -> Damage:
    """Describe a part of a manifest that cannot be read; the latest damage comes last."""
    path, _, problem = (pinned.warnings or [f"{pinned.folder}: {hole.reason}"])[-1].partition(": ")
    return Damage(path, problem, pinned.broker, hole.since, hole.until)


def moment(ms: int) -> str:
    """Format a time for people."""
    if ms <= 0:
        return "the beginning"
    if ms >= FOREVER:
        return "the end"
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
