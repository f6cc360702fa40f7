"""Writes the jobs of a recorder to the trail, and copes with a disk that fails.

A full or read-only disk degrades the record, and the broker reports it, but never stops messages: rows wait up to a
limit, then the oldest are dropped, and the trail names the time for which they are missing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from postroad.trail.coverage import DEFECT, GIVEN_UP, GapReason
from postroad.trail.errors import TrailError

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.tracking import Job
    from postroad.trail.coverage import Hole, Run
    from postroad.trail.writer import Prepared, TrailWriter

__all__ = ["Backlog", "BacklogStatistics", "Done"]

# After a failure: the first pause and the longest. A disk that has room again is noticed within half a minute.
FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 30_000

# How long trouble is reported after the trail was found gone: longer than any monitoring interval.
BREAK_TOLD_MS = 15 * 60_000


class BacklogStatistics(NamedTuple):
    """What was written since the start, what waits, and what was given up."""

    commits: int
    files: int
    bytes: int
    failures: int
    given_up: int
    waiting_now: int
    waiting_bytes_now: int
    trail_breaks: int
    degraded_now: bool


class Done(NamedTuple):
    """A finished job: written to the trail, or given up."""

    number: int
    stored: bool


class _PreparedJob(NamedTuple):
    number: int
    prepared: Prepared
    told_until: int


class Backlog:
    """Takes jobs, writes them in order. One thread uses it at a time; it blocks on the disk.

    Args:
        open_writer: begins a run of the trail at the given time.
        budget_bytes: rows that may wait for the disk.
        claim: makes sure, before each commit, that no other process writes there under this number; raises a TrailError
            or an OSError if one does, or if that cannot be determined.

    Attributes:
        trouble: what is wrong with the disk; empty while all is well.
    """

    def __init__(
        self,
        open_writer: Callable[[int], TrailWriter],
        budget_bytes: int,
        claim: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_writer = open_writer
        self._claim = claim
        self._budget_bytes = budget_bytes
        self._writer: TrailWriter | None = None
        self._waiting: deque[_PreparedJob] = deque()
        self._done: list[Done] = []
        self._pause_ms = 0
        self._retry_at = 0
        self.trouble = ""
        self._commits = self._files = self._bytes = self._failures = self._given_up = self._breaks = 0
        self._broken_at: int | None = None

    @property
    def run(self) -> Run | None:
        """The run that is written; None as long as the disk does not take its beginning."""
        return None if self._writer is None else self._writer.run

    def open(self, now: int) -> None:
        """Begin a run, or try again to."""
        try:
            self._claim()
            self._writer = self._open_writer(now)
        except (TrailError, OSError) as error:
            self._failed(str(error), now)

    def take(self, job: Job, now: int, told_until: int = 0) -> None:
        """A job to be written; the heavy work of making its rows is done here.

        Whatever a job raises is raised here; its time is then missing in the trail, and the trail says so.

        Args:
            job: the work.
            now: the broker's time.
            told_until: the job may have something of up to this time, beyond its `through`. If it is given up, later
                ones do not make up for that.
        """
        if self._writer is None and not self._pauses(now):
            self.open(now)
        if self._writer is None or (job.through <= self._writer.run.since and not job.is_part):
            # What came before the run can go nowhere; readers see the gap before it.
            if self._writer is not None:
                self._also_lacks(self._writer.run.since, told_until, GIVEN_UP)
            self._give_up(job.number)
            return
        # A part of the first job of a run says less than where the run begins.
        through = max(job.through, self._writer.run.since) if job.is_part else job.through
        try:
            segments = job.make()
        except Exception:
            self._writer.drop(self._writer.prepare([], through), DEFECT)
            self._also_lacks(through, told_until, DEFECT)
            self._give_up(job.number)
            raise
        self._waiting.append(_PreparedJob(job.number, self._writer.prepare(segments, through), told_until))

    def lose(self, through: int, told_until: int = 0) -> None:
        """All up to this time that was not taken is given up: the disk did not answer. The trail will say so."""
        self._given_up += 1
        if self._writer is not None and through > self._writer.run.since:
            self._writer.drop(self._writer.prepare([], through), GIVEN_UP)
        if self._writer is not None:
            self._also_lacks(max(through, self._writer.run.since), told_until, GIVEN_UP)

    def _also_lacks(self, through: int, told_until: int, reason: str) -> None:
        if told_until > through:
            self.lacks(through, told_until + 1, reason)

    def lacks(self, since: int, until: int, reason: str) -> None:
        """The record between two times is not, or not surely, complete: the next commit says so."""
        if self._writer is not None:
            self._writer.lacks(since, until, reason)

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Times for which the record is not complete, and no commit says so yet."""
        return () if self._writer is None else self._writer.holes

    def put(self, now: int, *, at_once: bool = False) -> list[Done]:
        """Write what waits, unless the disk failed a moment ago; returns the jobs that are done with, in order."""
        if self._writer is not None and (at_once or not self._pauses(now)):
            while self._waiting and self._commit(self._writer, self._waiting[0], now):
                self._done.append(Done(self._waiting.popleft().number, stored=True))
        while self._writer is not None and self._held > self._budget_bytes:
            oldest = self._waiting.popleft()
            self._writer.drop(oldest.prepared, GIVEN_UP)
            self._also_lacks(oldest.prepared.through, oldest.told_until, GIVEN_UP)
            self._give_up(oldest.number)
        done, self._done = self._done, []
        return done

    def close(self, now: int, *, is_whole: bool = True) -> None:
        """Write what waits and end the run; where that fails, readers take the run for one that crashed.

        Also if it is not whole: something that happened was never reported.
        """
        self.put(now, at_once=True)
        if self._writer is not None and not self._waiting and is_whole:
            try:
                self._writer.close(now)
            except (TrailError, OSError) as error:
                self._failed(str(error), now)

    def statistics(self) -> BacklogStatistics:
        """Counts for people and for metrics."""
        return BacklogStatistics(
            self._commits,
            self._files,
            self._bytes,
            self._failures,
            self._given_up,
            len(self._waiting),
            self._held,
            self._breaks,
            bool(self.trouble),
        )

    def _pauses(self, now: int) -> bool:
        # A clock that was set back must not make the pause longer.
        return self._retry_at - self._pause_ms <= now < self._retry_at

    def _give_up(self, number: int) -> None:
        self._given_up += 1
        self._done.append(Done(number, stored=False))

    @property
    def _held(self) -> int:
        return sum(waiting.prepared.size for waiting in self._waiting)

    def _commit(self, writer: TrailWriter, waiting: _PreparedJob, now: int) -> bool:
        try:
            self._claim()
            files = writer.commit(waiting.prepared, waiting.told_until)
        except (TrailError, OSError) as error:
            self._failed(str(error), now)
            return False
        self._commits += 1
        self._files += len(files)
        self._bytes += sum(entry.size for entry in files)
        self._works(writer, now)
        try:
            writer.maintain(now)
        except (TrailError, OSError) as error:
            # The rows are in the trail: they must not be written a second time.
            self._failed(str(error), now)
        return True

    def check(self, now: int) -> None:
        """Make sure that the trail is still the one that was written to; if it is not, begin another run."""
        if self._writer is None or self._pauses(now):
            return
        try:
            self._claim()
            self._writer.check()
        except (TrailError, OSError) as error:
            self._failed(str(error), now)
        else:
            if self._breaks != self._writer.breaks or self._broken_at is not None:
                self._works(self._writer, now)

    def _works(self, writer: TrailWriter, now: int) -> None:
        """Note that the disk accepts writes again. A trail that was gone is still reported for a while."""
        if self._breaks != writer.breaks:
            self._breaks, self._broken_at = writer.breaks, now
        if self._broken_at is not None and not self._broken_at <= now < self._broken_at + BREAK_TOLD_MS:
            self._broken_at = None
        self._pause_ms = 0
        self.trouble = (
            "" if self._broken_at is None else f"{writer.root}: {GapReason.GONE}; the record begins anew there"
        )

    def _failed(self, reason: str, now: int) -> None:
        self._failures += 1
        self.trouble = reason
        self._pause_ms = min(max(FIRST_PAUSE_MS, 2 * self._pause_ms), LONGEST_PAUSE_MS)
        self._retry_at = now + self._pause_ms
