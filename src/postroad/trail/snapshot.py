"""One state of a broker's manifest, pinned: a reader sees the same while writers continue.

What is damaged is named in `warnings` and becomes a hole in the coverage: never an error, never a confident no.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.trail.checkpoint_parts import WIDE, open_part, origins_in, read_part
from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import FOREVER, Hole, Run, joined
from postroad.trail.errors import TrailDamageError, TrailVersionError
from postroad.trail.file_reader import Reads, VerifiedFile
from postroad.trail.files import FileEntry, origins_of
from postroad.trail.locations import relative
from postroad.trail.manifest import Change, Checkpoint, Need, Part, manifest_folder, numbers
from postroad.trail.manifest_chain import Chain
from postroad.trail.paths import refuse_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.trail.files import Group
    from postroad.trail.locations import Location
    from postroad.trail.spots import Spots

__all__ = ["DAMAGED_MANIFEST", "Pinned", "pin"]

DAMAGED_MANIFEST = "a manifest is missing or damaged"


class Pinned(NamedTuple):
    """A broker's manifest at one number.

    Attributes:
        broker: whose.
        folder: of its manifests.
        number: 0 when there is no manifest.
        checkpoint: the last readable one, if any.
        changes: those after it, in order.
        runs: the lives of the broker.
        holes: times for which the record is not complete, with those that damage made.
        retained_since: id times before this are deleted.
        warnings: what was damaged, by name.
        other_version: a Postroad of another format wrote some of the manifests.
        opened: parts that were read from, by path.
    """

    broker: int
    folder: Location
    number: int
    checkpoint: Checkpoint | None
    changes: tuple[Change, ...]
    runs: tuple[Run, ...]
    holes: tuple[Hole, ...]
    retained_since: int
    warnings: list[str]
    other_version: bool
    opened: dict[str, VerifiedFile]

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the manifest rests on in those of other brokers, one for each."""
        summed_up = self.checkpoint.needs if self.checkpoint else ()
        return Need.joined([*summed_up, *(need for change in self.changes for need in change.needs)])

    def removed(self) -> set[str]:
        """Files that the checkpoint still names and a later change took out."""
        return {gone.path for change in self.changes for gone in change.removed}

    def entries(
        self, table: str, origin: int | None, since: int, until: int, reads: Reads, among: Spots | None = None
    ) -> tuple[list[FileEntry], list[Hole]]:
        """Files with something of the table, the origin and the id times; and holes where a part was damaged.

        The groups of each entry are those that fit; with `among`, those that have one of its minutes.
        """
        gone = self.removed()
        parts = self._parts_between(since, until)
        found, holes = self.from_parts(parts, reads, table, origin, (since, until), among)
        named = [*found, *(entry for change in self.changes for entry in change.added if entry.table == table)]
        fitting: dict[str, FileEntry] = {}
        asked = _asked_groups(named, among)
        for entry in named:
            groups = [
                group
                for group in entry.groups
                if next(asked)
                and (origin is None or group.origin == origin)
                and group.time_from <= until
                and group.time_to >= since
            ]
            if groups and entry.path not in gone:
                fitting[entry.path] = _merged(fitting.get(entry.path), entry, groups)
        return list(fitting.values()), holes

    def numbered(self, table: str, number: int, reads: Reads) -> Iterator[FileEntry]:
        """Files of a table whose range of numbers has this one, the latest days first, looked up when asked for."""
        gone = self.removed()
        recent = [entry for change in reversed(self.changes) for entry in change.added if entry.table == table]
        yield from _with_number(recent, number, gone)
        for part in reversed(self.checkpoint.parts if self.checkpoint else ()):
            low, high = part.numbers.get(table, (1, 0))
            if low <= number <= high:
                yield from _with_number(self.from_parts([part], reads, table)[0], number, gone)

    def all_entries(self, table: str | None = None, reads: Reads | None = None) -> tuple[list[FileEntry], list[Hole]]:
        """Every file that counts, whole. Reads the whole manifest: for jobs over all of the trail."""
        gone = self.removed()
        parts = self.checkpoint.parts if self.checkpoint else ()
        found, holes = self.from_parts(parts, reads or Reads(), table)
        live: dict[str, FileEntry] = {}
        for entry in [*found, *(entry for change in self.changes for entry in change.added)]:
            if entry.path not in gone and table in (None, entry.table):
                live[entry.path] = _merged(live.get(entry.path), entry, entry.groups)
        return list(live.values()), holes

    def origins(self, tables: Iterable[str], reads: Reads) -> set[int]:
        """The brokers where messages entered, by some tables, at any time; damaged parts are skipped.

        Costs no object for each file, however many there are.
        """
        wanted = set(tables)
        found = origins_of(entry for change in self.changes for entry in change.added if entry.table in wanted)
        for part in self.checkpoint.parts if self.checkpoint else ():
            with suppress(TrailDamageError):
                if part.path not in self.opened:
                    self.opened[part.path] = open_part(self.folder, part, reads)
                found |= origins_in(self.opened[part.path], wanted)
        return found

    def _parts_between(self, since: int, until: int) -> list[Part]:
        if self.checkpoint is None:
            return []
        first, last = since // DAY_MS, until // DAY_MS
        return [part for part in self.checkpoint.parts if part.day == WIDE or first <= part.day <= last]

    def from_parts(
        self,
        parts: Iterable[Part],
        reads: Reads,
        table: str | None = None,
        origin: int | None = None,
        times: tuple[int, int] | None = None,
        among: Spots | None = None,
    ) -> tuple[list[FileEntry], list[Hole]]:
        """The entries of some parts, of one table, origin and time if said; and holes where a part is damaged."""
        found: list[FileEntry] = []
        holes: list[Hole] = []
        for part in parts:
            if table is not None and table not in part.tables:
                continue
            try:
                if part.path not in self.opened:
                    self.opened[part.path] = open_part(self.folder, part, reads)
                found += read_part(self.opened[part.path], self.broker, table, origin, times, among)
            except TrailDamageError as error:
                if str(error) not in self.warnings:
                    self.warnings.append(str(error))
                since, until = (0, FOREVER) if part.day == WIDE else (part.day * DAY_MS, (part.day + 1) * DAY_MS)
                holes.append(Hole(since, until, DAMAGED_MANIFEST))
        return found, holes


