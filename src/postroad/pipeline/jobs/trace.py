"""`trace`: where millions of messages went, one row for each id or alias that is asked for.

Physical plan: the ids are divided by the minutes that they carry, and each task gets a portion of them with the files
that may have their records (`portions`). It finds all evidence there, judges it and writes the answers: only ids move.
Ids of so many minutes that the driver cannot count them are joined with the records by Spark instead (`search`). Both
probe each filter in one call for all ids of its origin and minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.asked_file import BROUGHT, SMALL, is_small_file, never_recorded, read_few
from postroad.pipeline.context import read_context
from postroad.pipeline.driver_answers import is_small, unanswered, verdicts_on
from postroad.pipeline.evidence import (
    ASKED,
    COLUMNS,
    HITS,
    as_evidence,
    filled,
    of_asked,
    together,
)
from postroad.pipeline.ids import check_asked, id_text, is_never_recorded, read_asked, with_aliases
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.journals import with_journals
from postroad.pipeline.judgement import ANSWER_SCHEMA, VERDICT_SCHEMA, Judge, judged, with_text
from postroad.pipeline.lookup import EXACT
from postroad.pipeline.portions import asked_spots, counted_spots, divided, evidence_in, in_portions, table_in_portions
from postroad.pipeline.progress import UNCOUNTED
from postroad.pipeline.search import BROADCAST_IDS, Bins, filter_hits, of_asked_by_bins
from postroad.pipeline.tables import ID, table, with_runs
from postroad.trail import STANDING_TABLES
from postroad.trail.locations import location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from postroad.pipeline.arrow_output import ArrowOutput
    from postroad.pipeline.context import Context
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.progress import Tally
    from postroad.pipeline.sources import SourceFile, Sources
    from postroad.trail.locations import Location

__all__ = ["OUTSIDE_RANGE", "TOO_LONG_ALIAS", "UNKNOWN_ALIAS", "TraceOptions", "run", "trace", "trace_ids"]

UNKNOWN_ALIAS = "unknown alias"
# No broker records an alias of this length: messages may have it nevertheless.
TOO_LONG_ALIAS = "alias too long to be recorded"
# For an id from before `since` or after `until` nothing is looked up, and nothing is claimed.
OUTSIDE_RANGE = "outside the range"

# Spark decodes 4,096 rows at a time. With filters of a megabyte each, that is more than an executor has.
MAX_BATCH_ROWS, MIN_BATCH_ROWS, BATCH_BYTES = 4_096, 16, 16 << 20
# Up to this many verdicts the driver counts itself: a column of some megabytes.
COUNTED_IDS = 5_000_000
RECORDS_OF_MESSAGES = (*EXACT, "filters")
NEEDED_FOR = "with journeys, filters and records tells where messages went"


def trace(
    spark: SparkSession,
    sources: Sources,
    asked: DataFrame,
    *,
    broadcast_ids: int = BROADCAST_IDS,
    tally: Tally = UNCOUNTED,
) -> DataFrame:
    """Return the journeys of what is asked for.

    Args:
        spark: the session.
        sources: the trail.
        asked: what is asked for (`ids.read_asked`).
        broadcast_ids: the most ids to send to every executor.
        tally: counts the ids that are judged.

    Raises:
        MissingTableError: the trail has no record of any message.
    """
    question = _divided(spark, sources, asked)
    traced = trace_ids(
        spark, sources, question.inside, broadcast_ids, each_once=question.each_once, journals=True, tally=tally
    )
    return question.unanswered.unionByName(traced)


class _Question(NamedTuple):
    """What is asked for, divided.

    Attributes:
        inside: ids to be traced.
        unanswered: the rows for texts that are unknown, and for ids of other times than the job is about.
        each_once: no id is in `inside` twice.
    """

    inside: DataFrame
    unanswered: DataFrame
    each_once: bool


def _divided(spark: SparkSession, sources: Sources, asked: DataFrame) -> _Question:
    from pyspark.sql import functions as f

    ids = asked
    aliases = sources.of("aliases", always=True)
    if aliases:
        ids = with_aliases(ids, table(spark, sources, "aliases", aliases))
    inside = ids.where("origin is not null")
    why = f.when(is_never_recorded(), TOO_LONG_ALIAS).otherwise(UNKNOWN_ALIAS)
    unanswered = _without_answer(ids.where("origin is null"), why)
    if sources.is_bounded:
        range_of_times = f"time >= {sources.since} and time < {sources.until}"
        outside = inside.where(f"not ({range_of_times})")
        unanswered = unanswered.unionByName(_without_answer(outside, f.lit(OUTSIDE_RANGE)))
        inside = inside.where(range_of_times)
    # Different texts are different ids, but several aliases may belong to one id.
    return _Question(inside, unanswered, not aliases)


def trace_ids(
    spark: SparkSession,
    sources: Sources,
    ids: DataFrame,
    broadcast_ids: int = BROADCAST_IDS,
    *,
    each_once: bool = False,
    journals: bool = False,
    tally: Tally = UNCOUNTED,
) -> DataFrame:
    """Return the journeys of ids, given as their four numbers and the text `asked`.

    Args:
        spark: the session.
        sources: the trail.
        ids: what is asked for.
        broadcast_ids: the most ids to send to every executor, where they are of too many minutes to be divided.
        each_once: the caller knows that no id occurs twice.
        journals: also read what brokers that died left in their journals.
        tally: counts the ids that are judged.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    rows, work = _traced(spark, sources, ids, broadcast_ids, each_once=each_once, journals=journals, tally=tally)
    return rows.mapInArrow(work, from_arrow_schema(ANSWER_SCHEMA))


