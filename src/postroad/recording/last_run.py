"""Which run a broker wrote last, kept in its data directory: the trail may be moved while the broker is stopped.

A trail without that run does not hold all that the broker recorded, and its next run says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from postroad.trail import Run, TrailWriteError, replace_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LastRun"]

log = logging.getLogger("postroad.tracking")

# Stands for an unknown run: the file exists and cannot be read.
_UNKNOWN = Run(0, 0, 0)


class LastRun:
    """The file that names the last run. One thread uses it.

    Args:
        path: of the file; None if nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: tuple[int, int] | None = None

    def read(self) -> Run | None:
        """The run; None if this broker has written none."""
        if self._path is None:
            return None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Run)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("last run not known", extra={"reason": f"{self._path}: {error}"})
            return _UNKNOWN

    def keep(self, run: Run | None) -> None:
        """Take note of a run, if it is another than before."""
        if self._path is None or run is None or (run.number, run.since) == self._kept:
            return
        try:
            replace_file(self._path, msgspec.json.encode(run) + b"\n")
        except TrailWriteError as error:
            # The next start may then take the trail for one that was moved: a hole too many, and none too few.
            log.warning("last run not kept", extra={"reason": str(error)})
            return
        self._kept = run.number, run.since
