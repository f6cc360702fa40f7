"""The journal of a running broker: receipts wait for it, and its entries are deleted once the trail has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.recording.disk import DiskThread, hanging, is_done
from postroad.tracking.journaled_recorder import turn_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.recording.writer import TakenJob
    from postroad.trail import Journal

__all__ = ["JournalWriter"]

log = logging.getLogger("postroad.tracking")

# What no receipt waits for is forced to disk this often: a busy broker writes some tens of megabytes in that time, and
# Journal.MAX_WAITING_BYTES may wait. Also how often a disk that failed is tried again.
SYNC_SECONDS = 0.5

# Who waits for the disk at once, each for the receipts of one read. When a disk hangs, the oldest get theirs without
# waiting any longer, and these say that nothing is sure.
MOST_WAITING = 10_000

# A disk that has not answered for this long is in trouble, and receipts wait for it no longer. The disks of a machine
# answer within a second also when they are busy, those of a network within some.
HANG_SECONDS = 10.0


class JournalWriter:
    """Forces the journal to disk, many entries at once, and calls back those that wait for it.

    Args:
        journal: takes entries on the loop, and is synced here.
        clock: the broker's time in ms; without it the ends of turns are not marked.
    """

    def __init__(self, journal: Journal, clock: Callable[[], int] | None = None) -> None:
        self.journal = journal
        self._clock = clock
        # The position, whether an entry up to it was given up, and whom to call.
        self._waiting: deque[tuple[int, bool, Callable[[bool], None]]] = deque()
        self._asked = 0
        self._reached = 0
        # The positions before and after the last entry that ended a turn.
        self._turn = 0, 0
        self._lost: list[tuple[int, int]] = []
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
        """Sync what is left, within the time that a disk may take, and answer all waiting calls. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._sync(for_ever=False)
            if not self._hangs:
                await self.release()
        self._thread.end()

    def when_safe(self, action: Callable[[bool], None]) -> None:
        """Call this with True once all entries so far are on disk, with False if the disk does not take them.

        Nobody waits for a disk that does not answer.
        """
        # Entries since the last question may be lost, any of them and not just the last.
        lost, self._asked = self.journal.lost_through > self._asked, self.journal.position
        if self._hangs:
            action(False)
            return
        if self.journal.position <= self.journal.durable and not self._waiting:
            action(not self.journal.trouble and not lost)
            return
        self._waiting.append((self.journal.position, lost, action))
        if len(self._waiting) > MOST_WAITING:
            _tell(self._waiting.popleft()[-1], False)
        self._wanted.set()

    def kept(self, part: TakenJob, stored: bool) -> None:
        """A part of the record is in the trail, or was given up: then its entries stay for the next start."""
        self._reached = max(self._reached, part.covers)
        if not stored:
            joins = bool(self._lost) and self._lost[-1][1] >= part.since
            since = self._lost.pop()[0] if joins else part.since
            self._lost.append((since, part.position))

    async def release(self) -> None:
        """Let go of what the trail has."""
        await is_done(self._released(), HANG_SECONDS)

    def _released(self) -> asyncio.Future[int]:
        before, after = self._turn
        reached, lost = max(self._reached, after if self._reached >= before else 0), tuple(self._lost)
        return self._thread.do(lambda: self.journal.release(reached, lost))

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
        if self._clock is not None and self.journal.position > self.journal.durable:
            # Nothing else runs on the loop just now: the turn that wrote the latest entry is over.
            position = self.journal.position
            self._turn = position, self.journal.append(turn_entry(self._clock()), ends_turn=True)
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
            _, lost, action = self._waiting.popleft()
            _tell(action, safe and not lost)
        if self._waiting:
            self._wanted.set()

    def _give_up(self) -> None:
        """The disk does not respond: answer all waiting calls with False."""
        if not self._hangs:
            log.error("journal not written", extra={"reason": hanging(HANG_SECONDS)})
        self._hangs, self._trouble = True, hanging(HANG_SECONDS)
        waiting, self._waiting = self._waiting, deque()
        for _, _, action in waiting:
            _tell(action, False)


def _tell(action: Callable[[bool], None], safe: bool) -> None:
    try:
        action(safe)
    except Exception:
        # One connection's defect must not keep the others' receipts back.
        log.exception("internal error", extra={"where": "journal"})
