"""`compact`: the brokers' passages into journeys, small files into large ones, small filters into fuller ones.

Nothing is edited in place. The job writes new files beside the old ones, and compares the answers of both on a sample
of ids. Then the manifests add the new files and drop the old ones. Readers that pinned an earlier manifest continue
reading the old files, which are deleted after a grace period. A run that dies before it commits has changed nothing.
One that dies while it commits is finished by the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroad.pipeline.changes import Changes
from postroad.pipeline.commit_note import finish_commits, sole_compaction
from postroad.pipeline.context import read_context
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.evidence import PASSAGE, SHED, as_evidence
from postroad.pipeline.files import FileMaker, check_writable, entry_of, run_name, sweep_unfinished, text_of
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.journeys import LEFT, joined
from postroad.pipeline.plain_evidence import whole_ids
from postroad.pipeline.proof import prove, same_rows
from postroad.pipeline.rewrite import erased_files, found_traces, merged_filters, rewritten
from postroad.pipeline.sources import moment, open_sources
from postroad.pipeline.stored_changes import changed_in_store
from postroad.pipeline.tables import ID, spark_schema, table, with_runs
from postroad.tracking import GOES_ON, HERE
from postroad.trail import (
    DEFAULT_GRACE_MS,
    DEFAULT_SKEW_MS,
    DEFAULT_TOLERANCE_MS,
    SCHEMAS,
    earlier_places,
    expire,
    gaps_within,
    sweep,
)
from postroad.trail.coverage import RESENT_MS, GapReason
from postroad.trail.locations import StoredPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.context import Context
    from postroad.pipeline.erasure import Erased, Erasure
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.progress import Tally
    from postroad.pipeline.sources import SourceFile, Sources

__all__ = ["CompactOptions", "bin_width", "evidence_by_origin", "is_still_here", "run", "run_compaction"]

# Passages of one origin and bin that one task sorts and joins. Ten times as many would take about a gigabyte.
ROWS_PER_BIN = 2_000_000
_WIDTHS = [minutes * 60_000 for minutes in (1, 2, 5, 10, 30, 60, 360, 1_440)]
# Files smaller than this are worth merging.
SMALL_FILE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class CompactOptions(JobOptions):
    """Options of `compact` and `erase`.

    Attributes:
        now: the time in Unix ms; by default from the clock.
        sample: how many ids to trace before and after.
        keep_ms: instead of compacting, remove whole files that are older than this.
        erase: instead of compacting, erase one subscription, or a principal by its name.
    """

    now: int | None = None
    sample: int = 1_000
    keep_ms: int | None = None
    erase: Erasure | str | None = None


def run(run: JobRun[CompactOptions]) -> dict[str, Any]:
    """Compact the trail."""
    _refuse_range(run)
    if isinstance(run.sources.root, StoredPath):
        return changed_in_store(run, _in_directory)
    return _in_directory(run)


def _in_directory(run: JobRun[CompactOptions]) -> dict[str, Any]:
    options, root = run.options, run.sources.directory
    now = options.now or int(time.time() * 1_000)
    check_writable(root)
    with sole_compaction(root) as is_sole:
        if finish_commits(root):
            run.tell("finished what an earlier compaction had begun to commit")
        # Read the trail again: others may have committed before this job took the lock.
        run.sources = open_sources(root, options.since, options.until, skip_damaged=options.skip_damaged)
        sweep_unfinished(run.sources, is_sole=is_sole)
        if options.keep_ms is not None:
            return _expired(run, now, options.keep_ms)
        return _changed(run, now)


def _refuse_range(run: JobRun[CompactOptions]) -> None:
    """Refuse a time range: retention and erasure apply to all times.

    Raises:
        PipelineError: the options name a range.
    """
    given = [name for name in ("keep_ms", "erase") if getattr(run.options, name) is not None]
    if run.sources.is_bounded and given:
        what = {"keep_ms": "--keep-days says itself what goes", "erase": "--erase is of all times"}[given[0]]
        raise PipelineError(f"{what}; leave out --since and --until")


def _changed(run: JobRun[CompactOptions], now: int) -> dict[str, Any]:
    """Write new files, prove that they give the same answers, and commit them."""
    name = run_name()
    before = _size(run.sources)
    changes = Changes()
    who = run.options.erase
    what = None if who is None else found_traces(run, who)
    try:
        summary = run_compaction(run, changes, name) if what is None else erased_files(run, changes, name, what)
        summary |= prove(run, changes, run.options.sample, without=what)
    except BaseException:
        sweep_unfinished(run.sources, changes.paths())
        raise
    if changes:
        run.tell("committing")
        changes.commit(run.sources, now, name)
        run.account.written.append(str(run.sources.root))
    after = _size(changes.applied(run.sources))
    # Files that this run removed stay for readers of earlier manifests. What earlier runs removed, nobody reads.
    summary["files_deleted"] = sum(sweep(run.sources.directory, broker, now) for broker in run.sources.pins)
    if what is not None:
        summary |= _left(run, what, now)
    return summary | {
        "files_before": before[0],
        "files_after": after[0],
        "bytes_before": before[1],
        "bytes_after": after[1],
    }


def _left(run: JobRun[CompactOptions], what: Erased, now: int) -> dict[str, Any]:
    """Report what an erasure leaves behind, and until when."""
    for who in sorted(what.subscriptions):
        if is_still_here(run.sources, who):
            run.alert(
                f"{who.subscription} is still subscribed at broker {who.broker}, and recorded from now on as ever"
            )
    for name in sorted(what.kept):
        run.alert(f"other subscriptions of {name!r} stay, and its name with them; --principal erases all of them")
    journals = sorted(path.parent.name for path in run.sources.directory.glob("journal/broker=*/*.journal"))
    if journals:
        run.alert(
            f"the journals of {', '.join(dict.fromkeys(journals))} may name them until the broker has written the next "
            "part of its record; erase once more after that if they were there recently"
        )
    for place in earlier_places(run.sources.root, run.sources.pins):
        run.alert(
            f"{place} was shipped to before, and nothing is erased there; run the same with --trail {place}, or delete "
            "what is left of the trail there"
        )
    return {
        "subscriptions_erased": len(what.subscriptions),
        "names_erased": len(what.names),
        "old_files_deleted_after": moment(now + DEFAULT_GRACE_MS),
    }


def is_still_here(sources: Sources, who: Erasure) -> bool:
    """Return whether a subscription still exists, as far as the record goes."""
    if sources.pins[who.broker].runs[-1].closed:
        return False
    stays = read_context(sources).subscriptions[who.broker]
    return bool((stays.number[stays.until == GOES_ON] == who.subscription).any())


def _expired(run: JobRun[CompactOptions], now: int, age: int) -> dict[str, Any]:
    """Apply retention: remove files whose rows are all too old, and delete what no reader can need any more."""
    files = size = swept = 0
    for broker in run.sources.pins:
        gone = expire(run.sources.directory, broker, now, max_age_ms=age)
        files, size = files + gone.files, size + gone.bytes
        swept += sweep(run.sources.directory, broker, now)
    if files or swept:
        run.account.written.append(str(run.sources.root))
    return {"files_taken_out": files, "bytes_taken_out": size, "files_deleted": swept}


def run_compaction(run: JobRun[CompactOptions], changes: Changes, name: str) -> dict[str, Any]:
    """Write the new files, and note which files they replace."""
    files = [source for source in run.sources.inside("passages") if not _is_near_an_end(run.sources, source)]
    figures = {"journeys": 0, "passages_joined": 0, "passages_left": 0}
    if files:
        figures = _join(run, changes, files, name)
    run.tell("rewriting small files")
    figures |= rewritten(run, changes, name, SMALL_FILE_BYTES)
    run.tell("merging filters")
    return figures | merged_filters(run, changes, name)


def _is_near_an_end(sources: Sources, source: SourceFile) -> bool:
    """Return whether a run of the broker ends without a close near the times of a file.

    The verdict on messages around such an end depends on which run wrote a row, and only the file's name tells that.
    """
    pinned, margin = sources.pins[source.broker], DEFAULT_SKEW_MS + DEFAULT_TOLERANCE_MS + RESENT_MS
    since, until = source.entry.time_from - margin, source.entry.time_to + margin
    gaps = gaps_within(pinned.runs, (), source.entry.time_from, since, until)
    return any(gap.reason in (GapReason.CRASHED, GapReason.NOT_YET_WRITTEN) for gap in gaps)


def _join(run: JobRun[CompactOptions], changes: Changes, files: list[SourceFile], name: str) -> dict[str, int]:
    spark, sources = run.spark, run.sources
    width = bin_width(files)
    context = read_context(sources)
    run.tell("joining passages into journeys")
    with run.counted(sources.messages()) as tally:
        results = evidence_by_origin(spark, sources, files, width, whole_files=True).mapInArrow(
            _joiner(context, sources.directory, name, width, tally), _result_schema()
        )
        scratch = run.write(results, ".joined")
    try:
        found = run.read(scratch, _result_schema())
        journeys = found.where("entry is not null").select("entry", "passages").collect()
        entries = [entry_of(row["entry"]) for row in journeys]
        run.tell("writing what is left of the passages")
        left = found.where("entry is null").drop("entry", "passages")
        entries += _write_left(left, sources.directory, name, bin_width(files, by_origin=False))
    finally:
        run.discard(scratch)
    for source in files:
        changes.remove(source)
    for entry in entries:
        changes.add(entry)
    kept = sum(entry.rows for entry in entries if entry.table == "passages")
    joined_rows = sum(row["passages"] for row in journeys)
    same_rows("passages", sum(source.entry.rows for source in files), joined_rows + kept)
    if not journeys and len(entries) >= len(files):
        # The result would have as many files with the same passages: keep the old ones.
        sweep_unfinished(sources, changes.paths())
        changes.removed.clear()
        changes.added.clear()
    return {
        "journeys": sum(entry.rows for entry in entries if entry.table == "journeys"),
        "passages_joined": joined_rows,
        "passages_left": kept,
    }


def bin_width(files: list[SourceFile], *, by_origin: bool = True) -> int:
    """Return the widest bin of time in which no origin (or broker) has too many passages, by the manifests."""
    rows: dict[int, int] = {}
    since, until = min(one.entry.time_from for one in files), max(one.entry.time_to for one in files)
    for source in files:
        for group in source.entry.groups:
            whose = group.origin if by_origin else source.broker
            rows[whose] = rows.get(whose, 0) + group.rows
    busiest = max(rows.values()) / max(1, until - since)
    fitting = [width for width in _WIDTHS if busiest * width <= ROWS_PER_BIN]
    return fitting[-1] if fitting else _WIDTHS[0]


def evidence_by_origin(
    spark: SparkSession,
    sources: Sources,
    files: list[SourceFile],
    width: int,
    more: Sequence[DataFrame] = (),
    *,
    whole_files: bool = False,
) -> DataFrame:
    """Return passages and shed rows with all rows of an id together, sorted, in bins of one origin and some time.

    Args:
        spark: the session.
        sources: the trail.
        files: of passages.
        width: of a bin, in ms.
        more: further evidence to add.
        whole_files: all passages of the files, whatever the time range of the job.
    """
    from pyspark.sql import functions as f

    passages = table(spark, sources, "passages", files, whole_files=whole_files)
    evidence = as_evidence(with_runs(passages) if files else passages, PASSAGE)
    for one in more:
        evidence = evidence.unionByName(one)
    shed = sources.of("shed", always=True)
    if shed:
        evidence = evidence.unionByName(as_evidence(table(spark, sources, "shed", shed), SHED))
    wanted = evidence.columns if more else [*ID, "source", *LEFT[:1], *LEFT[5:]]
    spot = f.floor(f.col("time") / width).alias("bin")
    total = sum(source.entry.rows for source in files)
    partitions = max(2, -(-total // ROWS_PER_BIN) * 2)
    binned = evidence.select(*wanted, spot).repartition(partitions, "origin", "bin")
    return binned.sortWithinPartitions(*ID, "source", "broker").drop("bin")


def _result_schema() -> Any:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    # A row is a passage, or an entry with its number of passages; the columns of the other kind are null.
    passages = {field.name: field.dataType for field in spark_schema("passages")}
    own = [StructField("entry", StringType()), StructField("passages", LongType())]
    return StructType([*own, *(StructField(name, passages[name]) for name in LEFT)])


def _left_schema() -> Any:
    """Return the columns of passages that are left."""
    import pyarrow as pa

    fields = [SCHEMAS["passages"].field(name).with_nullable(True) for name in LEFT if name != "broker"]
    return pa.schema([("broker", pa.int64()), *fields])


def _joiner(context: Context, root: Path, name: str, width: int, tally: Tally) -> Any:
    """Return the function that joins and writes journeys; it returns their entries and the passages that are left."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        maker = FileMaker(root, "journeys", f"{name}-j{task.partitionId() if task else 0}")
        held: list[Any] = []
        schema = _left_schema()

        def flushed() -> Iterator[Any]:
            if held:
                rows = pa.concat_tables(held)
                passages = _passages_in(rows)
                for entry in maker.write(rows.column("origin")[0].as_py(), rows):
                    yield _entry_batch(text_of(entry), passages, schema)
                    passages = 0
                held.clear()

        last = None
        for rows in whole_ids(batches):
            journeys, left = joined(context, rows)
            # Of rows that workers read, Spark says that some columns are never null: all batches must say the same.
            left = left.cast(schema)
            tally.add(journeys.num_rows + _entered(left))
            for spot, part in _by_bin(journeys, width):
                if spot != last:
                    yield from flushed()
                last = spot
                held.append(part)
            if left.num_rows:
                left = left.add_column(0, "passages", pa.nulls(left.num_rows, pa.int64()))
                yield from left.add_column(0, "entry", pa.nulls(left.num_rows, pa.string())).to_batches()
        yield from flushed()

    return run


