"""`audit`: is the record as good as promised, and where did messages go missing?

Accuracy: the job probes every filter with keys it never got. It compares the false answers with the rate that the
filter's filling promises, and the number of filters that cover one time with Theorem 1. Reconciliation: it judges every
message of the exact record and counts the verdicts by origin, link and subscription. Filters cannot list their ids, but
each knows how many it got: where only filters are kept, what was relayed to links and what arrived over them is
compared by count. If a list of ids (`ids`) is given, only those are reconciled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.accuracy import ACCURACY_SCHEMA, accuracy_of
from postroad.pipeline.asked_file import is_small_file
from postroad.pipeline.context import read_context
from postroad.pipeline.driver_answers import counts_in, is_small
from postroad.pipeline.evidence import ASKED, JOURNEY, as_evidence
from postroad.pipeline.ids import check_asked, read_asked
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.jobs.compact import bin_width, evidence_by_origin
from postroad.pipeline.jobs.trace import trace
from postroad.pipeline.progress import UNCOUNTED
from postroad.pipeline.reconciler import COUNTS_SCHEMA, Reconciler, counts_of
from postroad.pipeline.tables import ID, table
from postroad.tracking import HERE, HistoryKind, HistorySettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.context import Context
    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.progress import Tally
    from postroad.pipeline.sources import Sources

__all__ = ["AuditOptions", "accuracy", "balance", "reconciliation", "run", "with_intervals"]

_Z_95 = 1.959964


def accuracy(filters: DataFrame) -> DataFrame:
    """Return measured and promised error rates, and the sizes of matching sets, by broker and kind of history."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    settings = HistorySettings()
    groups = filters.drop("keys", "date").groupBy("broker", "kind", "method", f.pmod(f.hash("origin"), f.lit(16)))
    parts = groups.applyInArrow(lambda rows: accuracy_of(rows), from_arrow_schema(ACCURACY_SCHEMA))
    sums = [f.sum(name).alias(name) for name in ACCURACY_SCHEMA.names[3:11]]
    totals = parts.groupBy("broker", "kind", "method").agg(
        *sums,
        f.max("largest_matching_set").alias("largest_matching_set"),
        f.min("shortest_open_ms").alias("shortest_open_ms"),
    )
    spread = f.sqrt(f.col("promised_hits"))
    late = 2.0 * (settings.tolerance + settings.jitter)
    return (
        totals.withColumn("measured_rate", f.col("false_hits") / f.col("probes"))
        .withColumn("promised_rate", f.col("promised_hits") / f.col("probes"))
        # The count is nearly Poisson: more than this occurs by chance once in some ten thousand histories, even if less
        # than one is expected.
        .withColumn("within_promise", f.col("false_hits") <= f.col("promised_hits") + 4 * spread + 4)
        .withColumn("bound_of_theorem_1", f.ceil(f.lit(late) / f.greatest("shortest_open_ms", f.lit(1))) + 1)
    )


def reconciliation(
    spark: SparkSession, sources: Sources, context: Context, tally: Tally = UNCOUNTED
) -> DataFrame | None:
    """Count the verdicts on every message of the exact record; None if there is no such record."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    passages, journeys = sources.of("passages"), sources.of("journeys")
    if not passages and not journeys:
        return None
    width = bin_width(passages or journeys)
    parts = []
    if passages:
        rows = table(spark, sources, "passages", passages)
        entered = rows.where(f.col("arrived_from") == HERE)
        parts.append(as_evidence(entered.select(*ID), ASKED))
    if journeys:
        rows = table(spark, sources, "journeys", journeys)
        parts.append(as_evidence(rows.select(*ID), ASKED))
        parts.append(as_evidence(rows, JOURNEY, {"relayed_to": "path"}))
    reconciler = Reconciler(context)

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        for counts in reconciler(batches):
            is_origin = pc.equal(counts.column("about"), "origin")
            tally.add(pc.sum(pc.if_else(is_origin, counts.column("messages"), 0)).as_py() or 0)
            yield counts

    evidence = evidence_by_origin(spark, sources, passages, width, parts)
    return _summed(evidence.mapInArrow(count, from_arrow_schema(COUNTS_SCHEMA)))


def _summed(counts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    keys = COUNTS_SCHEMA.names[:4]
    return counts.groupBy(*keys).agg(*(f.sum(name).alias(name) for name in COUNTS_SCHEMA.names[4:]))


def of_asked(traced: DataFrame) -> DataFrame:
    """Return the same counts for the requested ids."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            yield from counts_of(pa.Table.from_batches([batch])).to_batches()

    return _summed(traced.where("origin is not null").mapInArrow(count, from_arrow_schema(COUNTS_SCHEMA)))


