"""`trace`: where millions of messages went, one row for each id or alias that is asked for.

Physical plan: the ids are broadcast while they fit, and each table of the exact record is read once and joined in
place; past that, ids and records are brought together by origin and time. Filters are always brought together with the
ids of their origin and time, and probed there, each in one call. All evidence of an id then meets in one place, is
judged, and written. The only sort is of the evidence found, which grows with the ids and not with the trail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.context import read_context
from postroad.pipeline.evidence import (
    ASKED,
    COLUMNS,
    HITS,
    JOURNEY,
    PASSAGE,
    RECORD,
    SHED,
    as_evidence,
    filled,
    of_asked,
    together,
)
from postroad.pipeline.ids import id_text, id_texts, read_asked, with_aliases
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.judgement import VERDICT_SCHEMA, Judge
from postroad.pipeline.search import BROADCAST_IDS, Bins, filter_hits, of_asked_by_bins
from postroad.pipeline.tables import ID, table, with_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.context import Context
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.sources import SourceFile, Sources

__all__ = ["OUTSIDE_RANGE", "UNKNOWN_ALIAS", "TraceOptions", "judge", "run", "trace", "trace_ids"]

UNKNOWN_ALIAS = "unknown alias"
# Of an id from before `since` or after `until` nothing was looked up, and nothing is said.
OUTSIDE_RANGE = "outside the range"

# Tables of the exact record: what their rows are as evidence, and columns with other names there.
_EXACT: dict[str, tuple[int, dict[str, str]]] = {
    "journeys": (JOURNEY, {"relayed_to": "path"}),
    "passages": (PASSAGE, {}),
    "shed": (SHED, {}),
    "records": (RECORD, {"link": "kind", "subscription": "subject"}),
}
# Spark decodes 4,096 rows at a time, which of filters of a megabyte is more than an executor has.
MAX_BATCH_ROWS, MIN_BATCH_ROWS, BATCH_BYTES = 4_096, 16, 16 << 20
_ID_FIELD = pa.field("id", pa.string())
_RECORDS_OF_MESSAGES = (*_EXACT, "filters")


def trace(spark: SparkSession, sources: Sources, asked: DataFrame, *, broadcast_ids: int = BROADCAST_IDS) -> DataFrame:
    """The journeys of what is asked for.

    Args:
        spark: the session.
        sources: the trail.
        asked: what is asked for (`ids.read_asked`).
        broadcast_ids: how many ids to send to every executor at most.

    Raises:
        MissingTableError: the trail has no record of any message.
    """
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
    # Texts that differ are ids that differ; several aliases may be of one id.
    return unanswered.unionByName(trace_ids(spark, sources, inside, broadcast_ids, each_once=not aliases))


def trace_ids(
    spark: SparkSession,
    sources: Sources,
    ids: DataFrame,
    broadcast_ids: int = BROADCAST_IDS,
    *,
    each_once: bool = False,
) -> DataFrame:
    """The journeys of ids, given as their four numbers and the text `asked` they were asked for by.

    Args:
        spark: the session.
        sources: the trail.
        ids: what is asked for.
        broadcast_ids: how many to send to every executor at most.
        each_once: no id is there twice, as the caller knows.
    """
    sources.need(_RECORDS_OF_MESSAGES, "with journeys, filters and records tells where messages went")
    context = read_context(sources)
    evidence, columns = as_evidence(ids, ASKED), {*ID, "broker", *filled(ids)}
    wanted = ids.select(*ID) if each_once else ids.select(*ID).distinct()
    files = sources.of("filters")
    # Ids that are broadcast meet the exact record one by one; only filters meet them in bins then.
    uncrowded = 0 if files else broadcast_ids
    bins = Bins.of(wanted, [*sources.of("passages"), *files], uncrowded=uncrowded)
    for name, (source, renamed) in _EXACT.items():
        if sources.of(name):
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
    # A column that nothing fills costs as much on its way through Spark as any other.
    return judge(together(evidence.select(*(name for name in COLUMNS if name in columns)), bins.partitions), context)


def _read_in_portions(spark: SparkSession, files: list[SourceFile]) -> None:
    """Have Spark decode so many rows of wide filters at a time that they fit."""
    widest = max(source.entry.size / max(1, source.entry.rows) for source in files)
    rows = int(min(MAX_BATCH_ROWS, max(MIN_BATCH_ROWS, BATCH_BYTES / widest)))
    spark.conf.set("spark.sql.parquet.columnarReaderBatchSize", str(rows))


def judge(evidence: DataFrame, context: Context) -> DataFrame:
    """The verdicts, with the id as text."""
    from pyspark.sql.pandas.types import from_arrow_schema

    judge_batches = Judge(context)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        return map(_with_text, judge_batches(batches))

    return evidence.mapInArrow(run, from_arrow_schema(VERDICT_SCHEMA.append(_ID_FIELD)))


def _with_text(verdicts: Any) -> Any:
    """Verdicts with the id as text; who asks by numbers gets that back as what was asked."""
    text = id_texts(*(verdicts.column(name).to_numpy() for name in ID))
    place = verdicts.schema.get_field_index("asked")
    asked = pc.coalesce(verdicts.column(place), text)
    return verdicts.set_column(place, verdicts.schema.field(place), asked).append_column(_ID_FIELD, text)


def _without_answer(ids: DataFrame, why: str) -> DataFrame:
    """A row for each text or id of which nothing is known, and why."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = []
    for field in from_arrow_schema(VERDICT_SCHEMA):
        if field.name in ("asked", *ID):
            columns.append(f.col(field.name))
        elif field.name == "verdict":
            columns.append(f.lit(why).alias("verdict"))
        elif field.name == "certainty":
            # Nothing is claimed of it, so nothing is certain.
            columns.append(f.lit(0.0).alias("certainty"))
        else:
            columns.append(f.lit(None).cast(field.dataType).alias(field.name))
    text = f.when(f.col("origin").isNotNull(), id_text()).alias("id")
    return ids.select(*columns, text).withColumn("asked", f.coalesce("asked", "id"))


@dataclass(frozen=True, kw_only=True)
class TraceOptions(JobOptions):
    """What `trace` is told.

    Attributes:
        ids: the file of ids or aliases.
        broadcast_ids: up to so many ids are sent to all executors.
    """

    ids: Path
    broadcast_ids: int = BROADCAST_IDS


def run(run: JobRun[TraceOptions]) -> dict[str, Any]:
    """Trace the ids; write `trace`."""
    from pyspark.sql import functions as f

    run.tell("reading the ids")
    # Counted, sent to the executors and answered: read once.
    asked = read_asked(run.spark, run.options.ids).persist()
    run.tell("tracing")
    try:
        place = run.write(trace(run.spark, run.sources, asked, broadcast_ids=run.options.broadcast_ids), "trace")
    finally:
        asked.unpersist()
    run.account.absent = run.sources.absent()
    found = run.spark.read.schema("verdict string").parquet(f"file://{place.resolve()}")
    counts = [(row["verdict"], row["ids"]) for row in found.groupBy("verdict").agg(f.count("*").alias("ids")).collect()]
    return {"ids": sum(ids for _, ids in counts), **dict(sorted(counts, key=lambda one: (-one[1], one[0])))}