def _traced(
    spark: SparkSession,
    sources: Sources,
    ids: Any,
    broadcast_ids: int,
    *,
    each_once: bool,
    journals: bool,
    tally: Tally,
) -> tuple[DataFrame, Callable[[Iterable[Any]], Iterator[Any]]]:
    """Return rows, and the function over their batches that gives the verdicts.

    The ids are a table of Spark, or one of Arrow in which none is twice.
    """
    brought = isinstance(ids, pa.Table)
    asked = counted_spots(ids) if brought else asked_spots(ids)
    if asked is None and brought:
        ids = spark.createDataFrame(ids)
    whole = sources
    if tally is not UNCOUNTED:
        tally.total = asked.total if asked is not None else ids.count()
    spots = None if asked is None else asked.spots
    if journals:
        whole = sources = with_journals(sources, spots)
    if spots is not None:
        # Files that can hold none of the requested ids are not read, not compared and not held.
        sources = sources.asked(spots).read_here()
    if not sources.has_any(RECORDS_OF_MESSAGES):
        whole.need(RECORDS_OF_MESSAGES, NEEDED_FOR)
    if asked is None:
        evidence, context = _joined_evidence(spark, sources, ids, broadcast_ids, each_once=each_once)
        return evidence, _judging(context, tally)
    files = [one for name in RECORDS_OF_MESSAGES for one in sources.of(name)]
    division = divided(asked, files)
    rows = (table_in_portions if brought else in_portions)(spark, ids, asked, division, sources.journalled)
    return rows, _answering(sources.root, read_context(sources), tally)


def _answering(root: Location, context: Context, tally: Tally) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What finds and judges all evidence of a portion of the ids."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        evidence = evidence_in(root, context, batches)
        if evidence is not None:
            verdicts = judged(context, evidence)
            tally.add(verdicts.num_rows)
            yield from with_text(verdicts).to_batches()

    return run


