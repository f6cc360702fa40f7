"""`trace`: where millions of messages went, one row for each id or alias that is asked for.

Physical plan: the ids are broadcast while they fit, and each table of the exact record is read once and joined in
place. Beyond that, ids and records are grouped by origin and time. Filters are always grouped with the ids of their
origin and time, and each is probed in one call. All evidence of an id then meets in one place, is judged, and written.
The only sort is of the evidence found, which grows with the ids and not with the trail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.context import read_context
from postroad.pipeline.evidence import (
    ASKED,
    COLUMNS,
    HITS,
    as_evidence,
    filled,
    of_asked,
    together,
)
from postroad.pipeline.ids import id_text, id_texts, read_asked, with_aliases
from postroad.pipeline.in_driver import EXACT, is_small, is_small_file, small_asked, spots_of, unanswered, verdicts_on
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.journals import with_journals
from postroad.pipeline.judgement import VERDICT_SCHEMA, Judge
from postroad.pipeline.progress import UNCOUNTED
from postroad.pipeline.search import BROADCAST_IDS, Bins, filter_hits, of_asked_by_bins
from postroad.pipeline.tables import ID, table, with_runs
from postroad.trail import STANDING_TABLES
from postroad.trail.locations import location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.context import Context
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.progress import Tally
    from postroad.pipeline.sources import SourceFile, Sources
    from postroad.trail.spots import Spots

__all__ = ["OUTSIDE_RANGE", "UNKNOWN_ALIAS", "TraceOptions", "judge", "run", "trace", "trace_ids"]

UNKNOWN_ALIAS = "unknown alias"
# For an id from before `since` or after `until` nothing is looked up, and nothing is claimed.
OUTSIDE_RANGE = "outside the range"

# Spark decodes 4,096 rows at a time. With filters of a megabyte each, that is more than an executor has.
MAX_BATCH_ROWS, MIN_BATCH_ROWS, BATCH_BYTES = 4_096, 16, 16 << 20
# Up to this many verdicts the driver counts itself: a column of some megabytes.
COUNTED_IDS = 5_000_000
_ID_FIELD = pa.field("id", pa.string())
_ANSWER_SCHEMA = VERDICT_SCHEMA.append(_ID_FIELD)
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
    ids = asked
    aliases = sources.of("aliases", always=True)
    if aliases:
        ids = with_aliases(ids, table(spark, sources, "aliases", aliases))
    inside = ids.where("origin is not null")
    unanswered = _without_answer(ids.where("origin is null"), UNKNOWN_ALIAS)
    if sources.is_bounded:
        range_of_times = f"time >= {sources.since} and time < {sources.until}"
        unanswered = unanswered.unionByName(_without_answer(inside.where(f"not ({range_of_times})"), OUTSIDE_RANGE))
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
        broadcast_ids: the most ids to send to every executor.
        each_once: the caller knows that no id occurs twice.
        journals: also read what brokers that died left in their journals.
        tally: counts the ids that are judged.
    """
    evidence, context = _evidence(
        spark, sources, ids, broadcast_ids, each_once=each_once, journals=journals, tally=tally
    )
    return judge(evidence, context, tally)


def _evidence(
    spark: SparkSession,
    sources: Sources,
    ids: DataFrame,
    broadcast_ids: int,
    *,
    each_once: bool,
    journals: bool,
    tally: Tally,
) -> tuple[DataFrame, Context]:
    """All evidence of ids, brought together; and what it is judged by."""
    wanted = ids.select(*ID) if each_once else ids.select(*ID).distinct()
    whole = sources

    def crowded(spots: Spots | None) -> list[SourceFile]:
        some = whole if spots is None else whole.asked(spots)
        return [*some.named("passages"), *some.named("filters")]

    bins, spots = Bins.asked(wanted, crowded)
    if tally is not UNCOUNTED:
        tally.total = bins.count
    if journals:
        whole = sources = with_journals(sources, spots)
    if spots is not None:
        # Files that can hold none of the requested ids are not read, not compared and not held.
        sources = sources.asked(spots)
    if not sources.has_any(RECORDS_OF_MESSAGES):
        whole.need(RECORDS_OF_MESSAGES, NEEDED_FOR)
    context = read_context(sources)
    evidence, columns = as_evidence(ids, ASKED), {*ID, "broker", *filled(ids)}
    files = sources.of("filters")
    for name, (source, renamed) in EXACT.items():
        if sources.of(name) or name in sources.told:
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