def with_intervals(counts: DataFrame) -> DataFrame:
    """Add a 95 % interval: how many of the counts may rest on false answers of filters. Exact records have none."""
    from pyspark.sql import functions as f

    margin = f.col("doubtful") + _Z_95 * f.sqrt(f.col("variance"))
    return counts.withColumn("at_least", f.greatest(f.lit(0.0), f.col("messages") - margin)).withColumn(
        "at_most", f.col("messages").cast("double")
    )


def balance(filters: DataFrame) -> DataFrame:
    """Return what filters hold, by count, broker and origin: accepted, arrived, relayed, arrived from, delivered."""
    from pyspark.sql import functions as f

    def entries(kind: int) -> Any:
        return f.sum(f.when(f.col("kind") == kind, f.col("entries")).otherwise(0))

    return filters.groupBy("broker", "origin").agg(
        entries(HistoryKind.ACCEPTED).alias("accepted"),
        entries(HistoryKind.ARRIVED).alias("arrived"),
        entries(HistoryKind.RELAYED).alias("relayed"),
        entries(HistoryKind.ARRIVED_FROM).alias("arrived_from"),
        entries(HistoryKind.DELIVERED).alias("delivered"),
    )


@dataclass(frozen=True, kw_only=True)
class AuditOptions(JobOptions):
    """Options of `audit`.

    Attributes:
        ids: a file of ids to reconcile; if empty, all of the exact record.
    """

    ids: Path | None = None

    @property
    def is_small(self) -> bool:
        """Many ids are much work, whatever the trail."""
        return is_small_file(self.ids)


def run(run: JobRun[AuditOptions]) -> dict[str, Any]:
    """Write `reconciliation`, and also `accuracy` and `balance` if there are filters."""
    sources = run.sources
    check_asked(run.options.ids)
    sources.need(["passages", "journeys", "filters"], "with journeys and filters is what is audited")
    context = read_context(sources)
    run.account.absent = sources.absent()
    summary: dict[str, Any] = {"brokers_absent": len(run.account.absent)} if run.account.absent else {}
    filters = sources.of("filters")
    if filters:
        summary |= _filters(run, table(run.spark, sources, "filters", filters))
    run.tell("reconciling")
    ids = run.options.ids
    tables = [*sources.named("passages"), *sources.named("journeys"), *sources.named("shed", always=True)]
    if not ids and not filters and run.may_do_without and is_small(tables):
        found = _with_intervals(counts_in(sources, context, sources.of("passages"), sources.of("journeys")))
        run.write_table(found, "reconciliation")
        return summary | _account(found)
    with run.counted(sources.messages()) as tally:
        if ids:
            counts: DataFrame | None = of_asked(trace(run.spark, sources, read_asked(run.spark, ids), tally=tally))
        else:
            counts = reconciliation(run.spark, sources, context, tally)
        place = None if counts is None else run.write(with_intervals(counts), "reconciliation")
    return summary if place is None else summary | _account(run.read_small(place, ["about", "outcome", "messages"]))


def _filters(run: JobRun[AuditOptions], filters: DataFrame) -> dict[str, Any]:
    run.tell("asking filters for what they never got")
    found = run.read_small(run.write(accuracy(filters), "accuracy"))
    names = ("filters", "damaged", "overfull", "probes", "false_hits", "promised_hits")
    row = {name: pc.sum(found.column(name)).as_py() or 0 for name in names}
    within = found.column("within_promise").to_pylist()
    entries = run.read_small(run.write(balance(filters), "balance"))
    sums = {name: pc.sum(entries.column(name)).as_py() or 0 for name in ("relayed", "arrived_from")}
    return {
        "filters": int(row["filters"]),
        "damaged_filters": int(row["damaged"]),
        **{name: int(row[name]) for name in ("overfull", "probes", "false_hits")},
        "false_hits_promised": round(row["promised_hits"], 1),
        "histories_out_of_promise": sum(not one for one in within),
        "largest_matching_set": int(pc.max(found.column("largest_matching_set")).as_py() or 0),
        "entries_relayed": int(sums["relayed"]),
        "entries_arrived": int(sums["arrived_from"]),
    }


def _with_intervals(counts: Any) -> Any:
    """Do what `with_intervals` does, for an Arrow table."""
    messages, doubtful, variance = (counts.column(name).to_numpy() for name in ("messages", "doubtful", "variance"))
    least = np.maximum(0.0, messages - (doubtful + _Z_95 * np.sqrt(variance)))
    found = counts.append_column("at_least", pa.array(least))
    return found.append_column("at_most", pa.array(messages.astype(np.float64)))


def _account(found: Any) -> dict[str, Any]:
    rows = found.filter(pc.equal(found.column("about"), "origin")).group_by("outcome").aggregate([("messages", "sum")])
    counts = [(row["outcome"], int(row["messages_sum"])) for row in rows.to_pylist()]
    return _summary(sorted(counts, key=lambda one: (-one[1], one[0])))


def _summary(counts: list[tuple[str, int]]) -> dict[str, Any]:
    return {"messages": sum(count for _, count in counts), **dict(counts)}
