"""What the journals of brokers hold beyond the files of the trail, for questions about times that no file covers.

A broker that died leaves in its journal what it had not written. When it starts again, it adds that to the trail. Until
then the pipeline reads the journal here, as `postroad trace` does, and adds its rows to those of the files.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroad.pipeline.sources import Damage, with_unmet
from postroad.tracking import ExactRecorder
from postroad.trail import (
    DEFAULT_SKEW_MS,
    SCHEMAS,
    Reads,
    TrailFile,
    TrailWriter,
    gaps_within,
    pin_fitting,
    read_segments,
    remainders,
)
from postroad.trail.coverage import FOREVER, GIVEN_UP, GapReason, joined
from postroad.trail.journal import SegmentEntries, has_at_most

if TYPE_CHECKING:
    from postroad.pipeline.sources import Sources
    from postroad.trail import Pinned, Remainder
    from postroad.trail.spots import Spots

__all__ = ["with_journals"]

# Larger journals stay a gap in the answer: decoded they take about ten times as much memory, and a second per 10 MB.
MAX_JOURNAL_BYTES = 64 << 20
# The tables that a journal may add rows to.
_OPEN = {GapReason.CRASHED, GapReason.NOT_YET_WRITTEN, GIVEN_UP}


def with_journals(sources: Sources, spots: Spots | None) -> Sources:
    """Return the trail with the rows of journals, if a question is about times that the files do not cover.

    Args:
        sources: the trail. A trail in a store has no journals, which stay with their brokers.
        spots: the minutes that are asked about; all if None.

    Raises:
        DamagedFileError: a manifest that is read again cannot be read.
    """
    if not isinstance(sources.root, Path):
        return sources
    pins, journalled = (
        dict(sources.pins),
        defaultdict(list, {name: [rows] for name, rows in sources.journalled.items()}),
    )
    for broker, pinned in sources.pins.items():
        if not has_at_most(sources.root, broker, MAX_JOURNAL_BYTES) or not _is_open(pinned, spots):
            continue
        warnings: list[str] = []
        # Read the journal before pinning the manifest again: what a live broker truncates meanwhile is then in the
        # files.
        entries = [SegmentEntries(iter(list(one.entries)), one.is_torn) for one in _segments(sources, broker, warnings)]
        fresh = pin_fitting(sources.root, broker, sources.reads)
        for text in fresh.warnings:
            path, _, problem = text.partition(": ")
            sources.leave_out(Damage(path, problem, broker, 0, 0))
        runs, holes = fresh.runs, fresh.holes
        for part in remainders(entries, runs, holes, partial(ExactRecorder, broker), warnings):
            runs, holes = joined(runs, part.extended), (*holes, *part.holes)
            for name, rows in _tables(broker, part).items():
                journalled[name].append(rows)
        pins[broker] = fresh._replace(runs=runs, holes=holes)
    if not journalled and pins == sources.pins:
        return sources
    # A manifest that was pinned again may rest on what was compacted since.
    pins = with_unmet(pins)
    return replace(
        sources, pins=pins, journalled={name: pa.concat_tables(parts) for name, parts in journalled.items()}, _found={}
    )


def _segments(sources: Sources, broker: int, warnings: list[str]) -> list[SegmentEntries]:
    assert isinstance(sources.root, Path)
    return list(read_segments(sources.root, broker, warnings))


def _is_open(pinned: Pinned, spots: Spots | None) -> bool:
    """Return whether a run of the broker ends without a close in the times that are asked about, or later.

    A message may enter, or be relayed, long after its id's time.
    """
    since = 0 if spots is None else spots.since - DEFAULT_SKEW_MS
    return any(gap.reason in _OPEN for gap in gaps_within(pinned.runs, pinned.holes, since, since, FOREVER))


def _tables(broker: int, part: Remainder) -> dict[str, Any]:
    """Return what a journal adds, as the broker would have written it: rows of tables, with broker and run."""
    found: dict[str, list[Any]] = defaultdict(list)
    with TemporaryDirectory(prefix="postroad-") as folder:
        writer = TrailWriter(folder, broker, part.run.since, is_over=True)
        for job in part.recorder.due(part.through + 1, force=True):
            for entry in writer.write(job.make(), max(job.through, writer.run.through)):
                schema = SCHEMAS[entry.table]
                rows = TrailFile(Path(folder), entry, broker, Reads()).read(schema.names)
                found[entry.table].append(rows.select(schema.names).cast(schema))
            part.recorder.release(job.number)
    return {name: _with_run(pa.concat_tables(rows), broker, part.run.number) for name, rows in found.items()}


def _with_run(rows: Any, broker: int, run: int) -> Any:
    for column, value in (("broker", broker), ("run", run)):
        rows = rows.append_column(column, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
    return rows
