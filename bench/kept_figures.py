"""Figures of a long benchmark, kept section by section, so that a run that was cut goes on where it stopped.

A section is measured once for each size. What it gave is written down at once, with the time, the load of the machine
and a digest of the sources; figures of other sources are measured again. A section that fails, or that there is no
time, memory or disk for, is told with its reason, and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["KeptFigures", "NotMeasuredError", "digest_of"]

NO_TIME = "there was no time left (--minutes)"
INTERRUPTED = "the run was interrupted"


class NotMeasuredError(Exception):
    """A section cannot be measured here; the text says why, and what it would take."""


class KeptFigures:
    """What was measured, in a file.

    Args:
        path: of the file.
        digest: of the sources; figures of others do not count.
        minutes: after so many no further section is begun; 0 for no bound.

    Attributes:
        skipped: section and size -> why there are no figures.
        failed: those among them that should have been there.
    """

    def __init__(self, path: Path, digest: str, minutes: float = 0) -> None:
        self._path, self._digest = path, digest
        self._ends = time.monotonic() + 60 * minutes if minutes else float("inf")
        self._is_interrupted = False
        self._kept: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.failed: list[str] = []
        try:
            found = json.loads(path.read_text())
            self._kept = {name: one for name, one in found.items() if one["digest"] == digest}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # None yet, or a file that was cut off: all is measured.

    def measure(self, section: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """The figures of a section: those that are kept, or what the work gives; None where it gives none."""
        if section in self._kept:
            print(f"{section}: measured before, at {self._kept[section]['at']}", flush=True)
            return self.of(section)
        if self._is_interrupted or time.monotonic() >= self._ends:
            return self._skip(section, INTERRUPTED if self._is_interrupted else NO_TIME)
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"{section}: begins, load {load:.1f}", flush=True)
        try:
            figures = work()
        except NotMeasuredError as error:
            return self._skip(section, str(error))
        except KeyboardInterrupt:
            self._is_interrupted = True
            return self._skip(section, INTERRUPTED)
        except Exception as error:
            # One section that fails must not take with it what hours of others have measured.
            self.failed.append(section)
            return self._skip(section, f"failed: {type(error).__name__}: {error}".splitlines()[0])
        seconds = round(time.monotonic() - began, 1)
        about = {"at": time.strftime("%Y-%m-%d %H:%M:%S"), "seconds": seconds, "digest": self._digest}
        self._kept[section] = {**about, "load": [round(load, 1), round(os.getloadavg()[0], 1)], "figures": figures}
        self._write()
        print(f"{section}: {seconds:.0f} s", flush=True)
        return figures

    def of(self, section: str) -> dict[str, Any] | None:
        """The figures of a section that was measured."""
        kept = self._kept.get(section)
        return None if kept is None else dict(kept["figures"])

    def loads(self) -> dict[str, list[float]]:
        """The load of the machine when each section began and ended; one is of the section itself."""
        return {section: one["load"] for section, one in self._kept.items()}

    def _skip(self, section: str, reason: str) -> dict[str, Any] | None:
        print(f"{section}: not measured: {reason}", flush=True)
        self.skipped[section] = reason
        return None

    def _write(self) -> None:
        fresh = self._path.with_suffix(".tmp")
        fresh.write_text(json.dumps(self._kept))
        fresh.replace(self._path)


def digest_of(folders: Iterable[Path]) -> str:
    """A digest of the Python sources in some folders, and in those below them."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        found.update(path.as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