def _entered(passages: Any) -> int:
    """Count the passages that say that a message entered the network."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.equal(passages.column("arrived_from"), HERE)).as_py() or 0)


def _passages_in(journeys: Any) -> int:
    """Count the passages that journeys stand for: one at the origin, and one for each hop, which has 8 bytes."""
    import pyarrow.compute as pc

    return int(journeys.num_rows + (pc.sum(pc.binary_length(journeys.column("path"))).as_py() or 0) // 8)


def _entry_batch(text: str, passages: int, schema: Any) -> Any:
    import pyarrow as pa

    arrays = [pa.array([text]), pa.array([passages], pa.int64()), *(pa.nulls(1, field.type) for field in schema)]
    return pa.RecordBatch.from_arrays(arrays, names=["entry", "passages", *schema.names])


def _by_bin(journeys: Any, width: int) -> Iterator[tuple[tuple[int, int], Any]]:
    """Split rows by origin and bin; they are sorted by origin and time."""
    import numpy as np

    if not journeys.num_rows:
        return
    origin, spot = journeys.column("origin").to_numpy(), journeys.column("time").to_numpy() // width
    cuts = np.flatnonzero((np.diff(origin) != 0) | (np.diff(spot) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), journeys.num_rows], strict=True):
        yield (int(origin[start]), int(spot[start])), journeys.slice(start, end - start)


def _write_left(left: DataFrame, root: Path, name: str, width: int) -> list[Any]:
    """Write the passages that are left, one file for each broker and bin of time."""
    from pyspark.sql import functions as f

    def write(key: tuple[Any, ...], rows: Any) -> Any:
        import pyarrow as pa

        broker, spot = (value.as_py() for value in key)
        maker = FileMaker(root, "passages", f"{name}-p{spot}")
        return pa.table({"entry": pa.array([text_of(entry) for entry in maker.write(broker, rows)], pa.string())})

    spot = f.floor(f.col("time") / width).alias("spot")
    written = left.select("*", spot).groupBy("broker", "spot").applyInArrow(write, "entry string")
    return [entry_of(row["entry"]) for row in written.collect()]


def _size(sources: Sources) -> tuple[int, int]:
    entries = [entry for pinned in sources.all_entries().values() for entry in pinned]
    return len(entries), sum(entry.size for entry in entries)
