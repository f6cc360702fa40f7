"""`timings`: what batches cost each broker, fitted to its samples; and latencies, merged as sketches.

Spark computes the sums and merges the counts. The driver then solves for a handful of unknowns per broker and form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.capacity import (
    FORMS,
    GROUPS,
    CapacityError,
    CostFit,
    CostForm,
    NormalEquations,
    compare,
    fit_costs,
    sketch_quantile,
)
from postroad.pipeline.tables import table
from postroad.tracking import LATENCY_BUCKETS, bucket_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, Row

    from postroad.pipeline.job_run import JobOptions, JobRun

__all__ = [
    "EVERYWHERE",
    "PERCENTILES",
    "equations",
    "fits_of",
    "latency_rows",
    "merged_sketches",
    "run",
    "sums_of_batches",
]

PERCENTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)
# The number that stands for all brokers together.
EVERYWHERE = 0

# The terms of all forms, as expressions over the columns of `timings`; `capacity.costs` has them for numpy.
_TERMS = {
    "batch": "1.0D",
    "receive": "CAST(messages AS DOUBLE)",
    "match": "messages * CAST(subscriptions AS DOUBLE)",
    "lookup": "messages * log2(1.0D + subscriptions)",
    "send": "CAST(copies AS DOUBLE)",
    "write": "CAST(destinations AS DOUBLE)",
    "byte": "CAST(bytes AS DOUBLE)",
    "sent_byte": "CAST(bytes AS DOUBLE) * copies / greatest(messages, 1)",
    "rendered_byte": "CAST(bytes AS DOUBLE) * least(CAST(copies AS DOUBLE) / greatest(messages, 1), 1.0D)",
}
_COSTS = pa.schema(
    [
        ("broker", pa.int64()),
        ("form", pa.string()),
        ("supported", pa.bool_()),
        ("batches", pa.int64()),
        ("relative_error", pa.float64()),
        ("predicted_error", pa.float64()),
        ("term", pa.string()),
        ("seconds", pa.float64()),
        ("error", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("problem", pa.string()),
    ]
)
_LATENCY = pa.schema(
    [
        ("broker", pa.int64()),
        ("deliveries", pa.int64()),
        ("percentile", pa.float64()),
        ("milliseconds", pa.float64()),
        ("at_least", pa.float64()),
        ("at_most", pa.float64()),
    ]
)


def sums_of_batches(timings: DataFrame) -> DataFrame:
    """Return the normal equations of each broker and bootstrap group; each batch is divided by its time."""
    from pyspark.sql import functions as f

    seconds = f.col("nanoseconds") / 1e9
    group = f.expr(f"CAST(pmod(floor(at / 1000), {GROUPS}) AS INT)").alias("group")
    scaled = [(f.expr(expression) / seconds).alias(term) for term, expression in _TERMS.items()]
    rows = timings.where("nanoseconds > 0").select("broker", group, *scaled)
    names = list(_TERMS)
    squares = [
        f.sum(f.col(one) * f.col(other)).alias(f"{one}_{other}")
        for place, one in enumerate(names)
        for other in names[place:]
    ]
    products = [f.sum(one).alias(one) for one in names]
    return rows.groupBy("broker", "group").agg(f.count("*").alias("batches"), *squares, *products)


def equations(row: Row, form: CostForm) -> NormalEquations:
    """Return the normal equations of a form, from a row of sums."""
    order = list(_TERMS)

    def squared(one: str, other: str) -> float:
        first, second = sorted((one, other), key=order.index)
        return float(row[f"{first}_{second}"])

    squares = np.array([[squared(one, other) for other in form.terms] for one in form.terms])
    return NormalEquations(int(row["batches"]), squares, np.array([row[term] for term in form.terms]))


def fits_of(sums: Sequence[Row]) -> dict[int, list[CostFit | tuple[CostForm, str]]]:
    """Return the fit of each form, for each broker and for all together, or the reason why there is none."""
    brokers = sorted({row["broker"] for row in sums})
    found: dict[int, list[CostFit | tuple[CostForm, str]]] = {}
    for broker in [*brokers, EVERYWHERE]:
        chosen = [row for row in sums if broker in (EVERYWHERE, row["broker"])]
        found[broker] = [_fit(chosen, form) for form in FORMS]
    return found


def _fit(sums: Sequence[Row], form: CostForm) -> CostFit | tuple[CostForm, str]:
    groups = [NormalEquations.empty(len(form.terms)) for _ in range(GROUPS)]
    for row in sums:
        groups[row["group"]] = groups[row["group"]] + equations(row, form)
    try:
        return fit_costs(groups, form)
    except CapacityError as error:
        return form, str(error)


def merged_sketches(latencies: DataFrame) -> DataFrame:
    """Return the counts of each broker and bucket, added up."""
    from pyspark.sql import functions as f

    return latencies.groupBy("broker", "bucket").agg(f.sum("deliveries").alias("deliveries"))


def latency_rows(merged: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return percentiles with their intervals, for each broker and for all of them."""
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


def _arrow(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Any:
    """Return rows as an Arrow table: they are few, so Spark is not needed."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def run(run: JobRun[JobOptions]) -> dict[str, Any]:
    """Write `service_times` and `latencies`."""
    sources, spark = run.sources, run.spark
    sources.need(["timings", "latencies"], "brokers write when they sample what batches cost")
    run.tell("fitting service times")
    # At most brokers x GROUPS rows.
    sums = sums_of_batches(table(spark, sources, "timings")).collect()
    fits = fits_of(sums)
    run.write_table(_arrow(_cost_rows(fits), _COSTS), "service_times")
    run.tell("merging latencies")
    latencies = latency_rows(merged_sketches(table(spark, sources, "latencies")).collect())
    run.write_table(_arrow(latencies, _LATENCY), "latencies")
    summary: dict[str, Any] = {"brokers": len(fits) - 1, "batches": sum(row["batches"] for row in sums)}
    fitted = [one for one in fits[EVERYWHERE] if isinstance(one, CostFit)]
    if fitted:
        best = compare(fitted)
        summary["form"] = f"{best.form.name}, unseen batches within {100 * best.predicted_error:.3g} %"
        for term, seconds in best.estimates.items():
            summary[f"{term}_ns"] = (
                f"{1e9 * seconds:,.1f} ({1e9 * best.low[term]:,.1f} to {1e9 * best.high[term]:,.1f})"
            )
    for row in latencies:
        if row[0] == EVERYWHERE:
            summary[f"p{row[2]:g}_ms"] = f"{row[3]:g} ({row[4]:g} to {row[5]:g})"
    return summary


def _cost_rows(fits: dict[int, list[CostFit | tuple[CostForm, str]]]) -> list[tuple[Any, ...]]:
    """Return a row for each broker, form and term; one row for a form that could not be fitted."""
    rows: list[tuple[Any, ...]] = []
    for broker, forms in fits.items():
        fitted = [one for one in forms if isinstance(one, CostFit)]
        best = compare(fitted) if fitted else None
        for one in forms:
            if not isinstance(one, CostFit):
                form, problem = one
                rows.append((broker, form.name, False, 0, None, None, None, None, None, None, None, problem))
                continue
            unseen = None if math.isnan(one.predicted_error) else one.predicted_error
            for term in one.form.terms:
                numbers = (one.estimates[term], one.errors[term], one.low[term], one.high[term])
                finite = [number if math.isfinite(number) else None for number in numbers]
                head = (broker, one.form.name, one is best, one.batches, one.relative_error, unseen)
                rows.append((*head, term, *finite, one.unidentified.get(term)))
    return rows
