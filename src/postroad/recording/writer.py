"""Writes the record of a running broker: takes jobs from the recorder, and runs them on a thread next to the loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from postroad.recording.disk import DiskThread, hanging, is_done
from postroad.trail import SET_BACK_MS, GapReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.tracking import Job, TrackingRecorder
    from postroad.trail import Backlog, Done

__all__ = ["RecordWriter", "TakenJob"]

log = logging.getLogger("postroad.tracking")

# How often the recorder is asked for what is ready.
LOOK_SECONDS = 0.25

# How often a trail that nothing is written to is looked at, whether it is still there: one read of a small file.
CHECK_SECONDS = 2.0

# For those who wait for it the record is written at once, but no more often than this: each time makes files.
HURRY_SECONDS = 1.0
# How long somebody waits for that; then the disk counts as one that did not take it.
PATIENCE_SECONDS = 10.0
# Callers that wait; beyond it the first ones get the result that it is not written.
MOST_WAITING = 100_000

# When a part of the record is not written after this long, trouble is reported, and the loop no longer waits for it.
# Making filters of a full buffer takes some seconds, several times that on a processor that has much else to do.
HANG_SECONDS = 60.0
# As much as a broker's tracking may hold by default: for the recorder, and as much again that waits.
DEFAULT_HELD_BYTES = 128 << 20
# What the recorder may hold while its record is being written, in multiples of that: a disk that answers is given more
# time than one that does not. What comes faster than it is written is given up, or memory would grow with each part.
BUSY_SHARE = 2

Result = TypeVar("Result")


class TakenJob(NamedTuple):
    """What a job has, in positions of the journal.

    Attributes:
        through: the time through which the record is complete with it.
        since: entries up to here are in earlier jobs.
        covers: entries up to here are in this or in earlier jobs.
        position: the journal's position when the writer took the job; it has nothing beyond.
        at: the time when the writer took it.
    """

    through: int
    since: int
    covers: int
    position: int
    at: int


class _Waiter:
    """Somebody who waits until what was recorded is written.

    Attributes:
        action: what to call.
        since: when it began to wait, by the loop's clock.
        first: the first job that may have what it waits for.
        last: the last one; None before that is made.
    """

    __slots__ = ("action", "first", "last", "since")

    def __init__(self, action: Callable[[bool], None], since: float, first: int) -> None:
        self.action = action
        self.since = since
        self.first = first
        self.last: int | None = None


class RecordWriter:
    """Writes the record of one broker.

    Args:
        recorder: has the record.
        backlog: puts it into the trail.
        clock: the broker's time in ms.
        kept: called for each job that is done with, and whether it was stored or given up.
        held_bytes: what the recorder may hold while the disk does not answer; then the oldest jobs are given up.
        position: the position of the journal, which has what the recorder takes.

    Attributes:
        released_through: the recorder still has all that was reported after this time.
    """

    def __init__(
        self,
        recorder: TrackingRecorder,
        backlog: Backlog,
        clock: Callable[[], int],
        kept: Callable[[TakenJob, bool], None] | None = None,
        held_bytes: int = DEFAULT_HELD_BYTES,
        position: Callable[[], int] = int,
    ) -> None:
        self._recorder = recorder
        self._backlog = backlog
        self._clock = clock
        self._kept = kept
        # One thread: files are written in the order of the jobs, and a reader of the trail waits its turn.
        self._thread = DiskThread("postroad-trail")
        self._task: asyncio.Task[None] | None = None
        self._held_bytes = held_bytes
        self._jobs: list[Job] = []
        self._given_up: TakenJob | None = None
        self._work: asyncio.Future[tuple[list[Done], Exception | None]] | None = None
        self._hangs = False
        self._position = position
        self._taken: dict[int, TakenJob] = {}
        self._covered = 0
        # At each look: the latest time there was so far, and the position. All entries up to it were told by then.
        self._marks: deque[tuple[int, int]] = deque()
        self._looked = self._latest = self.released_through = clock()
        self._set_back: list[tuple[int, int]] = []
        self._trouble = ""
        self._waiting: deque[_Waiter] = deque()
        self._hurried = -HURRY_SECONDS
        # The last job that was given up.
        self._lost = -1

    @property
    def trouble(self) -> str:
        """What keeps the record from being written; empty while all is well."""
        return self._trouble

    async def start(self) -> None:
        """Begin a run of the trail."""
        await self.in_thread(lambda: self._backlog.open(self._clock()))
        self._tell()
        self._task = asyncio.create_task(self._keep_for_ever())

    async def stop(self, is_whole: bool = True) -> None:
        """Write all there is, and end the run, within the time that a disk may take. A second call does nothing.

        Unless that is the whole record, the run does not end on purpose, as after a crash.
        """
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                self._collect(force=True)
                await self._write(at_once=True)
                # The first may have been something that was under way.
                await self._write(at_once=True)
            except Exception:
                log.exception("internal error", extra={"where": "tracking"})
            self._answer()
            if not self._hangs:
                close = self._backlog.close
                await is_done(self._thread.do(lambda: close(self._clock(), is_whole=is_whole)), HANG_SECONDS)
            self._tell()
        self._thread.end()

    async def _keep_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.keep()
                if loop.time() >= checked + CHECK_SECONDS and not self._hangs:
                    checked = loop.time()
                    await self._check()
            except Exception:
                # A defect here must not end the record, still less the broker.
                log.exception("internal error", extra={"where": "tracking"})

    def when_written(self, action: Callable[[bool], None]) -> None:
        """Write all that was recorded so far soon; call this with True once it is in the trail, or with False.

        Nobody waits longer than `PATIENCE_SECONDS` for a disk.
        """
        loop = asyncio.get_running_loop()
        self._waiting.append(_Waiter(action, loop.time(), min(self._taken, default=self._lost + 1)))
        if len(self._waiting) > MOST_WAITING:
            _call(self._waiting.popleft().action, False)
        loop.call_later(PATIENCE_SECONDS, self._answer)

    def _answer(self) -> None:
        """Tell those whose jobs are done with, in order, and those who have waited too long."""
        now = asyncio.get_running_loop().time()
        while self._waiting:
            first = self._waiting[0]
            is_done = first.last is not None and first.last not in self._taken
            if not is_done and now < first.since + PATIENCE_SECONDS:
                break
            self._waiting.popleft()
            _call(first.action, is_done and self._lost < first.first)

    async def keep(self, force: bool = False) -> None:
        """Take what is ready and write it; with `force`, all there is. Waits for a disk within `HANG_SECONDS`."""
        now = asyncio.get_running_loop().time()
        hurries = now >= self._hurried + HURRY_SECONDS and any(one.last is None for one in self._waiting)
        if hurries:
            self._hurried = now
        self._collect(force or hurries)
        await self._write(at_once=force)
        self._answer()

    def _collect(self, force: bool) -> None:
        """Take what is ready; with `force`, all there is."""
        self._take(force)
        for one in self._waiting if force else ():
            if one.last is None:
                one.last = max(self._taken, default=-1)

    def _take(self, force: bool) -> None:
        now, position = self._clock(), self._position()
        if self._looked - now > SET_BACK_MS:
            # What is reported from now on is of times that the trail says are complete. The last look may have been
            # long ago, when a disk was slow.
            self._set_back.append((now - int(1_000 * HANG_SECONDS), self._latest + 1))
            force = True
        self._looked, self._latest = now, max(self._latest, now)
        self._marks.append((self._latest, position))
        jobs = self._recorder.due(now, force)
        if not jobs:
            return
        for job in jobs:
            covers = self._covered
            while self._marks and self._marks[0][0] <= job.through:
                covers = self._marks.popleft()[1]
            if job is jobs[-1] and not self._recorder.statistics().open_entries:
                # Nothing is left open, whatever the time was.
                covers = position
                self._marks.clear()
            self._taken[job.number] = TakenJob(job.through, self._covered, covers, position, self._latest)
            self._covered = covers
        self._jobs += jobs

    async def _write(self, at_once: bool) -> None:
        if self._work is None:
            jobs, self._jobs = self._jobs, []
            given_up, self._given_up = self._given_up, None
            told_until = [self._taken[job.number].at for job in jobs]
            set_back, self._set_back = self._set_back, []
            self._work = self._thread.do(
                lambda: self._written(list(zip(jobs, told_until, strict=True)), given_up, set_back, at_once)
            )
        if not await self._is_written(self._work, 0 if self._hangs else HANG_SECONDS):
            self._hangs = True
            self._give_up()
            self._tell()
            return
        (done, failure), self._work, self._hangs = self._work.result(), None, False
        for job in done:
            self._release(job.number, job.stored)
        self._tell()
        if failure is not None:
            raise failure

    async def _is_written(self, work: asyncio.Future[Any], seconds: float) -> bool:
        """Wait for what is being written, up to a limit; memory stays bounded meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not await is_done(work, max(0, min(LOOK_SECONDS, until - loop.time()))):
            if loop.time() >= until:
                return False
            if self._recorder.statistics().held_bytes > BUSY_SHARE * self._held_bytes:
                self._collect(force=True)
                self._give_up()
        return True

    def _release(self, number: int, stored: bool) -> TakenJob:
        self._recorder.release(number)
        taken = self._taken.pop(number)
        if not stored:
            self._lost = number
        self.released_through = max(self.released_through, taken.through)
        if self._kept is not None:
            self._kept(taken, stored)
        return taken

    def _written(
        self, jobs: list[tuple[Job, int]], given_up: TakenJob | None, set_back: list[tuple[int, int]], at_once: bool
    ) -> tuple[list[Done], Exception | None]:
        """Write jobs, on the thread; returns which are done with, and what a job failed at."""
        failure: Exception | None = None
        if given_up is not None:
            self._backlog.lose(given_up.through, given_up.at)
        for since, until in set_back:
            self._backlog.lacks(since, until, GapReason.SET_BACK)
        done: list[Done] = []
        for job, told_until in jobs:
            try:
                self._backlog.take(job, self._clock(), told_until)
            except Exception as error:
                failure = error
            # One by one: the rows of all jobs at once would take several times the memory of what they are made from.
            done += self._backlog.put(self._clock(), at_once=at_once)
        return done + self._backlog.put(self._clock(), at_once=at_once), failure

    def _give_up(self) -> None:
        """Give up the oldest jobs that are not being written, so that memory is bounded. The trail will say so."""
        while self._jobs and self._recorder.statistics().held_bytes > self._held_bytes:
            oldest = self._jobs.pop(0)
            self._given_up = self._release(oldest.number, stored=False)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do something with the disk, in turn with the writing."""
        return await self._thread.do(work)

    async def _check(self) -> None:
        """Look whether the trail is still there, also while nothing is written."""
        await self.in_thread(lambda: self._backlog.check(self._clock()))
        self._tell()

    def _tell(self) -> None:
        trouble = hanging(HANG_SECONDS) if self._hangs else self._backlog.trouble
        if trouble and not self._trouble:
            log.error("tracking degraded", extra={"reason": trouble})
        elif self._trouble and not trouble:
            log.warning("tracking works again", extra={"given_up": self._backlog.statistics().given_up})
        self._trouble = trouble


def _call(action: Callable[[bool], None], written: bool) -> None:
    try:
        action(written)
    except Exception:
        # One connection's defect must not keep the others' receipts back.
        log.exception("internal error", extra={"where": "tracking"})
