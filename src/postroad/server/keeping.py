"""Keeps the record of a running broker: takes what the recorder has ready, and has it written off the loop."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.tracking import TrackingRecorder
    from postroad.trail import Backlog

__all__ = ["Keeper"]

log = logging.getLogger("postroad.tracking")

# How often the recorder is asked for what is ready.
LOOK_SECONDS = 0.25

Result = TypeVar("Result")


class Keeper:
    """Writes the record of one broker.

    Args:
        recorder: has the record.
        backlog: puts it into the trail.
        clock: the broker's time in ms.
        kept: called after something was written, with the time through which the record now is complete.
    """

    def __init__(
        self,
        recorder: TrackingRecorder,
        backlog: Backlog,
        clock: Callable[[], int],
        kept: Callable[[int], None] | None = None,
    ) -> None:
        self._recorder = recorder
        self._backlog = backlog
        self._clock = clock
        self._kept = kept
        # One thread: files are written in the order of the jobs, and a reader of the trail waits its turn.
        self._thread = ThreadPoolExecutor(1, "postroad-trail")
        self._task: asyncio.Task[None] | None = None
        self._through: dict[int, int] = {}
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """What keeps the record from being written; empty while all is well."""
        return self._trouble

    async def start(self) -> None:
        """Begin a run of the trail."""
        await self.in_thread(lambda: self._backlog.open(self._clock()))
        self._tell()
        self._task = asyncio.create_task(self._keep_for_ever())

    async def stop(self) -> None:
        """Write all there is, and end the run. Once; a second call does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.keep(force=True)
            await self.in_thread(lambda: self._backlog.close(self._clock()))
            self._tell()
        self._thread.shutdown()

    async def _keep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.keep()
            except Exception:
                # A defect here must not end the record, still less the broker.
                log.exception("internal error", extra={"where": "tracking"})

    async def keep(self, force: bool = False) -> None:
        """Take what is ready and write it; with `force`, all there is."""
        for job in self._recorder.due(self._clock(), force):
            self._through[job.number] = job.through
            await self.in_thread(lambda job=job: self._backlog.take(job, self._clock()))  # type: ignore[misc]
        for number in await self.in_thread(lambda: self._backlog.put(self._clock(), at_once=force)):
            self._recorder.release(number)
            through = self._through.pop(number)
            if self._kept is not None:
                self._kept(through)
        self._tell()

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do something with the disk, in turn with the writing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _tell(self) -> None:
        trouble = self._backlog.trouble
        if trouble and not self._trouble:
            log.error("tracking degraded", extra={"reason": trouble})
        elif self._trouble and not trouble:
            log.warning("tracking works again", extra={"given_up": self._backlog.statistics().given_up})
        self._trouble = trouble
