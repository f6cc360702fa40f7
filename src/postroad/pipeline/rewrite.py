"""Merges small files of a broker into large ones, sorted as the trail's writer sorts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroad.pipeline.erasure import Erased, Erasure, without
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.files import FileMaker
from postroad.pipeline.merged_filters import merged_rows
from postroad.pipeline.proof import same_rows
from postroad.pipeline.units import Unit, done
from postroad.trail import TABLES, Reads
from postroad.trail.coverage import run_of_file
from postroad.trail.read_ahead import opened_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.pipeline.changes import Changes
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.sources import Sources
    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

__all__ = ["erased_files", "found_traces", "merged_filters", "read_unit", "rewritten", "small_files"]

# What one task reads at once, compressed; about five times as much decoded.
UNIT_BYTES = 64 << 20
# Passages are joined and filters merged by other modules.
_NOT_HERE = ("passages", "filters")


def small_files(sources: Sources, small: int, skipped: tuple[str, ...] = _NOT_HERE) -> list[Unit]:
    """Return files of one broker, table and day that are worth merging: several small ones."""
    folders: dict[tuple[int, str, int], list[FileEntry]] = defaultdict(list)
    for name in TABLES:
        if name not in skipped:
            for broker, entry in sources.inside(name):
                if entry.size < small:
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


def read_unit(root: Location, unit: Unit) -> Any:
    """Return all rows of a unit as an Arrow table; damage is an error that names the file."""
    schema = TABLES[unit.table].schema
    reads = Reads()
    asked = ((unit.broker, entry) for entry in unit.entries)
    files = [file.read(schema.names) for _, _, file in opened_ahead(root, asked, reads)]
    # A column that is empty in the whole file has no type.
    return pa.concat_tables([rows.select(schema.names).cast(schema) for rows in files])


def rewritten(run: JobRun[Any], changes: Changes, name: str, small: int) -> dict[str, int]:
    """Merge small files, and note in the changes what replaces them."""
    from postroad.pipeline.sources import SourceFile

    units = small_files(run.sources, small)
    root = run.sources.directory

    def rewrite(number: int, unit: Unit) -> Iterator[FileEntry]:
        yield from FileMaker(root, unit.table, f"{name}-r{number}").write(unit.broker, read_unit(root, unit))

    written = done(run.spark, units, rewrite)
    for entry in written:
        changes.add(entry)
    for unit in units:
        for entry in unit.entries:
            changes.remove(SourceFile(unit.broker, entry))
    before = sum(entry.rows for unit in units for entry in unit.entries)
    same_rows("small files", before, sum(entry.rows for entry in written))
    return {"small_files_rewritten": sum(len(unit.entries) for unit in units)}


def merged_filters(run: JobRun[Any], changes: Changes, name: str) -> dict[str, int]:
    """Merge the filters of each broker and day if possible; files without a possible merge stay."""
    from postroad.pipeline.sources import SourceFile

    folders: dict[tuple[int, int], list[FileEntry]] = defaultdict(list)
    for broker, entry in run.sources.inside("filters"):
        folders[broker, entry.day].append(entry)
    units = [
        Unit(broker, "filters", day, tuple(part))
        for (broker, day), entries in sorted(folders.items())
        for part in _portions(sorted(entries, key=lambda entry: (entry.time_from, entry.path)))
        if len(part) > 1
    ]
    root = run.sources.directory

    def merge(number: int, unit: Unit) -> Iterator[tuple[int, int, FileEntry]]:
        rows = read_unit(root, unit)
        for entry in FileMaker(root, "filters", f"{name}-f{number}").write(
            unit.broker, merged_rows(rows, unit.entries[0].path)
        ):
            yield number, rows.num_rows, entry

    found = done(run.spark, units, merge)
    for _, _, entry in found:
        changes.add(entry)
    for unit in units:
        for entry in unit.entries:
            changes.remove(SourceFile(unit.broker, entry))
    before = sum({number: rows for number, rows, _ in found}.values())
    return {"filters_before": before, "filters_after": sum(entry.rows for _, _, entry in found)} if found else {}


def found_traces(run: JobRun[Any], who: Erasure | str) -> Erased:
    """Return all that is to be erased for a subscription or a principal, by the tables of subscriptions and names.

    Raises:
        PipelineError: there is no record of it.
    """
    units = [
        Unit(broker, table, entry.day, (entry,))
        for table in ("subscriptions", "names")
        for broker, entry in run.sources.of(table, always=True)
    ]
    root = run.sources.directory

    def find(number: int, unit: Unit) -> Iterator[tuple[str, int, int, str]]:
        columns = ("subscription", "principal") if unit.table == "subscriptions" else ("number", "name")
        rows = read_unit(root, unit)
        pairs = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        yield from {(unit.table, unit.broker, whose, name) for whose, name in pairs}

    found = done(run.spark, units, find)
    attached = {(Erasure(broker, number), name) for table, broker, number, name in found if table == "subscriptions"}
    if isinstance(who, str):
        chosen, names = frozenset(one for one, name in attached if name == who), frozenset([who])
    else:
        chosen, names = frozenset([who]), frozenset(name for one, name in attached if one == who)
    others = frozenset(name for one, name in attached if one not in chosen and name in names)
    gone = names - others
    publishers = frozenset(
        (broker, number) for table, broker, number, name in found if table == "names" and name in gone
    )
    if isinstance(who, str) and not chosen and not publishers:
        raise PipelineError(f"the trail has no record of a principal {who!r}; nothing was changed")
    return Erased(chosen, gone, publishers, others)


def erased_files(run: JobRun[Any], changes: Changes, name: str, what: Erased) -> dict[str, int]:
    """Rewrite every file that contains something to be erased.

    Raises:
        PipelineError: there is none.
    """
    from postroad.pipeline.sources import SourceFile

    units = []
    brokers = {who.broker for who in what.subscriptions}
    tables = ["journeys", "passages", "subscriptions", "shed", "records", "filters"]
    tables += ["names", "aliases"] if what.names else []
    for table in tables:
        for broker, entry in run.sources.of(table, always=True):
            if table in ("journeys", "names", "aliases") or broker in brokers:
                units.append(Unit(broker, table, entry.day, (entry,)))
    root = run.sources.directory

    def erase(number: int, unit: Unit) -> Iterator[tuple[int, FileEntry | None]]:
        rows = read_unit(root, unit)
        left = without(unit.table, unit.broker, rows, what)
        if left is rows or left.equals(rows):
            return
        yield number, None
        if left.num_rows:
            # Readers of passages need the run that wrote them.
            mark = f"{name}-e{number}-of{run_of_file(unit.entries[0].path):012d}"
            for entry in FileMaker(root, unit.table, mark).write(unit.broker, left):
                yield number, entry

    found = done(run.spark, units, erase)
    if not found:
        who = min(what.subscriptions)
        raise PipelineError(
            f"broker {who.broker} has no record of a subscription {who.subscription}; nothing was changed"
        )
    for number in {number for number, _ in found}:
        changes.remove(SourceFile(units[number].broker, units[number].entries[0]))
    for _, written in found:
        if written is not None:
            changes.add(written)
    shared = sum(unit.table == "filters" for unit in units)
    return {"files_written_anew": len({number for number, _ in found}), "files_of_shared_filters": shared}
