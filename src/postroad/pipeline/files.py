"""New files of a trail, written by the workers; they count once the driver commits them to a manifest.

A file has the trail's own format. Its name contains the run and the attempt of the task that writes it, so attempts at
the same task never collide, one after the other or at once. A task that is tried again, or a job that dies, leaves
files that nobody reads; `sweep_unfinished` deletes them.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from postroad.trail import DAY_MS, FileEntry, TrailError, table_named, write_file
from postroad.trail.paths import delete_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from postroad.pipeline.sources import Sources

__all__ = ["PREFIX", "FileMaker", "entry_of", "run_name", "sweep_unfinished", "text_of"]

PREFIX = "compact-"
# A file of this many rows has some tens of megabytes at most; larger files gain nothing.
MAX_FILE_ROWS = 4_000_000
# Longer than any job runs.
UNFINISHED_SECONDS = 2 * 86_400


def run_name() -> str:
    """A name for the files of one run."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def text_of(entry: FileEntry) -> str:
    """Return an entry as text, to send it back to the driver."""
    return msgspec.json.encode(entry).decode()


def entry_of(text: str) -> FileEntry:
    """The entry in a text."""
    return msgspec.json.decode(text.encode(), type=FileEntry)


def attempt() -> str:
    """Return what distinguishes this attempt at a task from all others; a random word outside of tasks."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return f"t{task.taskAttemptId()}" if task else f"d{uuid.uuid4().hex}"


class FileMaker:
    """Writes sorted rows of one table into files: one for each (broker, day), or several if there are many rows.

    Args:
        root: the trail.
        table: the name of the table.
        name: of the files; contains the task that writes them.
    """

    def __init__(self, root: Path, table: str, name: str) -> None:
        self._root = root
        self._table = table_named(table)
        self._name = f"{name}-{attempt()}"
        self._files = 0

    def write(self, broker: int, rows: Any) -> Iterator[FileEntry]:
        """Sort and write the rows of a broker."""
        rows = rows.select(self._table.schema.names).cast(self._table.schema)
        rows = rows.sort_by([(column, "ascending") for column in self._table.sort])
        days = pa.compute.divide(rows.column(self._table.time), DAY_MS)
        for day in sorted(set(days.to_pylist())):
            here = rows.filter(pa.compute.equal(days, day))
            for start in range(0, here.num_rows, MAX_FILE_ROWS):
                part = here.slice(start, MAX_FILE_ROWS).combine_chunks()
                name = f"{self._name}-{self._files:04d}"
                self._files += 1
                yield write_file(self._root, self._table.name, broker, day, name, part)


def sweep_unfinished(sources: Sources, named: Iterable[str] = (), *, is_sole: bool = False) -> int:
    """Delete files that runs wrote and never committed, and those `named`; return how many.

    If nobody else can be at work (`is_sole`), all of them are deleted. Otherwise only those of runs long past.
    """
    live = {entry.path for pinned in sources.pins.values() for entry in pinned.all_entries()[0]}
    doomed = {one.path for pinned in sources.pins.values() if pinned.checkpoint for one in pinned.checkpoint.doomed}
    doomed |= {path for pinned in sources.pins.values() for path in pinned.removed()}
    now = time.time()
    found = list(named)
    root = sources.directory
    for path in root.glob(f"*/broker=*/date=*/{PREFIX}*"):
        with suppress(OSError):
            name = path.relative_to(root).as_posix()
            if name in live | doomed:
                continue
            if is_sole or now - path.lstat().st_mtime > UNFINISHED_SECONDS:
                found.append(name)
    return sum(delete_below(root, name) for name in found)


def check_writable(root: Path) -> None:
    """Refuse before the work begins, not after it.

    Raises:
        TrailError: nothing can be written to the trail.
    """
    probe = root / f".{run_name()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise TrailError(f"{root}: cannot be written ({error.strerror}), and compaction writes to the trail") from None
