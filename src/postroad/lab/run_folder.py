"""The directory of one run: settings, raw events cell by cell, and the progress of the run.

        RUN/run.json                        the request, and the state: running, partial or complete
        RUN/raw/cell=<key>/<table>.parquet  raw events of a cell that was played to its end
        RUN/unfinished/cell=<key>/          events of a cell that was interrupted; no summary uses them
        RUN/summary/<table>                 what Spark made of the raw events
        RUN/summary/cells.txt               the cells that the summaries cover

A cell is put in place in one step. A run that was killed, or that a full disk ended, continues with the missing cells
when it is started again with the same settings.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from postroad import __version__
from postroad.lab.errors import LabError
from postroad.lab.raw_events import RawEvents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["RunFolder"]

RUN_FORMAT = 1
RUNNING, PARTIAL, COMPLETE = "running", "partial", "complete"
# Beside the summaries: the cells that they cover.
SUMMARISED = "cells.txt"


class RunFolder:
    """A run on disk.

    Args:
        root: its directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def raw(self) -> Path:
        """Return where the cells are."""
        return self.root / "raw"

    @property
    def summary(self) -> Path:
        """Return where the summaries are."""
        return self.root / "summary"

    @property
    def exists(self) -> bool:
        """Return whether a run was ever begun here."""
        return (self.root / "run.json").exists()

    def read(self) -> dict[str, Any]:
        """Return the content of `run.json`.

        Raises:
            LabError: there is no run here, or it cannot be read.
        """
        path = self.root / "run.json"
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise LabError(f"{self.root}: there is no run here; `postroad lab run` makes one") from None
        except (OSError, ValueError) as error:
            raise LabError(f"{path}: cannot be read ({error}); delete it to run anew") from None
        if not isinstance(found, dict) or found.get("format") != RUN_FORMAT:
            raise LabError(f"{path}: another version of Postroad wrote it; choose another directory")
        return found

    def begin(self, asked: Mapping[str, Any], cells: list[str], *, fresh: bool = False) -> list[str]:
        """Begin a run, or continue one; return the cells that are still to be played.

        Args:
            asked: experiment, mode, scale, seed and so on.
            cells: the keys of all cells, in order.
            fresh: delete what an earlier run left.

        Raises:
            LabError: a run with other settings is here, or the directory cannot be written.
        """
        asked = json.loads(json.dumps(asked))
        if fresh and self.exists:
            shutil.rmtree(self.root)
        if self.exists:
            before = self.read()
            if before["asked"] != asked:
                changed = sorted(name for name in asked if before["asked"].get(name) != asked[name])
                raise LabError(
                    f"{self.root}: holds a run with other settings ({', '.join(changed) or 'fewer of them'}); "
                    "choose another --out, or --fresh to throw it away"
                )
        elif self.root.is_file() or (self.root.is_dir() and any(self.root.iterdir())):
            raise LabError(f"{self.root}: is not empty and holds no run; choose another directory")
        with self._errors_of_ours():
            self.raw.mkdir(parents=True, exist_ok=True)
            for left in self.raw.glob(".cell=*"):
                shutil.rmtree(left)
            self._write({"format": RUN_FORMAT, "version": __version__, "asked": asked, "cells": cells}, RUNNING)
        return [key for key in cells if not self.has(key)]

    def has(self, key: str) -> bool:
        """Return whether a cell was played to its end."""
        return (self.raw / f"cell={key}").is_dir()

    def progress(self) -> tuple[int, int]:
        """Return how many cells were played to their end, and how many there are."""
        cells = self.read()["cells"]
        return sum(self.has(key) for key in cells), len(cells)

    @property
    def is_summarised(self) -> bool:
        """Return whether there are summaries of all cells that were played."""
        try:
            summarised = (self.summary / SUMMARISED).read_text("utf-8").split()
        except OSError:
            return False
        return set(summarised) == {key for key in self.read()["cells"] if self.has(key)}

    def put_summarised(self) -> None:
        """Record that all cells that were played are summarised; after the last summary."""
        cells = [key for key in self.read()["cells"] if self.has(key)]
        with self._errors_of_ours():
            (self.summary / SUMMARISED).write_text("".join(f"{key}\n" for key in cells), "utf-8")

    def finish(self) -> str:
        """Record the state of the run: complete if all cells are there."""
        said = self.read()
        state = COMPLETE if all(self.has(key) for key in said["cells"]) else PARTIAL
        with self._errors_of_ours():
            self._write({name: value for name, value in said.items() if name != "state"}, state)
        return state

    @property
    def state(self) -> str:
        """Return the state of the run: one marked as running that nobody runs was killed, and is partial."""
        said = self.read()
        return COMPLETE if all(self.has(key) for key in said["cells"]) else PARTIAL

    @contextmanager
    def cell(self, key: str) -> Iterator[RawEvents]:
        """Collect the events of one cell; they are put in place if the block ends without an error.

        After an error, the events so far are kept apart, as far as the disk allows.

        Raises:
            LabError: the disk is full, or cannot be written.
        """
        events = RawEvents()
        try:
            yield events
        except BaseException:
            with suppress(OSError):
                self._put(events, self.root / "unfinished", key)
            raise
        with self._errors_of_ours():
            self._put(events, self.raw, key)
            shutil.rmtree(self.root / "unfinished" / f"cell={key}", ignore_errors=True)

    @staticmethod
    def _put(events: RawEvents, parent: Path, key: str) -> None:
        fresh, place = parent / f".cell={key}", parent / f"cell={key}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            events.write(fresh)
            shutil.rmtree(place, ignore_errors=True)
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _write(self, said: Mapping[str, Any], state: str) -> None:
        fresh = self.root / ".run.json"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps({**said, "state": state}, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.root / "run.json")

    @contextmanager
    def _errors_of_ours(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "the disk is full" if full else f"cannot be written ({error.strerror})"
            advice = "free some space" if full else "choose another directory"
            raise LabError(
                f"{self.root}: {reason}; finished cells are kept: {advice} and start the same run again to go on"
            ) from None