def judge(evidence: DataFrame, context: Context, tally: Tally = UNCOUNTED) -> DataFrame:
    """Return the verdicts, with the id as text."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return evidence.mapInArrow(_judging(context, tally), from_arrow_schema(_ANSWER_SCHEMA))


def _judging(context: Context, tally: Tally) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What judges batches of evidence that were brought together."""
    judge_batches = Judge(context)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for verdicts in judge_batches(batches):
            tally.add(verdicts.num_rows)
            yield _with_text(verdicts)

    return run


def _with_text(verdicts: Any) -> Any:
    """Add the id as text; a caller that asks by numbers also gets it as `asked`."""
    text = id_texts(*(verdicts.column(name).to_numpy() for name in ID))
    place = verdicts.schema.get_field_index("asked")
    asked = pc.coalesce(verdicts.column(place), text)
    return verdicts.set_column(place, verdicts.schema.field(place), asked).append_column(_ID_FIELD, text)


def _without_answer(ids: DataFrame, why: str) -> DataFrame:
    """Return a row for each text or id of which nothing is known, and why."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = []
    for field in from_arrow_schema(VERDICT_SCHEMA):
        if field.name in ("asked", *ID):
            columns.append(f.col(field.name))
        elif field.name == "verdict":
            columns.append(f.lit(why).alias("verdict"))
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
    found = _in_driver(run) if run.may_do_without else None
    if found is not None:
        run.write_table(found, "trace")
        run.account.absent = run.sources.absent()
        return _counted(pc.value_counts(found.column("verdict")).to_pylist(), "values", "counts")
    return _by_spark(run)


def _in_driver(run: JobRun[TraceOptions]) -> Any:
    """Return the journeys of a small question without Spark; None if it is not small.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    asked, whole = small_asked(run.options.ids), run.sources
    if asked is None:
        return None
    unknown = asked.filter(pc.is_null(asked.column("origin")))
    if unknown.num_rows and whole.named("aliases", always=True):
        return None
    inside = asked.filter(pc.is_valid(asked.column("origin")))
    times = inside.column("time").to_numpy()
    fits = (times >= whole.since) & (times < whole.until)
    outside, inside = inside.filter(pa.array(~fits)), inside.filter(pa.array(fits))
    spots = spots_of(inside)
    whole = with_journals(whole, spots)
    sources = whole.asked(spots).read_here()
    tables = (*RECORDS_OF_MESSAGES, *STANDING_TABLES)
    if not is_small(one for name in tables for one in sources.named(name)):
        return None
    if not sources.has_any(RECORDS_OF_MESSAGES):
        whole.need(RECORDS_OF_MESSAGES, NEEDED_FOR)
    run.tell("tracing")
    found = verdicts_on(sources, read_context(sources), inside)
    run.sources.damaged += [one for one in sources.damaged if one not in run.sources.damaged]
    return pa.concat_tables(
        [unanswered(unknown, UNKNOWN_ALIAS, found.schema), unanswered(outside, OUTSIDE_RANGE, found.schema), found]
    )


def _by_spark(run: JobRun[TraceOptions]) -> dict[str, Any]:
    from pyspark.sql import functions as f

    # Keep the ids: they are counted, sent to the executors and answered, but read once.
    asked = read_asked(run.spark, run.options.ids).persist()
    run.tell("tracing")
    try:
        with run.counted() as tally, run.written_by_tasks("trace", _ANSWER_SCHEMA) as output:
            question = _divided(run.spark, run.sources, asked)
            evidence, context = _evidence(
                run.spark,
                run.sources,
                question.inside,
                run.options.broadcast_ids,
                each_once=question.each_once,
                journals=True,
                tally=tally,
            )
            output.add(evidence, _judging(context, tally))
            if not question.unanswered.isEmpty():
                output.add(question.unanswered)
    finally:
        asked.unpersist()
    place = location(run.options.out) / "trace"
    run.account.absent = run.sources.absent()
    if 0 < tally.total <= COUNTED_IDS:
        verdicts = run.read_small(place, ["verdict"]).column(0)
        return _counted(pc.value_counts(verdicts).to_pylist(), "values", "counts")
    found = run.read(place, "verdict string")
    counts = found.groupBy("verdict").agg(f.count("*").alias("ids")).collect()
    return _counted([row.asDict() for row in counts], "verdict", "ids")


def _counted(rows: list[dict[str, Any]], verdict: str, ids: str) -> dict[str, Any]:
    counts = sorted(((row[verdict], row[ids]) for row in rows), key=lambda one: (-one[1], one[0]))
    return {"ids": sum(count for _, count in counts), **dict(counts)}
