"""One state of a broker's manifest, pinned: what a reader sees stays the same while writers go on.

What is damaged is named in `warnings` and becomes a hole in the coverage: never an error, never a confident no.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import FOREVER, Hole, Run, joined
from postroad.trail.errors import TrailDamageError, TrailVersionError
from postroad.trail.files import FileEntry
from postroad.trail.manifest import (
    Change,
    Checkpoint,
    Kind,
    Part,
    change_name,
    checkpoint_name,
    decoded,
    manifest_folder,
    numbers,
)
from postroad.trail.opened import Reads, VerifiedFile
from postroad.trail.parts import WIDE, open_part, read_part
from postroad.trail.paths import refuse_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from postroad.trail.files import Group

__all__ = ["DAMAGED_MANIFEST", "Pinned", "pin"]

DAMAGED_MANIFEST = "a manifest is missing or damaged"
FOREIGN = "belongs to another trail: it does not fit the manifests beside it"


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
        later_version: a later Postroad wrote some of the manifests.
        opened: parts that were read from, by path.
    """

    broker: int
    folder: Path
    number: int
    checkpoint: Checkpoint | None
    changes: tuple[Change, ...]
    runs: tuple[Run, ...]
    holes: tuple[Hole, ...]
    retained_since: int
    warnings: list[str]
    later_version: bool
    opened: dict[str, VerifiedFile]

    def removed(self) -> set[str]:
        """Files that the checkpoint still names and a later change took out."""
        return {gone.path for change in self.changes for gone in change.removed}

    def entries(
        self, table: str, origin: int | None, since: int, until: int, reads: Reads
    ) -> tuple[list[FileEntry], list[Hole]]:
        """Files with something of the table, the origin and the id times; and holes where a part was damaged.

        The groups of each entry are those that fit.
        """
        gone = self.removed()
        found, holes = self.from_parts(self._parts_between(since, until), reads, table, origin, (since, until))
        named = [*found, *(entry for change in self.changes for entry in change.added if entry.table == table)]
        fitting: dict[str, FileEntry] = {}
        for entry in named:
            if entry.path in gone:
                continue
            groups = [
                group
                for group in entry.groups
                if (origin is None or group.origin == origin) and group.time_from <= until and group.time_to >= since
            ]
            if groups:
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
                found += read_part(self.opened[part.path], self.broker, table, origin, times)
            except TrailDamageError as error:
                if str(error) not in self.warnings:
                    self.warnings.append(str(error))
                since, until = (0, FOREVER) if part.day == WIDE else (part.day * DAY_MS, (part.day + 1) * DAY_MS)
                holes.append(Hole(since, until, DAMAGED_MANIFEST))
        return found, holes


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


class _Link(NamedTuple):
    """A change as its file has it: None where that cannot be read; `crc` is the checksum of the whole file."""

    number: int
    change: Change | None
    crc: int


def pin(root: Path, broker: int, reads: Reads | None = None) -> Pinned:
    """The latest state of a broker's manifest that can be read."""
    folder = manifest_folder(root, broker)
    troubles: list[TrailDamageError] = []
    changed, checkpoints = _numbers(root, folder, troubles)
    checkpoint = _latest_checkpoint(folder, broker, checkpoints, troubles, reads)
    after = checkpoint.number if checkpoint else 0
    head = max([*changed[-1:], *checkpoints[-1:], 0])
    links = [_link(folder, broker, number, troubles, reads) for number in changed if number > after]
    links = _without_foreign(folder, links, troubles)
    changes = [link.change for link in links if link.change is not None]
    broken = _breaks(folder, after, links, head, troubles)
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
    warnings = [str(trouble) for trouble in troubles]
    later = any(isinstance(trouble, TrailVersionError) for trouble in troubles)
    return Pinned(broker, folder, head, checkpoint, tuple(changes), runs, tuple(holes), retained, warnings, later, {})


def _numbers(root: Path, folder: Path, troubles: list[TrailDamageError]) -> tuple[list[int], list[int]]:
    try:
        refuse_links(root, folder.relative_to(root).as_posix())
    except TrailDamageError as error:
        troubles.append(error)
        return [], []
    return numbers(folder)


