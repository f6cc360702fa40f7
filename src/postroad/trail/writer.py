"""Writes sealed segments: one file for each table and date, then one commit to the manifest."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.tracking import LinkChanges, Names, SubscriptionChanges
from postroad.trail.columns import by_date, tabulate
from postroad.trail.coverage import FOREVER, Hole, Run
from postroad.trail.errors import TrailError, TrailWriteError
from postroad.trail.files import FileEntry, write_file
from postroad.trail.ledger import Ledger, refuse_other_version
from postroad.trail.paths import delete_below
from postroad.trail.retention import sweep
from postroad.trail.standing_rows import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking import Segment

__all__ = ["Prepared", "TrailWriter"]

# Names that are written again after the trail was lost: those of the latest publishers, some 10 MB. Of the others a
# trace gives only the number.
MAX_NAMES = 65_536


class Prepared(NamedTuple):
    """Rows ready to be written: all that was observed up to a time, and was not in earlier ones.

    Attributes:
        since: how far the record went before.
        through: everything observed up to this time is in this or earlier ones.
        tables: (table, day, rows).
        size: bytes in memory.
        changes: those of its segments that change which subscriptions and links there are.
    """

    since: int
    through: int
    tables: tuple[tuple[str, int, Any], ...]
    size: int
    changes: tuple[SubscriptionChanges | LinkChanges, ...] = ()


class TrailWriter:
    """The writer of one broker. Making one begins a run; `close` ends it.

    Only one thread may use it at a time. A process that ends without `close` leaves a run whose coverage ends at the
    last commit.

    A trail may be moved, deleted, or replaced by an older copy while its broker runs. The next commit then finds that
    the change it follows is gone: it begins another run, says from when to when the record is missing, and writes again
    who is subscribed, linked and publishing.

    Attributes:
        breaks: how often the trail was found gone.
    """

    def __init__(
        self, root: str | Path, broker: int, now: int, is_over: bool = False, earlier: Run | None = None
    ) -> None:
        """Begin a run; one that `is_over` is that of an earlier process, which could not begin it.

        Where the trail does not have the `earlier` run that the broker wrote last, the new one says so.

        Raises:
            TrailWriteError: the directory does not take it.
            TrailError: what is there has another format.
        """
        self.root = Path(root)
        self.broker = broker
        self.ledger = Ledger(self.root, broker)
        self.run: Run = self.ledger.open_run(now, is_over, earlier)
        self._label = f"{self.run.number:012d}"
        self._prepared = now
        self._sequence = 0
        self._follow(now)

    def _follow(self, now: int) -> None:
        self._standing = Standing(now)
        # The same as of the last commit, and names: to be written again if the trail is lost.
        self._committed = Standing(now)
        self._names: dict[tuple[str, int], str] = {}
        self._holes: list[Hole] = []
        self._earliest_hole = FOREVER
        self._again = self._is_broken = False
        self._reached = 0
        self.breaks = 0

    @classmethod
    def resume(cls, root: str | Path, broker: int, run: Run) -> TrailWriter:
        """Continue a run of an earlier process, to add what its journal has.

        What is written extends the coverage of that run. Afterwards a new run begins as usual.

        Raises:
            TrailError: a Postroad of another format wrote there.
        """
        ledger = Ledger(Path(root), broker)
        state = ledger.pin()
        refuse_other_version(state)
        writer = cls.__new__(cls)
        writer.root, writer.broker, writer.ledger, writer.run = Path(root), broker, ledger, run
        # Names that the run itself has not used. What an attempt that crashed has left under them is replaced.
        writer._label = f"{writer.run.number:012d}-{state.number:012d}"
        writer._prepared = writer.run.through
        writer._sequence = 0
        writer._follow(writer.run.through)
        return writer

    def prepare(self, segments: Iterable[Segment], through: int) -> Prepared:
        """Make rows of what was observed up to `through`; nothing is written yet, so this only takes processor time."""
        if through < self._prepared:
            raise TrailError(f"the record stands at {self._prepared} and cannot go back to {through}")
        given = list(segments)
        changes = tuple(one for one in given if isinstance(one, SubscriptionChanges | LinkChanges))
        self._remember([one for one in given if isinstance(one, Names)])
        given += self._standing.follow(given, through)
        tables = _tables(given)
        prepared = Prepared(self._prepared, through, tables, sum(rows.nbytes for _, _, rows in tables), changes)
        self._prepared = through
        return prepared

    def commit(self, prepared: Prepared, told_until: int = 0) -> list[FileEntry]:
        """Write the files and name them in the manifest; all of it counts, or nothing.

        The rows may have something of up to `told_until`, beyond their `through`.

        Raises:
            TrailWriteError: the disk does not take it; the same call may be made again later.
        """
        self.check()
        before, gone = self.ledger.last, self.run
        self._reached = max(self._reached, told_until)
        files = self._commit(prepared)
        self._committed.follow(prepared.changes, prepared.through)
        if not self.ledger.is_intact(gone, before):
            # The trail was lost while this was written. What is written now stands alone, and the next run says so. If
            # it cannot begin now, it does before the next commit: this one must not be made again.
            self._is_broken = True
            with suppress(TrailError):
                self._begin_again()
        return files

    def check(self) -> bool:
        """Begin another run if the trail is gone that the last commit was made to; returns whether it was there.

        Raises:
            TrailWriteError: the disk does not take it; call again.
            TrailError: what is there now has another format.
        """
        there = not self._is_broken and self.ledger.is_intact(self.run, self.ledger.last)
        if not there:
            self._begin_again()
        if self._again:
            # Nothing counts as complete before this is written.
            standing = [*self._committed.repeated(self.run.since), *self._named(self.run.since)]
            self._commit(Prepared(self.run.since, self.run.since, _tables(standing), 0))
            self._again = False
        return there

    def _begin_again(self) -> None:
        self.run = self.ledger.begin_again(self.run, min(self._earliest_hole, self.run.through), self._reached)
        self._label = f"{self.run.number:012d}"
        self._again, self._is_broken = True, False
        self.breaks += 1

    def _remember(self, names: list[Names]) -> None:
        for segment in names:
            for kind, number, name in zip(segment.kind, segment.number.tolist(), segment.name, strict=True):
                self._names[kind, number] = name
        while len(self._names) > MAX_NAMES:
            del self._names[next(iter(self._names))]

    def _named(self, at: int) -> list[Names]:
        if not self._names:
            return []
        kinds, numbers = zip(*self._names, strict=True)
        count = len(kinds)
        times = np.full(count, at, np.int64)
        return [Names(list(kinds), np.array(numbers, np.int64), times, list(self._names.values()))]

    def _commit(self, prepared: Prepared) -> list[FileEntry]:
        self._sequence += 1
        name = f"{self._label}-{self._sequence:06d}"
        files: list[FileEntry] = []
        run = Run(self.run.number, self.run.since, max(prepared.through, self.run.through), self.run.closed)
        try:
            for table, day, rows in prepared.tables:
                files.append(write_file(self.root, table, self.broker, day, name, rows))
            reached = self._reached if self._reached > run.through else 0
            self.ledger.append(prepared.through, files, run, self._holes, reached)
        except TrailWriteError:
            for entry in files:
                delete_below(self.root, entry.path)
            raise
        self.run = run
        self._state_holes()
        return files

    def _state_holes(self) -> None:
        """The holes are in the manifest now. If it is lost, an older copy does not have them."""
        self._earliest_hole = min([self._earliest_hole, *(hole.since for hole in self._holes)])
        self._holes = []

    def write(self, segments: Iterable[Segment], through: int) -> list[FileEntry]:
        """Write and commit what was observed up to `through`.

        Raises:
            TrailWriteError: the disk does not take it, and these segments are lost; `prepare` and `commit` keep them.
        """
        return self.commit(self.prepare(segments, through))

    def drop(self, prepared: Prepared, reason: str) -> None:
        """Give up rows that could not be written: the next commit says that they are missing."""
        self.lacks(prepared.since, prepared.through + 1, reason)
        self._committed.follow(prepared.changes, prepared.through)

    def lacks(self, since: int, until: int, reason: str) -> None:
        """What was observed between two times is not, or not all, in what is written: the next commit says so."""
        if self._holes and self._holes[-1].reason == reason and self._holes[-1].since <= since <= self._holes[-1].until:
            # A disk that fails for long makes one hole, not one for each part of the record.
            last = self._holes.pop()
            since, until = last.since, max(last.until, until)
        self._holes.append(Hole(since, until, reason))
        # Subscriptions and links that began in between may be missing, too.
        self._standing.repeat()

    @property
    def holes(self) -> tuple[Hole, ...]:
        """What the next commit will say is missing."""
        return tuple(self._holes)

    def maintain(self, now: int) -> bool:
        """Make a checkpoint of the manifest if one is due, and delete what has not been needed for long.

        That is manifests that a checkpoint sums up, and files that compaction or erasure has replaced.

        Call it after commits, off the loop.

        Raises:
            TrailWriteError: the disk does not take it; nothing is lost.
        """
        if not self.ledger.is_due():
            return False
        self.ledger.checkpoint(now)
        sweep(self.root, self.broker, now)
        return True

    def close(self, now: int) -> None:
        """End the run: everything observed is written, up to now.

        Raises:
            TrailWriteError: the disk does not take it; readers take the run for one that crashed.
        """
        self.check()
        through = max(now, self.run.through)
        run = Run(self.run.number, self.run.since, through, closed=True)
        self.ledger.append(through, (), run, self._holes)
        self.run = run
        self._state_holes()
        # A trail with a checkpoint is the quickest to read. Without it, readers go through a few more changes.
        with suppress(TrailError):
            self.ledger.checkpoint(through)


def _tables(segments: Iterable[Segment]) -> tuple[tuple[str, int, Any], ...]:
    return tuple((name, day, rows) for name, table in tabulate(segments).items() for day, rows in by_date(name, table))
