"""Adds to the trail what earlier processes left only in the journal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from postroad.trail import TrailWriter, pin, read_segments, remainders
from postroad.trail.coverage import LAPSED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.tracking import TrackingRecorder
    from postroad.trail import Remainder

__all__ = ["LAPSED", "recover"]

log = logging.getLogger("postroad.tracking")


def recover(root: Path, broker: int, fresh: Callable[[int], TrackingRecorder]) -> int:
    """Add to the trail what the journal has beyond it; returns how many entries that were.

    Whatever became of the runs since: a recovery that failed is repeated at a later start.

    Args:
        root: the trail.
        broker: whose.
        fresh: a recorder that begins at a time.

    Raises:
        PostroadError: the disk does not take it.
    """
    warnings: list[str] = []
    state = pin(root, broker)
    replayed = 0
    for part in remainders(read_segments(root, broker, warnings), state.runs, state.holes, fresh, warnings):
        _write(root, broker, part)
        replayed += part.replayed
    for warning in warnings:
        log.warning("journal", extra={"reason": warning})
    return replayed


def _write(root: Path, broker: int, part: Remainder) -> None:
    if part.run.number < 0:
        writer = TrailWriter(root, broker, part.run.since, is_over=True)
    else:
        writer = TrailWriter.resume(root, broker, part.run)
    for hole in part.holes:
        writer.lacks(hole.since, hole.until, hole.reason)
    for job in part.recorder.due(part.through + 1, force=True):
        writer.write(job.make(), max(job.through, writer.run.through))
        part.recorder.release(job.number)