def _joined_evidence(
    spark: SparkSession, sources: Sources, ids: DataFrame, broadcast_ids: int, *, each_once: bool
) -> tuple[DataFrame, Context]:
    """All evidence of ids of very many minutes, brought together by Spark; and what it is judged by."""
    wanted = ids.select(*ID) if each_once else ids.select(*ID).distinct()
    files = sources.of("filters")
    bins = Bins.of(wanted, [*sources.named("passages"), *files])
    context = read_context(sources)
    evidence, columns = as_evidence(ids, ASKED), {*ID, "broker", *filled(ids)}
    for name, (source, renamed) in EXACT.items():
        if sources.of(name) or name in sources.journalled:
            rows = table(spark, sources, name)
            rows = with_runs(rows) if name == "passages" else rows
            found = of_asked(rows, wanted) if bins.count <= broadcast_ids else of_asked_by_bins(rows, wanted, bins)
            evidence = evidence.unionByName(as_evidence(found, source, renamed))
            columns |= filled(found, renamed)
    if files:
        _read_in_portions(spark, files)
        found = filter_hits(table(spark, sources, "filters", files), wanted, bins, context)
        evidence = evidence.unionByName(as_evidence(found, HITS))
        columns |= filled(found)
    # A column that nothing fills costs as much on its way through Spark as any other, so leave it out.
    brought = together(evidence.select(*(name for name in COLUMNS if name in columns)), bins.partitions)
    return brought, context


def _read_in_portions(spark: SparkSession, files: list[SourceFile]) -> None:
    """Let Spark decode only as many rows of wide filters at a time as fit in memory."""
    widest = max(source.entry.size / max(1, source.entry.rows) for source in files)
    rows = int(min(MAX_BATCH_ROWS, max(MIN_BATCH_ROWS, BATCH_BYTES / widest)))
    spark.conf.set("spark.sql.parquet.columnarReaderBatchSize", str(rows))


def _judging(context: Context, tally: Tally) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What judges batches of evidence that were brought together."""
    judge_batches = Judge(context)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for verdicts in judge_batches(batches):
            tally.add(verdicts.num_rows)
            yield with_text(verdicts)

    return run


def _without_answer(ids: DataFrame, why: Column) -> DataFrame:
    """Return a row for each text or id of which nothing is known, and why."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = []
    for field in from_arrow_schema(VERDICT_SCHEMA):
        if field.name in ("asked", *ID):
            columns.append(f.col(field.name))
        elif field.name == "verdict":
            columns.append(why.alias("verdict"))
        elif field.name == "certainty":
            # The row claims nothing, so nothing is certain.
            columns.append(f.lit(0.0).alias("certainty"))
        else:
            columns.append(f.lit(None).cast(field.dataType).alias(field.name))
    text = f.when(f.col("origin").isNotNull(), id_text()).alias("id")
    return ids.select(*columns, text).withColumn("asked", f.coalesce("asked", "id"))


@dataclass(frozen=True, kw_only=True)
class TraceOptions(JobOptions):
    """Options of `trace`.

    Attributes:
        ids: the file of ids or aliases.
        broadcast_ids: the most ids to send to all executors.
    """

    ids: Path
    broadcast_ids: int = BROADCAST_IDS

    @property
    def is_small(self) -> bool:
        """Many ids are much work, whatever the trail."""
        return is_small_file(self.ids)


def run(run: JobRun[TraceOptions]) -> dict[str, Any]:
    """Trace the ids; write `trace`."""
    run.tell("reading the ids")
    check_asked(run.options.ids)
    found = _by_driver(run) if run.may_do_without else None
    if found is not None:
        run.write_table(found, "trace")
        run.account.absent = run.sources.absent()
        return _counted(pc.value_counts(found.column("verdict")).to_pylist(), "values", "counts")
    return _by_spark(run)


class _Brought(NamedTuple):
    """What is asked for, read and divided by the driver."""

    inside: Any
    unanswered: Any


