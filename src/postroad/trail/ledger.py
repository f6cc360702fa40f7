"""Changing a broker's manifest: one change at a time, each made from the latest, none lost.

Writers do not lock. A change takes the next number; if another writer took it first, the change is made again from
theirs.
"""

from __future__ import annotations

import errno
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from postroad.trail.checkpoint_parts import WIDE, days_of, open_part, read_part, write_part
from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import FOREVER, SET_BACK_MS, GapReason, Hole, Run
from postroad.trail.durable_files import create_once
from postroad.trail.errors import TrailConflictError, TrailDamageError, TrailError, TrailWriteError
from postroad.trail.file_reader import Reads
from postroad.trail.manifest import (
    Change,
    Checkpoint,
    Doomed,
    Part,
    Removal,
    change_name,
    checkpoint_name,
    decoded,
    encoded,
    manifest_folder,
    numbers,
)
from postroad.trail.paths import refuse_links
from postroad.trail.snapshot import DAMAGED_MANIFEST, Pinned, pin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from postroad.trail.files import FileEntry
    from postroad.trail.manifest import Need

__all__ = ["CHECKPOINT_EVERY", "Ledger", "refuse_other_version"]

# A reader of one id reads all changes since the last checkpoint, and a checkpoint rewrites the parts of the days that
# changed: 500 kB at the end of a day with a commit a minute and 20 origins. With 8 both costs stay small: up to 8 files
# of a kilobyte for the reader, some 40 MB a day for the writer.
CHECKPOINT_EVERY = 8
# Others commit about once a minute; a writer that loses this often in a row is in a loop with another one.
MAX_ATTEMPTS = 100