def _asked_groups(entries: Iterable[FileEntry], among: Spots | None) -> Iterator[bool]:
    """Whether each group of the entries, one after the other, has something of some minutes; of any, if not said."""
    if among is None:
        return repeat(True)
    groups = [(group.origin, group.time_from, group.time_to) for entry in entries for group in entry.groups]
    columns = np.array(groups, np.int64).reshape(-1, 3).T
    return iter(among.within(*columns).tolist())


def _with_number(entries: Iterable[FileEntry], number: int, gone: set[str]) -> Iterator[FileEntry]:
    for entry in entries:
        groups = [group for group in entry.groups if group.number_from <= number <= group.number_to]
        if groups and entry.path not in gone:
            yield _merged(None, entry, groups)


def _merged(known: FileEntry | None, entry: FileEntry, groups: Iterable[Group]) -> FileEntry:
    """An entry with the given groups, and those known already: parts of several days name different ones."""
    have = {*(known.groups if known else ()), *groups}
    ordered = tuple(sorted(have, key=lambda group: (group.index, group.origin, group.time_from)))
    return FileEntry(entry.path, entry.table, entry.day, entry.rows, entry.size, entry.footer_crc, ordered, entry.crc)


def pin(root: Location, broker: int, reads: Reads | None = None) -> Pinned:
    """The latest state of a broker's manifest that can be read."""
    folder = manifest_folder(root, broker)
    chain = Chain(root, folder, broker, reads)
    changed, checkpoints = _numbers(root, folder, chain.troubles)
    checkpoint = chain.latest_checkpoint(checkpoints)
    head = max([*changed[-1:], *checkpoints[-1:], 0])
    links = chain.links(checkpoint, changed)
    changes = [link.change for link in links if link.change is not None]
    broken = chain.breaks(checkpoint.number if checkpoint else 0, links, head)
    runs = checkpoint.runs if checkpoint else ()
    holes = list(checkpoint.holes if checkpoint else ())
    retained = checkpoint.retained_since if checkpoint else 0
    for place, change in enumerate(changes):
        if place in broken:
            holes.append(_hole_before(runs, changes[place:]))
        if change.run is not None:
            runs = joined(runs, change.run)
        holes += change.holes
        retained = max(retained, change.retained_since)
    if len(changes) in broken:
        holes.append(_hole_before(runs, []))
    warnings = [str(trouble) for trouble in chain.troubles]
    other = any(isinstance(trouble, TrailVersionError) for trouble in chain.troubles)
    return Pinned(broker, folder, head, checkpoint, tuple(changes), runs, tuple(holes), retained, warnings, other, {})


def _numbers(root: Location, folder: Location, troubles: list[TrailDamageError]) -> tuple[list[int], list[int]]:
    try:
        refuse_links(root, relative(folder, root))
    except TrailDamageError as error:
        troubles.append(error)
        return [], []
    return numbers(folder)


def _hole_before(runs: tuple[Run, ...], later: list[Change]) -> Hole:
    """What a lost change may have covered: from where the record stood before it to where it stands after."""
    since = max((run.through for run in runs), default=0)
    until = next((max(change.run.through, change.reached) for change in later if change.run is not None), FOREVER)
    return Hole(since, max(since, until), DAMAGED_MANIFEST)