def _link(folder: Path, broker: int, number: int, troubles: list[TrailDamageError], reads: Reads | None) -> _Link:
    return _Link(number, *_read(folder / change_name(number), broker, Change, number, troubles, reads))


def _without_foreign(folder: Path, links: list[_Link], troubles: list[TrailDamageError]) -> list[_Link]:
    """Leave out changes of another trail: each change names the checksum of the one before.

    Where two do not fit, the one that fits nobody else is the stranger; of two that both do, the earlier: what follows
    the later was made by somebody who knew what came before it.
    """
    fits = [None, *(_fits(before, link) for before, link in pairwise(links)), None]
    strangers: set[int] = set()
    for place, fit in enumerate(fits):
        if fit is False:
            later_fits, earlier_fits = fits[place + 1], fits[place - 1]
            strangers |= {place - 1} if later_fits else {place} if earlier_fits else {place - 1, place}
    troubles += [TrailDamageError(folder / change_name(links[place].number), FOREIGN) for place in sorted(strangers)]
    return [link._replace(change=None) if place in strangers else link for place, link in enumerate(links)]


def _fits(before: _Link, link: _Link) -> bool | None:
    """Whether a change follows the one before it; None where that cannot be told."""
    if before.change is None or link.change is None or not link.change.previous or link.number != before.number + 1:
        return None
    return link.change.previous == before.crc


def _breaks(folder: Path, after: int, links: list[_Link], head: int, troubles: list[TrailDamageError]) -> set[int]:
    """How many readable changes stand before each place where some are missing, and nobody has said so yet."""
    broken: set[int] = set()
    told = [(link.change.lost, link.number) for link in links if link.change is not None and link.change.lost]
    readable, expected = 0, after + 1
    for number, change in [*((link.number, link.change) for link in links), (head + 1, None)]:
        if number > expected and not any(first <= expected and number <= last for first, last in told):
            more = f", and {number - expected - 1:,} after it" if number > expected + 1 else ""
            troubles.append(TrailDamageError(folder / change_name(expected), f"is missing{more}"))
            broken.add(readable)
        if change is not None:
            readable += 1
        elif number <= head:
            broken.add(readable)
        expected = number + 1
    return broken


def _hole_before(runs: tuple[Run, ...], later: list[Change]) -> Hole:
    """What a lost change may have covered: from where the record stood before it to where it stands after."""
    since = max((run.through for run in runs), default=0)
    until = next((change.run.through for change in later if change.run is not None), FOREVER)
    return Hole(since, max(since, until), DAMAGED_MANIFEST)


def _latest_checkpoint(
    folder: Path, broker: int, checkpoints: list[int], troubles: list[TrailDamageError], reads: Reads | None
) -> Checkpoint | None:
    for number in reversed(checkpoints):
        path = folder / checkpoint_name(number)
        found, _ = _read(path, broker, Checkpoint, number, troubles, reads)
        if found is not None and _belongs(folder, broker, found):
            return found
        if found is not None:
            troubles.append(TrailDamageError(path, FOREIGN))
    return None


def _belongs(folder: Path, broker: int, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint fits the changes around it, as far as these are there."""
    if not checkpoint.previous:
        return True
    ignored: list[TrailDamageError] = []
    number = checkpoint.number
    summed, crc = _read(folder / change_name(number), broker, Change, number, ignored, None)
    if summed is not None:
        return crc == checkpoint.previous
    following, _ = _read(folder / change_name(number + 1), broker, Change, number + 1, ignored, None)
    return following is None or following.previous in (0, checkpoint.previous)


def _read(
    path: Path, broker: int, kind: type[Kind], number: int, troubles: list[TrailDamageError], reads: Reads | None
) -> tuple[Kind | None, int]:
    """A manifest file and its checksum; None where it is not there, damaged, or of another number than its name."""
    try:
        data = path.read_bytes()
        found = decoded(data, kind, path, broker)
        if found.number != number:
            raise TrailDamageError(path, f"is manifest {found.number:,}, under the name of another")
    except OSError as error:
        troubles.append(TrailDamageError(path, error.strerror or error))
        return None, 0
    except TrailDamageError as error:
        troubles.append(error)
        return None, 0
    if reads is not None:
        reads.count(len(data))
    return found, zlib.crc32(data)