class Ledger:
    """The manifest of one broker, to change it. One thread uses it at a time; processes may compete."""

    def __init__(self, root: Path, broker: int) -> None:
        self.root = root
        self.broker = broker
        self.folder = manifest_folder(root, broker)
        # The last change made here: its number, and the checksum of its file.
        self._last: tuple[int, int] | None = None

    def pin(self) -> Pinned:
        """The latest state."""
        return pin(self.root, self.broker)

    def open_run(self, now: int, is_over: bool = False, earlier: Run | None = None) -> Run:
        """Begin a run; its number is that of the manifest that begins it, so no two runs share one.

        Args:
            now: when it begins.
            is_over: it is that of an earlier process. Otherwise runs that went beyond `now` say that the clock was set
                back: what they say is complete is not, once it comes a second time.
            earlier: the last run that this broker is known to have written; None if none is known. If it is
                not here, the record before this run is not complete, whatever the trail says.

        Raises:
            TrailWriteError: the disk does not take it.
            TrailError: what is here has another format.
        """
        state = self.pin()
        refuse_other_version(state)
        reached = 0 if is_over else max((run.through for run in state.runs), default=0)
        holes: tuple[Hole, ...] = (Hole(now, reached + 1, GapReason.SET_BACK),) if reached - now > SET_BACK_MS else ()
        if earlier is not None and earlier.through >= state.retained_since and not _begun(state.runs, earlier):
            holes += (Hole(min(reached, now), now + 1, GapReason.MOVED),)
        change = self._commit(lambda number: Change(number, now, run=Run(number, now, now), holes=holes))
        assert change.run is not None
        return change.run

    def append(
        self,
        at: int,
        added: Iterable[FileEntry] = (),
        run: Run | None = None,
        holes: Iterable[Hole] = (),
        reached: int = 0,
    ) -> Change:
        """Add files, and say what the record covers. Costs what it adds, however large the trail is.

        What was observed up to `reached` may be in them or in earlier ones, beyond what the run covers.

        Raises:
            TrailWriteError: the disk does not take it; nothing changed.
            TrailConflictError: others changed the manifest all the time.
        """
        files, gaps = tuple(added), tuple(holes)
        return self._commit(lambda number: Change(number, at, added=files, run=run, holes=gaps, reached=reached))

    @property
    def last(self) -> tuple[int, int] | None:
        """The last change made here, to ask `is_intact` about: its number, and the checksum of its file."""
        return self._last

    def is_intact(self, run: Run, last: tuple[int, int] | None) -> bool:
        """Whether a change that was made here is still part of the manifest, so that others may follow it.

        A trail that was moved, deleted, or replaced by an older copy lacks it. Costs one read of a small file.

        Args:
            run: as it stood with that change.
            last: the change; None for none.

        Raises:
            TrailWriteError: it cannot be determined now.
        """
        if last is None:
            return True
        number, crc = last
        try:
            return zlib.crc32((self.folder / change_name(number)).read_bytes()) == crc
        except (FileNotFoundError, NotADirectoryError):
            # A checkpoint may have summed it up long ago.
            checkpoint = self.pin().checkpoint
            return checkpoint is not None and checkpoint.number >= number and _holds(checkpoint.runs, run)
        except OSError as error:
            raise TrailWriteError(self.folder, error.strerror or error) from error

    def begin_again(self, run: Run, begun: int, reached: int = 0) -> Run:
        """Begin a run after one whose record is gone, in whole or in part, and say what is missing.

        Numbers continue after those that were given: should the changes come back, all of them fit together.

        Args:
            run: as it stood when it was last known to be there.
            begun: what this process said before is about times from here on.
            reached: and up to here, beyond what the run covers.

        Raises:
            TrailWriteError: the disk does not take it; nothing changed.
            TrailError: what is here has another format.
        """
        state = self.pin()
        refuse_other_version(state)
        missing = _first_missing(self.folder, state.checkpoint, max(state.number, self._reached))
        known = next((one for one in state.runs if (one.number, one.since) == (run.number, run.since)), None)
        if known is not None and (not missing or missing > state.number):
            # An older copy: what it has is whole.
            since = known.through
        else:
            since = max((one.through for one in state.runs if one != known), default=0)
        hole = Hole(min(since, begun), max(run.through, reached) + 1, GapReason.GONE)

        def make(number: int) -> Change:
            fresh = Run(number, run.through, run.through)
            return Change(number, run.through, run=fresh, holes=(hole,), lost=missing)

        change = self._commit(make)
        assert change.run is not None
        return change.run

    def replace(
        self,
        at: int,
        removed: Iterable[str],
        added: Iterable[FileEntry] = (),
        retained_since: int = 0,
        needs: Iterable[Need] = (),
    ) -> Change:
        """Take files out, and put others in, in one step: for compaction and retention.

        What goes may rest on what other manifests have got before.

        Raises:
            TrailConflictError: a file to take out does not count any more.
            TrailWriteError: the disk does not take it; nothing changed.
        """
        paths, files, rests_on = sorted(set(removed)), tuple(added), tuple(needs)

        def make(number: int) -> Change:
            live = {entry.path: entry for entry in self.pin().all_entries()[0]}
            missing = [path for path in paths if path not in live]
            if missing:
                raise TrailConflictError(f"{missing[0]} is not in the manifest any more; start again from the latest")
            removals = tuple(Removal(path, days_of(live[path])) for path in paths)
            return Change(number, at, added=files, removed=removals, retained_since=retained_since, needs=rests_on)

        return self._commit(make)

    @property
    def _reached(self) -> int:
        return 0 if self._last is None else self._last[0]

    def _commit(self, make: Callable[[int], Change]) -> Change:
        try:
            refuse_links(self.root, self.folder.relative_to(self.root).as_posix())
        except TrailDamageError as error:
            raise TrailWriteError(error.path, error.problem) from error
        for _ in range(MAX_ATTEMPTS):
            # Not below what was given before, though it may be gone.
            before = max(self.head(), self._reached)
            change = msgspec.structs.replace(make(before + 1), previous=self._checksum(before))
            data = encoded(change)
            if create_once(self.folder / change_name(change.number), data):
                self._last = change.number, zlib.crc32(data)
                return change
        raise TrailConflictError(f"{self.folder}: others changed the manifest {MAX_ATTEMPTS} times in the meantime")

    def _checksum(self, number: int) -> int:
        """The checksum of the file of a change, for the next to name; 0 if there is no such change."""
        try:
            return zlib.crc32((self.folder / change_name(number)).read_bytes())
        except OSError:
            pass
        path = self.folder / checkpoint_name(number)
        try:
            return decoded(path.read_bytes(), Checkpoint, path, self.broker).previous
        except (OSError, TrailDamageError):
            return 0

    def head(self) -> int:
        """The number of the latest manifest; 0 when there is none."""
        changed, checkpoints = numbers(self.folder)
        return max([*changed[-1:], *checkpoints[-1:], 0])

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        changed, checkpoints = numbers(self.folder)
        return len(changed) > 0 and changed[-1] - max([*checkpoints[-1:], 0]) >= CHECKPOINT_EVERY

    def checkpoint(self, at: int) -> Checkpoint:
        """Sum up all changes so far. Rewrites the parts of the days that changed, and nothing else.

        Raises:
            TrailWriteError: the disk does not take it, or the changes are gone meanwhile; nothing changed.
        """
        state = self.pin()
        refuse_other_version(state)
        base = state.checkpoint
        parts = {part.day: part for part in (base.parts if base else ())}
        holes = list(state.holes)
        for day, (added, gone) in _touched(state).items():
            known, lost = self._known(parts.get(day))
            holes += lost
            live = [entry for entry in [*known, *added] if entry.path not in gone]
            written = write_part(self.folder, state.number, day, live)
            if written is None:
                parts.pop(day, None)
            else:
                parts[day] = written
        found = Checkpoint(
            number=state.number,
            at=at,
            runs=tuple(run for run in state.runs if run.through >= state.retained_since),
            holes=tuple(hole for hole in holes if hole.until >= state.retained_since),
            retained_since=state.retained_since,
            parts=tuple(parts[day] for day in sorted(parts)),
            doomed=self._doomed(state),
            previous=self._checksum(state.number),
            needs=state.needs,
        )
        # Another process that made a checkpoint of this number made it from the same changes.
        path = self.folder / checkpoint_name(state.number)
        if create_once(path, encoded(found)) and state.number and not self._has(state.number):
            # The trail was moved, deleted or replaced while this was written: alone, it would pass for all of it.
            path.unlink(missing_ok=True)
            raise TrailWriteError(self.folder, "the changes that a checkpoint sums up are gone")
        return found

    def _has(self, number: int) -> bool:
        return (self.folder / change_name(number)).exists()

    def _known(self, part: Part | None) -> tuple[list[FileEntry], list[Hole]]:
        if part is None:
            return [], []
        try:
            return read_part(open_part(self.folder, part, Reads()), self.broker), []
        except TrailDamageError as error:
            # What cannot be read just now is not damaged: no checkpoint until it can.
            if isinstance(error.__cause__, OSError) and error.__cause__.errno not in (None, errno.ENOENT):
                raise TrailWriteError(self.folder / part.path, error.problem) from error
            since, until = (0, FOREVER) if part.day == WIDE else (part.day * DAY_MS, (part.day + 1) * DAY_MS)
            return [], [Hole(since, until, DAMAGED_MANIFEST)]

    def _doomed(self, state: Pinned) -> tuple[Doomed, ...]:
        earlier = state.checkpoint.doomed if state.checkpoint else ()
        new = [Doomed(gone.path, change.at) for change in state.changes for gone in change.removed]
        return tuple(doomed for doomed in [*earlier, *new] if (self.root / doomed.path).exists())


