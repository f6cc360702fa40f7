"""The journal of a running broker: receipts wait for it, and what a crash left in it is added to the trail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.server.disk import DiskThread, hanging, is_done
from postroad.tracking.journaling import retell
from postroad.trail import Journal, TrailWriter, replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.tracking import TrackingRecorder

__all__ = ["JournalKeeper", "recover"]

log = logging.getLogger("postroad.tracking")

# What no receipt waits for is forced to disk this often: a busy broker writes some tens of megabytes in that time, and
# Journal.MAX_WAITING_BYTES may wait. Also how often a disk that failed is tried again.
SYNC_SECONDS = 0.5

# Who waits for the disk at once, each for the receipts of one read. When a disk hangs, the oldest get theirs without
# waiting any longer, and these say that nothing is sure.
MOST_WAITING = 10_000

# A disk that has not answered for so long is in trouble, and receipts wait for it no longer. The disks of a machine
# answer within a second also when they are busy, those of a network within some.
HANG_SECONDS = 10.0

LAPSED = "the journal lacks entries of this time"


def recover(root: Path, broker: int, fresh: Callable[[int], TrackingRecorder]) -> int:
    """Add to the trail what the journal of a run that crashed has beyond it; answers how many entries there were.

    Args:
        root: the trail.
        broker: whose.
        fresh: a recorder that begins at a time.

    Raises:
        PostroadError: the disk does not take it.
    """
    warnings: list[str] = []
    writer = TrailWriter.resume(root, broker)
    if writer is None:
        return 0
    recorder = fresh(writer.run.through)
    told, last = 0, writer.run.through
    lapsed = threading.Event()
    for entry in replay(root, broker, warnings, lapsed.set):
        try:
            at = max(last, retell(entry, recorder))
        except PostroadError as error:
            warnings.append(str(error))
            lapsed.set()
            continue
        if lapsed.is_set():
            writer.lacks(last, at + 1, LAPSED)
            lapsed.clear()
        told, last = told + 1, at
    if told:
        # All that was observed is told: the record is complete one moment past the last of it.
        for job in recorder.due(last + 1, force=True):
            writer.write(job.make(), max(job.through, writer.run.through))
            recorder.release(job.number)
    for warning in warnings:
        log.warning("journal", extra={"reason": warning})
    return told


class JournalKeeper:
    """Forces the journal to disk, many entries at once, and tells who waits for it.

    Args:
        journal: takes entries on the loop, and is synced here.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._waiting: deque[tuple[int, Callable[[bool], None]]] = deque()
        self._wanted = asyncio.Event()
        # A thread of its own: a receipt must not wait while a file of the trail is written.
        self._thread = DiskThread("postroad-journal")
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._hangs = False

    @property
    def trouble(self) -> str:
        """What keeps the journal from being written; empty while all is well."""
        return self._trouble

    def start(self) -> None:
        """Begin to sync."""
        self._task = asyncio.create_task(self._sync_for_ever())

    async def stop(self) -> None:
        """Sync what is left, in the time that a disk may take; whoever waits is told. A second call does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._sync(for_ever=False)
        self._thread.end()

    def when_safe(self, action: Callable[[bool], None]) -> None:
        """Call this with True once all entries so far are on disk, with False if the disk does not take them.

        Nobody waits for a disk that does not answer.
        """
        if self._hangs:
            action(False)
            return
        if self.journal.position <= self.journal.durable and not self._waiting:
            action(not self.journal.trouble and not self._is_lost(self.journal.position))
            return
        self._waiting.append((self.journal.position, action))
        if len(self._waiting) > MOST_WAITING:
            _tell(self._waiting.popleft()[1], False)
        self._wanted.set()

    async def release(self, through: int) -> None:
        """The trail has everything up to a time: the journal need not."""
        await self._thread.do(lambda: self.journal.release(through))

    async def _sync_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), SYNC_SECONDS)
            self._wanted.clear()
            try:
                if self._waiting or self.journal.position > self.journal.durable:
                    await self._sync()
            except Exception:
                log.exception("internal error", extra={"where": "journal"})

    async def _sync(self, for_ever: bool = True) -> None:
        work = self._thread.do(self.journal.sync)
        while not await is_done(work, HANG_SECONDS):
            self._give_up()
            if not for_ever:
                return
        self._hangs = False
        try:
            durable, safe = work.result(), True
        except PostroadError as error:
            if not self._trouble:
                log.error("journal not written", extra={"reason": str(error)})
            # Messages do not wait for a broken disk. Their receipts say that they are not on record.
            durable, safe = self.journal.position, False
        if safe and self._trouble:
            log.warning("journal written again", extra={"lost": self.journal.statistics().lost_entries})
        self._trouble = self.journal.trouble
        while self._waiting and self._waiting[0][0] <= durable:
            position, action = self._waiting.popleft()
            _tell(action, safe and not self._is_lost(position))
        if self._waiting:
            self._wanted.set()

    def _give_up(self) -> None:
        """The disk does not answer: whoever waits for it is told that nothing is sure."""
        if not self._hangs:
            log.error("journal not written", extra={"reason": hanging(HANG_SECONDS)})
        self._hangs, self._trouble = True, hanging(HANG_SECONDS)
        waiting, self._waiting = self._waiting, deque()
        for _, action in waiting:
            _tell(action, False)

    def _is_lost(self, position: int) -> bool:
        return 0 < position <= self.journal.lost_through


def _tell(action: Callable[[bool], None], safe: bool) -> None:
    try:
        action(safe)
    except Exception:
        # One connection's defect must not keep the others' receipts back.
        log.exception("internal error", extra={"where": "journal"})
