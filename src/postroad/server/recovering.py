"""What earlier processes left in the journal, and the trail does not have, is added to it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from postroad.tracking.journaling import JournalEntryError, retell, told_at
from postroad.trail import Run, TrailWriter, pin, replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.tracking import TrackingRecorder
    from postroad.trail import Hole

__all__ = ["LAPSED", "recover"]

log = logging.getLogger("postroad.tracking")

LAPSED = "the journal lacks entries of this time"


def recover(root: Path, broker: int, fresh: Callable[[int], TrackingRecorder]) -> int:
    """Add to the trail what the journal has beyond it; answers how many entries that were.

    Whatever became of the runs since: a recovery that failed is made up for at a later start.

    Args:
        root: the trail.
        broker: whose.
        fresh: a recorder that begins at a time.

    Raises:
        PostroadError: the disk does not take it.
    """
    warnings: list[str] = []
    lapsed = threading.Event()
    work: _Recovery | None = None
    for entry in replay(root, broker, warnings, lapsed.set):
        work = work or _Recovery(root, broker, fresh)
        try:
            work.tell(entry, lapsed.is_set())
        except JournalEntryError as error:
            warnings.append(str(error))
            lapsed.set()
        else:
            lapsed.clear()
    if work is not None:
        work.flush()
    for warning in warnings:
        log.warning("journal", extra={"reason": warning})
    return 0 if work is None else work.told


class _Recovery:
    """Tells entries to recorders, one for each run that lacks some."""

    def __init__(self, root: Path, broker: int, fresh: Callable[[int], TrackingRecorder]) -> None:
        self._root, self._broker, self._fresh = root, broker, fresh
        state = pin(root, broker)
        self._runs: list[Run] = list(state.runs)
        self._holes: tuple[Hole, ...] = state.holes
        self._part: tuple[TrailWriter, TrackingRecorder] | None = None
        self._last = 0
        self.told = 0

    def tell(self, entry: bytes, lapsed: bool) -> None:
        """Tell what an entry says, unless the trail has it; `lapsed` says that others are missing before it."""
        at = told_at(entry)
        if self._is_covered(at):
            return
        writer, recorder = self._part_of(at)
        retell(entry, recorder)
        if lapsed:
            writer.lacks(min(self._last, at), at + 1, LAPSED)
        self._last = max(self._last, at)
        self.told += 1

    def flush(self) -> None:
        """Write what the recorder of the run in hand was told."""
        if self._part is None:
            return
        writer, recorder = self._part
        self._part = None
        # All that was observed is told: the record is complete one moment past the last of it.
        for job in recorder.due(self._last + 1, force=True):
            writer.write(job.make(), max(job.through, writer.run.through))
            recorder.release(job.number)

    def _is_covered(self, at: int) -> bool:
        """What readers say is complete was written. In the first moment of a run they do, before anything is."""
        covered = any(run.since < at <= run.through for run in self._runs)
        return covered and not any(hole.since <= at < hole.until for hole in self._holes)

    def _part_of(self, at: int) -> tuple[TrailWriter, TrackingRecorder]:
        run = max((one for one in self._runs if one.since <= at), key=lambda one: one.since, default=None)
        if run is not None and run.closed and at > run.through:
            # Of a later process, which could not begin its run.
            run = None
        if self._part is None or run is None or self._part[0].run.number != run.number:
            self.flush()
            if run is None:
                writer = TrailWriter(self._root, self._broker, at, is_over=True)
                self._runs.append(writer.run)
            else:
                writer = TrailWriter.resume(self._root, self._broker, run)
            self._last = writer.run.through
            self._part = writer, self._fresh(min(at, writer.run.through))
        return self._part