def refuse_other_version(state: Pinned) -> None:
    """Refuse to write where a Postroad of another format did.

    Raises:
        TrailError: one did.
    """
    if state.other_version:
        raise TrailError(
            f"{state.folder} has manifests of another format; run the Postroad that wrote them, or choose another "
            "directory"
        )


def _holds(runs: Iterable[Run], run: Run) -> bool:
    """Whether runs have one, as far as it had come or farther."""
    return any((one.number, one.since) == (run.number, run.since) and one.through >= run.through for one in runs)


def _begun(runs: Iterable[Run], run: Run) -> bool:
    """Whether runs have one, however far it had come."""
    return any((one.number, one.since) == (run.number, run.since) for one in runs)


def _first_missing(folder: Path, checkpoint: Checkpoint | None, last: int) -> int:
    """The first change that is not there, of those after a checkpoint up to a number; 0 where all are."""
    there = set(numbers(folder)[0])
    after = checkpoint.number if checkpoint else 0
    return next((number for number in range(after + 1, last + 1) if number not in there), 0)


def _touched(state: Pinned) -> dict[int, tuple[list[FileEntry], set[str]]]:
    """The days that changes since the checkpoint touched: files added, and paths removed."""
    days: dict[int, tuple[list[FileEntry], set[str]]] = defaultdict(lambda: ([], set()))
    for change in state.changes:
        for entry in change.added:
            for day in days_of(entry):
                days[day][0].append(entry)
        for gone in change.removed:
            for day in gone.days:
                days[day][1].add(gone.path)
    return days
