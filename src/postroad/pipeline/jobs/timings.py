"""`timings`: the service time of each broker, fitted to its sampled batches; and latencies, merged as sketches.

Spark makes the sums and the merged counts; what is left to solve is three unknowns for each broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.capacity import CapacityError, NormalEquations, fit, sketch_quantile
from postroad.pipeline.tables import table
from postroad.tracking import LATENCY_BUCKETS, bucket_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row

    from postroad.pipeline.running import Run

__all__ = ["EVERYWHERE", "PERCENTILES", "equations", "latency_rows", "merged_sketches", "run", "sums_of_batches"]

PERCENTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)
# As the number of a broker: all of them together.
EVERYWHERE = 0

_SERVICE = (
    "broker bigint, batches bigint, receive_seconds double, receive_error double, match_seconds double, "
    "match_error double, send_seconds double, send_error double, relative_error double, problem string"
)
_LATENCY = "broker bigint, deliveries bigint, percentile double, milliseconds double, at_least double, at_most double"


def sums_of_batches(timings: DataFrame) -> DataFrame:
    """The normal equations of each broker: sums of products, each batch divided by its own seconds."""
    from pyspark.sql import functions as f

    seconds = f.col("nanoseconds") / 1e9
    regressors = {
        "receive": f.col("messages") / seconds,
        "match": f.col("messages") * f.col("subscriptions").cast("double") / seconds,
        "send": f.col("copies") / seconds,
    }
    rows = timings.where("nanoseconds > 0").select("broker", *(one.alias(name) for name, one in regressors.items()))
    names = list(regressors)
    squares = [
        f.sum(f.col(one) * f.col(other)).alias(f"{one}_{other}")
        for place, one in enumerate(names)
        for other in names[place:]
    ]
    products = [f.sum(one).alias(one) for one in names]
    return rows.groupBy("broker").agg(f.count("*").alias("batches"), *squares, *products)


def equations(row: Row) -> NormalEquations:
    """The normal equations in a row of sums."""
    names = ("receive", "match", "send")
    squares = np.empty((3, 3))
    for place, one in enumerate(names):
        for other in range(place, 3):
            squares[place, other] = squares[other, place] = row[f"{one}_{names[other]}"]
    return NormalEquations(int(row["batches"]), squares, np.array([row[one] for one in names]))


def merged_sketches(latencies: DataFrame) -> DataFrame:
    """The counts of each broker and bucket, added up."""
    from pyspark.sql import functions as f

    return latencies.groupBy("broker", "bucket").agg(f.sum("deliveries").alias("deliveries"))


def latency_rows(merged: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Percentiles with their intervals, for each broker and for all of them."""
    counts: dict[int, Any] = {EVERYWHERE: np.zeros(LATENCY_BUCKETS, np.int64)}
    for row in merged:
        here = counts.setdefault(row["broker"], np.zeros(LATENCY_BUCKETS, np.int64))
        here[row["bucket"]] += row["deliveries"]
        counts[EVERYWHERE][row["bucket"]] += row["deliveries"]
    found = []
    for broker, sketch in sorted(counts.items()):
        for p in PERCENTILES:
            quantile = sketch_quantile(sketch, bucket_limits(), p)
            if quantile.total:
                found.append((broker, quantile.total, 100 * p, quantile.value, quantile.low, quantile.high))
    return found


def run(run: Run) -> dict[str, Any]:
    """Write `service_times` and `latencies`."""
    sources, spark = run.sources, run.spark
    sources.need(["timings", "latencies"], "brokers write when they sample what batches cost")
    run.tell("fitting service times")
    sums = sums_of_batches(table(spark, sources, "timings")).collect()
    service = _service_rows(sums)
    run.write(spark.createDataFrame(service, _SERVICE), "service_times")
    run.tell("merging latencies")
    latencies = latency_rows(merged_sketches(table(spark, sources, "latencies")).collect())
    run.write(spark.createDataFrame(latencies, _LATENCY), "latencies")
    summary: dict[str, Any] = {"brokers": len(service) - 1, "batches": sum(row["batches"] for row in sums)}
    everywhere = service[-1]
    for name, place in (("receive", 2), ("match", 4), ("send", 6)):
        if everywhere[place] is not None:
            summary[f"{name}_ns"] = f"{1e9 * everywhere[place]:,.1f} ± {1e9 * everywhere[place + 1]:,.1f}"
    for row in latencies:
        if row[0] == EVERYWHERE:
            summary[f"p{row[2]:g}_ms"] = f"{row[3]:g} ({row[4]:g} to {row[5]:g})"
    return summary


def _service_rows(sums: Iterable[Row]) -> list[tuple[Any, ...]]:
    """A fit for each broker, and one for all, last."""
    by_broker = {row["broker"]: equations(row) for row in sums}
    every = NormalEquations(0, np.zeros((3, 3)), np.zeros(3))
    for one in by_broker.values():
        every = every + one
    return [_service_row(broker, one) for broker, one in [*sorted(by_broker.items()), (EVERYWHERE, every)]]


def _service_row(broker: int, sums: NormalEquations) -> tuple[Any, ...]:
    try:
        found = fit(sums)
    except CapacityError as error:
        return (broker, sums.batches, None, None, None, None, None, None, None, str(error))
    pairs = [number for pair in zip(found.estimates, found.errors, strict=True) for number in pair]
    return (broker, found.batches, *pairs, found.relative_error, None)
