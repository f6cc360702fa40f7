"""Writes what a recorder hands over: one file for each table and date, then one commit to the manifest."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.trail.columns import by_date, tabulate
from postroad.trail.coverage import Hole, Run
from postroad.trail.errors import TrailError, TrailWriteError
from postroad.trail.files import FileEntry, write_file
from postroad.trail.ledger import Ledger
from postroad.trail.paths import delete_below
from postroad.trail.retention import sweep
from postroad.trail.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking import Segment

__all__ = ["Prepared", "TrailWriter"]


class Prepared(NamedTuple):
    """Rows ready to be written: all that was observed up to a time, and was not in earlier ones.

    Attributes:
        since: where the record stood before.
        through: everything observed up to this time is in this or earlier ones.
        tables: (table, day, rows).
        size: bytes in memory.
    """

    since: int
    through: int
    tables: tuple[tuple[str, int, Any], ...]
    size: int


class TrailWriter:
    """The writer of one broker. Making one begins a run; `close` ends it.

    One thread uses it at a time; it does nothing on its own. A process that ends without `close` leaves a run whose
    coverage ends at the last commit.
    """

    def __init__(self, root: str | Path, broker: int, now: int, is_over: bool = False) -> None:
        """Begin a run; one that `is_over` is that of an earlier process, which could not begin it.

        Raises:
            TrailWriteError: the directory does not take it.
            TrailError: a later Postroad wrote there.
        """
        self.root = Path(root)
        self.broker = broker
        self.ledger = Ledger(self.root, broker)
        self.run: Run = self.ledger.open_run(now, is_over)
        self._label = f"{self.run.number:012d}"
        self._prepared = now
        self._sequence = 0
        self._standing = Standing(now)
        self._holes: list[Hole] = []

    @classmethod
    def resume(cls, root: str | Path, broker: int, run: Run) -> TrailWriter:
        """Go on with a run of an earlier process, to add what its journal has.

        What is written extends the coverage of that run. A new run is begun as ever afterwards.

        Raises:
            TrailError: a later Postroad wrote there.
        """
        ledger = Ledger(Path(root), broker)
        state = ledger.pin()
        if state.later_version:
            raise TrailError(f"{ledger.folder} has manifests of a later Postroad; run that one")
        writer = cls.__new__(cls)
        writer.root, writer.broker, writer.ledger, writer.run = Path(root), broker, ledger, run
        # Names that the run itself has not used. What an attempt that crashed has left under them is replaced.
        writer._label = f"{writer.run.number:012d}-{state.number:012d}"
        writer._prepared = writer.run.through
        writer._sequence = 0
        writer._standing = Standing(writer.run.through)
        writer._holes = []
        return writer

    def prepare(self, segments: Iterable[Segment], through: int) -> Prepared:
        """Make rows of what was observed up to `through`; nothing is written yet. Work for the processor alone."""
        if through < self._prepared:
            raise TrailError(f"the record stands at {self._prepared} and cannot go back to {through}")
        given = list(segments)
        given += self._standing.follow(given, through)
        tables = tuple(
            (name, day, rows) for name, table in tabulate(given).items() for day, rows in by_date(name, table)
        )
        prepared = Prepared(self._prepared, through, tables, sum(rows.nbytes for _, _, rows in tables))
        self._prepared = through
        return prepared

    def commit(self, prepared: Prepared) -> list[FileEntry]:
        """Write the files and name them in the manifest; all of it counts, or nothing.

        Raises:
            TrailWriteError: the disk does not take it; the same call may be made again later.
        """
        self._sequence += 1
        name = f"{self._label}-{self._sequence:06d}"
        files: list[FileEntry] = []
        run = Run(self.run.number, self.run.since, max(prepared.through, self.run.through), self.run.closed)
        try:
            for table, day, rows in prepared.tables:
                files.append(write_file(self.root, table, self.broker, day, name, rows))
            self.ledger.append(prepared.through, files, run, self._holes)
        except TrailWriteError:
            for entry in files:
                delete_below(self.root, entry.path)
            raise
        self.run = run
        self._holes = []
        return files

    def write(self, segments: Iterable[Segment], through: int) -> list[FileEntry]:
        """Write and commit what was observed up to `through`.

        Raises:
            TrailWriteError: the disk does not take it, and these segments are lost; `prepare` and `commit` keep them.
        """
        return self.commit(self.prepare(segments, through))

    def drop(self, prepared: Prepared, reason: str) -> None:
        """Give up rows that could not be written: the next commit says that they are missing."""
        self.lacks(prepared.since, prepared.through + 1, reason)
        self._standing.repeat()

    def lacks(self, since: int, until: int, reason: str) -> None:
        """What was observed between two times is not, or not all, in what is written: the next commit says so."""
        if self._holes and self._holes[-1].reason == reason and self._holes[-1].since <= since <= self._holes[-1].until:
            # A disk that takes nothing for long makes one hole, not one for each part of the record.
            last = self._holes.pop()
            since, until = last.since, max(last.until, until)
        self._holes.append(Hole(since, until, reason))

    @property
    def holes(self) -> tuple[Hole, ...]:
        """What the next commit will say is missing."""
        return tuple(self._holes)

    def maintain(self, now: int) -> bool:
        """Make a checkpoint of the manifest if one is due, and delete what nobody has needed for long.

        That is manifests that others summed up, and files that compaction or erasure put others in the place of.

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
        through = max(now, self.run.through)
        run = Run(self.run.number, self.run.since, through, closed=True)
        self.ledger.append(through, (), run, self._holes)
        self.run = run
        self._holes = []
        # A trail at rest is read the quickest. Without it, readers go through a few changes more.
        with suppress(TrailError):
            self.ledger.checkpoint(through)
