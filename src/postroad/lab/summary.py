"""Spark jobs over the raw events of a run: each a list of named transformations, with one action at the end.

| table | one row is |
| --- | --- |
| `throughput` | a cell and a slice of time: messages accepted, deliveries wanted and made |
| `completeness` | a cell: deliveries wanted, made, missing, made twice and out of order |
| `link_use` | a cell and one direction of a link: messages, bytes, share of the time in use |
| `link_time` | a cell and a slice of time: bytes of all links, of the busiest one, and the share of its time in use |
| `losses` | a cell and a slice of time: deliveries of what was accepted then that are missing |
| `latency` | a cell: quantiles of the time from publication to delivery |
| `replication` | a cell and a number of copies: messages with that many clients, and with that many brokers |
| `processors` | a cell and a broker: share of the time at work, and the longest queue |
| `figures` | a cell and a figure that the experiment measured itself |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.lab.errors import LabError
from postroad.lab.raw_events import RAW_SCHEMAS
from postroad.pipeline.output import replace_output

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.lab.run_folder import RunFolder

__all__ = ["SUMMARIES", "summarise"]

# Slices of throughput over time, in microseconds.
SLICE_US = 250_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_ID = ["cell", "origin", "time", "publisher", "counter"]


class RawTables:
    """The raw tables of a run as DataFrames, with the cell of each row."""

    def __init__(self, spark: SparkSession, raw: Path) -> None:
        self._spark = spark
        self._raw = raw

    def __getitem__(self, name: str) -> DataFrame:
        paths = [str(path) for path in sorted(self._raw.glob(f"cell=*/{name}.parquet"))]
        if not paths:
            raise LabError(f"{self._raw}: no cell was played to its end, so there is nothing to summarise")
        return self._spark.read.schema(_spark_schema(name)).option("basePath", str(self._raw)).parquet(*paths)


def summarise(spark: SparkSession, run: RunFolder, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Write all summaries of a run; return their names.

    Raises:
        LabError: no cell of the run was played to its end.
    """
    raw = RawTables(spark, run.raw.resolve())
    for name, make in SUMMARIES.items():
        tell(f"summary {name}")
        replace_output(make(raw).coalesce(1), run.summary, name)
    run.put_summarised()
    return list(SUMMARIES)


def throughput(raw: RawTables) -> DataFrame:
    """Return messages and deliveries by slices of time."""
    from pyspark.sql import functions as f

    at = (f.floor(f.col("at") / SLICE_US) * SLICE_US).cast("long").alias("at")
    accepted = raw["accepted"].groupBy("cell", at).agg(f.count("*").alias("accepted"), f.sum("wanted").alias("wanted"))
    delivered = raw["delivered"].groupBy("cell", at).agg(f.count("*").alias("delivered"))
    joined = accepted.join(delivered, on=["cell", "at"], how="full")
    return joined.na.fill(0, ["accepted", "wanted", "delivered"]).orderBy("cell", "at")


def completeness(raw: RawTables) -> DataFrame:
    """Return what was wanted and what was delivered.

    A copy beyond the first of a subscriber was made twice. A copy is out of order if the subscriber got a later message
    of the same publisher before it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    wanted = (
        raw["accepted"]
        .groupBy("cell")
        .agg(
            f.count("*").alias("accepted"),
            f.sum("wanted").alias("wanted"),
            (f.max("at") / 1e6).alias("seconds"),
        )
    )
    copies = raw["delivered"].groupBy(*_ID, "subscriber").agg(f.count("*").alias("copies"))
    delivered = copies.groupBy("cell").agg(
        f.count("*").alias("delivered"), (f.sum("copies") - f.count("*")).alias("doubled")
    )
    earlier = Window.partitionBy("cell", "subscriber", "origin", "publisher").orderBy("place")
    number = f.col("time") * 65_536 + f.col("counter")
    before = f.max(number).over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    late = raw["delivered"].select("cell", (number < before).cast("long").alias("late"))
    disordered = late.groupBy("cell").agg(f.sum("late").alias("disordered"))
    joined = wanted.join(delivered, on="cell", how="left").join(disordered, on="cell", how="left")
    joined = joined.na.fill(0, ["delivered", "doubled", "disordered"])
    missing = f.col("wanted") - f.col("delivered")
    return joined.select(
        "*",
        missing.alias("missing"),
        (missing / f.greatest("wanted", f.lit(1))).alias("undelivered_rate"),
    ).orderBy("cell")


def link_use(raw: RawTables) -> DataFrame:
    """Return what each direction of a link carried, and how busy it was at its busiest sample."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    links = raw["links"]
    ends = Window.partitionBy("cell", "source", "target").orderBy("at").rowsBetween(-1, -1)
    since = f.col("at") - f.coalesce(f.max("at").over(ends), f.lit(0))
    sampled = links.select("*", (f.col("busy_us") / f.greatest(since, f.lit(1))).alias("use"))
    sums = [
        f.sum(name).alias(name) for name in ("messages", "data_bytes", "control_bytes", "control_frames", "busy_us")
    ]
    return (
        sampled.groupBy("cell", "source", "target")
        .agg(*sums, f.max("use").alias("busiest_use"), f.max("held_bytes").alias("most_held_bytes"))
        .orderBy("cell", "source", "target")
    )