def _brought(run: JobRun[TraceOptions], limits: tuple[int, int]) -> _Brought | None:
    """Return what the driver can read itself of a question; None if it is large, or has aliases to look up."""
    asked, whole = read_few(Path(run.options.ids), limits), run.sources
    if asked is None:
        return None
    unknown = asked.filter(pc.is_null(asked.column("origin")))
    if unknown.num_rows and whole.named("aliases", always=True):
        return None
    inside = asked.filter(pc.is_valid(asked.column("origin")))
    times = inside.column("time").to_numpy()
    fits = (times >= whole.since) & (times < whole.until)
    outside, inside = inside.filter(pa.array(~fits)), inside.filter(pa.array(fits))
    why = pc.if_else(never_recorded(unknown), TOO_LONG_ALIAS, UNKNOWN_ALIAS)
    outside_range = pa.repeat(pa.scalar(OUTSIDE_RANGE), outside.num_rows)
    return _Brought(inside, pa.concat_tables([unanswered(unknown, why), unanswered(outside, outside_range)]))


def _by_driver(run: JobRun[TraceOptions]) -> Any:
    """Return the journeys of a small question without Spark; None if it is not small.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    brought = _brought(run, SMALL)
    if brought is None:
        return None
    asked = counted_spots(brought.inside)
    assert asked is not None, "so few ids have few minutes"
    whole = with_journals(run.sources, asked.spots)
    sources = whole.asked(asked.spots).read_here()
    tables = (*RECORDS_OF_MESSAGES, *STANDING_TABLES)
    if not is_small(one for name in tables for one in sources.named(name)):
        return None
    if not sources.has_any(RECORDS_OF_MESSAGES):
        whole.need(RECORDS_OF_MESSAGES, NEEDED_FOR)
    run.tell("tracing")
    found = verdicts_on(sources, read_context(sources), brought.inside)
    run.sources.damaged += [one for one in sources.damaged if one not in run.sources.damaged]
    return pa.concat_tables([brought.unanswered, found])


def _by_spark(run: JobRun[TraceOptions]) -> dict[str, Any]:
    from pyspark.sql import functions as f

    brought = _brought(run, BROUGHT)
    run.tell("tracing")
    with run.counted() as tally, run.written_by_tasks("trace", ANSWER_SCHEMA) as output:
        if brought is None:
            _trace_file(run, output, tally)
        else:
            output.add(*_of_run(run, brought.inside, tally, each_once=True))
            output.add_table(brought.unanswered)
    place = location(run.options.out) / "trace"
    run.account.absent = run.sources.absent()
    if 0 < tally.total <= COUNTED_IDS:
        verdicts = run.read_small(place, ["verdict"]).column(0)
        return _counted(pc.value_counts(verdicts).to_pylist(), "values", "counts")
    found = run.read(place, "verdict string")
    counts = found.groupBy("verdict").agg(f.count("*").alias("ids")).collect()
    return _counted([row.asDict() for row in counts], "verdict", "ids")


def _trace_file(run: JobRun[TraceOptions], output: ArrowOutput, tally: Tally) -> None:
    """Trace ids that Spark reads: more than the driver should hold, or with aliases."""
    # Keep the ids: they are counted, sent to the executors and answered, but read once.
    asked = read_asked(run.spark, run.options.ids).persist()
    try:
        question = _divided(run.spark, run.sources, asked)
        output.add(*_of_run(run, question.inside, tally, each_once=question.each_once))
        if not question.unanswered.isEmpty():
            output.add(question.unanswered)
    finally:
        asked.unpersist()


def _of_run(
    run: JobRun[TraceOptions], ids: Any, tally: Tally, *, each_once: bool
) -> tuple[DataFrame, Callable[[Iterable[Any]], Iterator[Any]]]:
    most = run.options.broadcast_ids
    return _traced(run.spark, run.sources, ids, most, each_once=each_once, journals=True, tally=tally)


def _counted(rows: list[dict[str, Any]], verdict: str, ids: str) -> dict[str, Any]:
    counts = sorted(((row[verdict], row[ids]) for row in rows), key=lambda one: (-one[1], one[0]))
    return {"ids": sum(count for _, count in counts), **dict(counts)}
