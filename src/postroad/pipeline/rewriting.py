"""Small files of a broker put together into large ones, sorted as the trail's writer sorts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroad.pipeline.files import FileMaker
from postroad.pipeline.units import Unit, done
from postroad.trail import TABLES, Reads, TrailFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.pipeline.changes import Changes
    from postroad.pipeline.running import Run
    from postroad.pipeline.sources import Sources
    from postroad.trail import FileEntry

__all__ = ["read_unit", "rewritten", "small_files"]

# What one task reads at once, compressed; decoded it is some five times as much.
UNIT_BYTES = 64 << 20
# Passages are joined, filters merged: each in a way of its own.
_NOT_HERE = ("passages", "filters")


def small_files(sources: Sources, small: int, skipped: tuple[str, ...] = _NOT_HERE) -> list[Unit]:
    """Files of one broker, table and day that are worth being put together: several small ones."""
    folders: dict[tuple[int, str, int], list[FileEntry]] = defaultdict(list)
    for name in TABLES:
        if name not in skipped:
            for broker, entry in sources.of(name):
                if entry.size < small and sources.covers(entry):
                    folders[broker, name, entry.day].append(entry)
    return [
        Unit(*folder, tuple(part))
        for folder, entries in sorted(folders.items())
        for part in _portions(sorted(entries, key=lambda entry: (entry.time_from, entry.path)))
        if len(part) > 1
    ]


def _portions(entries: list[FileEntry]) -> Iterator[list[FileEntry]]:
    part: list[FileEntry] = []
    for entry in entries:
        if part and sum(one.size for one in part) + entry.size > UNIT_BYTES:
            yield part
            part = []
        part.append(entry)
    if part:
        yield part


def read_unit(root: Path, unit: Unit) -> Any:
    """All rows of a unit, as an Arrow table; damage is an error that names the file."""
    names = TABLES[unit.table].schema.names
    reads = Reads()
    return pa.concat_tables([TrailFile(root, entry, unit.broker, reads).read(names) for entry in unit.entries])


def rewritten(run: Run, changes: Changes, name: str, small: int) -> dict[str, int]:
    """Put small files together; what they are replaced by is noted in the changes."""
    from postroad.pipeline.sources import Source

    units = small_files(run.sources, small)
    root = run.sources.root

    def rewrite(number: int, unit: Unit) -> Iterator[FileEntry]:
        yield from FileMaker(root, unit.table, f"{name}-r{number}").write(unit.broker, read_unit(root, unit))

    for entry in done(run.spark, units, rewrite):
        changes.add(entry)
    for unit in units:
        for entry in unit.entries:
            changes.remove(Source(unit.broker, entry))
    return {"small_files_rewritten": sum(len(unit.entries) for unit in units)}