def link_time(raw: RawTables) -> DataFrame:
    """Return what links carried over time."""
    from pyspark.sql import functions as f

    at = (f.floor((f.col("at") - 1) / SLICE_US) * SLICE_US).cast("long").alias("at")
    moved = f.col("data_bytes") + f.col("control_bytes")
    by_link = (
        raw["links"]
        .groupBy("cell", at, "source", "target")
        .agg(
            f.sum(moved).alias("bytes"),
            f.sum("control_bytes").alias("control_bytes"),
            f.sum("busy_us").alias("busy_us"),
        )
    )
    return (
        by_link.groupBy("cell", "at")
        .agg(
            f.sum("bytes").alias("bytes"),
            f.sum("control_bytes").alias("control_bytes"),
            f.max("bytes").alias("busiest_bytes"),
            (f.max("busy_us") / SLICE_US).alias("busiest_use"),
        )
        .orderBy("cell", "at")
    )


def losses(raw: RawTables) -> DataFrame:
    """Return deliveries that never happened, by when their message was accepted."""
    from pyspark.sql import functions as f

    copies = raw["delivered"].groupBy(*_ID).agg(f.count_distinct("subscriber").alias("got"))
    joined = raw["accepted"].join(copies, on=_ID, how="left").na.fill(0, ["got"])
    at = (f.floor(f.col("at") / SLICE_US) * SLICE_US).cast("long").alias("at")
    missing = f.greatest(f.col("wanted") - f.col("got"), f.lit(0))
    found = joined.groupBy("cell", at).agg(
        f.sum(missing).alias("missing"), f.max(f.when(missing > 0, f.col("at"))).alias("last_missing_at")
    )
    return found.where("missing > 0").orderBy("cell", "at")


def latency(raw: RawTables) -> DataFrame:
    """Return the times from publication to delivery, in milliseconds; exact quantiles."""
    from pyspark.sql import functions as f

    began = raw["accepted"].select(*_ID, f.col("at").alias("accepted_at"))
    waited = raw["delivered"].join(began, on=_ID, how="inner")
    ms = (f.col("at") - f.col("accepted_at")) / 1e3
    return (
        waited.select("cell", ms.alias("ms"))
        .groupBy("cell")
        .agg(
            f.count("*").alias("deliveries"),
            f.mean("ms").alias("mean_ms"),
            *(f.percentile("ms", f.lit(share)).alias(f"{name}_ms") for name, share in QUANTILES.items()),
            f.max("ms").alias("max_ms"),
        )
        .orderBy("cell")
    )


def replication(raw: RawTables) -> DataFrame:
    """Return how many messages were wanted by how many clients, and at how many brokers."""
    from pyspark.sql import functions as f

    accepted = raw["accepted"]
    clients = accepted.groupBy("cell", f.col("wanted").alias("copies")).agg(f.count("*").alias("by_clients"))
    brokers = accepted.groupBy("cell", f.col("wanted_brokers").alias("copies")).agg(f.count("*").alias("by_brokers"))
    joined = clients.join(brokers, on=["cell", "copies"], how="full")
    return joined.na.fill(0, ["by_clients", "by_brokers"]).orderBy("cell", "copies")


def processors(raw: RawTables) -> DataFrame:
    """Return how busy brokers were."""
    from pyspark.sql import functions as f

    return (
        raw["brokers"]
        .groupBy("cell", "broker")
        .agg(
            f.sum("busy_us").alias("busy_us"),
            (f.sum("busy_us") / f.greatest(f.max("at"), f.lit(1))).alias("use"),
            f.max("waiting").alias("most_waiting"),
        )
        .orderBy("cell", "broker")
    )


def figures(raw: RawTables) -> DataFrame:
    """Return what experiments measured themselves."""
    return raw["measures"].select("cell", "name", "value", "unit").orderBy("cell", "name")


SUMMARIES: dict[str, Callable[[RawTables], DataFrame]] = {
    one.__name__: one
    for one in (throughput, completeness, link_use, link_time, losses, latency, replication, processors, figures)
}


def _spark_schema(name: str) -> StructType:
    import pyarrow as pa
    from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

    kinds = {pa.int64(): LongType(), pa.int32(): IntegerType(), pa.string(): StringType(), pa.float64(): DoubleType()}
    fields = [StructField(field.name, kinds[field.type]) for field in RAW_SCHEMAS[name]]
    return StructType([*fields, StructField("cell", StringType())])
