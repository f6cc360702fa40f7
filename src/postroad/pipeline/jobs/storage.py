"""`storage`: bytes that the record takes per message and per elementary record, by broker, day and recorder.

The bytes are those of the files, footers included; the size before compression is what Parquet states. An elementary
record is a publication, an arrival from another broker, or a delivery: what the paper's figures count.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from postroad.pipeline.charts import Panel, bars
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.tables import table
from postroad.pipeline.units import Unit, done
from postroad.tracking import HistoryKind
from postroad.trail import date_text
from postroad.trail.access import write_private
from postroad.trail.shipped import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.sources import Sources
    from postroad.trail.locations import Location

__all__ = ["RECORDERS", "StorageOptions", "bytes_of_files", "counted", "figures", "run", "storage"]

# The recorder that writes each table of messages.
RECORDERS = {"passages": "exact", "journeys": "journeys", "filters": "filters", "records": "log"}
# Days that one chart shows: more bars could not be told apart.
MAX_DAYS = 62
# The driver reads the footers of this many files faster than Spark distributes the work.
FEW_FILES, _THREADS = 1_000, 16
_ENTERED = (HistoryKind.ACCEPTED, HistoryKind.ARRIVED)


def bytes_of_files(spark: SparkSession, sources: Sources, tables: Iterable[str]) -> DataFrame:
    """Return the bytes of the files, by broker, day and table, from the manifests and the footers."""
    found = [source for name in tables for source in sources.of(name)]
    root = sources.root

    def look(number: int, unit: Unit) -> Iterator[tuple[int, int]]:
        yield number, _raw_bytes(root, unit.broker, unit.entries[0].path)

    if len(found) <= FEW_FILES:
        with ThreadPoolExecutor(_THREADS) as threads:
            raw = list(threads.map(lambda one: _raw_bytes(root, one.broker, one.entry.path), found))
    else:
        units = [Unit(one.broker, one.entry.table, one.entry.day, (one.entry,)) for one in found]
        sizes = dict(done(spark, units, look))
        raw = [sizes[number] for number in range(len(found))]
    sums: dict[tuple[int, str, str], list[int]] = {}
    for source, size in zip(found, raw, strict=True):
        here = sums.setdefault((source.broker, date_text(source.entry.day), source.entry.table), [0, 0, 0])
        here[0] += 1
        here[1] += source.entry.size
        here[2] += size
    rows = [(*key, *value) for key, value in sorted(sums.items())]
    return spark.createDataFrame(
        rows, "broker bigint, date string, table string, files bigint, bytes bigint, raw_bytes bigint"
    )


def _raw_bytes(root: Location, broker: int, path: str) -> int:
    with place_of(root, path, broker).open("rb") as file:
        metadata = pq.read_metadata(file)
    return sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))


def counted(rows: DataFrame, name: str) -> DataFrame:
    """Count messages and elementary records in a table, by broker and day, with the recorder that wrote it."""
    from pyspark.sql import functions as f

    recorder = f.lit(RECORDERS[name])
    if name == "passages":
        first = f.when(f.col("arrived_from") >= 0, 1).otherwise(0)
        messages, records = f.sum(first), f.sum(first + _listed("delivered", 4))
    elif name == "journeys":
        # A journey is one row at its origin; its hops are records of other brokers.
        messages, records = f.count("*"), f.sum(1 + _listed("path", 8) + _listed("delivered", 8))
    else:
        entries = f.col("entries") if name == "filters" else f.lit(1)
        messages = f.sum(f.when(f.col("kind").isin(*_ENTERED), entries).otherwise(0))
        counts = f.col("kind").isin(*_ENTERED, HistoryKind.DELIVERED)
        records = f.sum(f.when(counts, entries).otherwise(0))
        recorder = f.col("method") if name == "filters" else recorder
    grouped = rows.withColumn("recorder", recorder).groupBy("broker", "date", "recorder")
    return grouped.agg(messages.alias("messages"), records.alias("records")).withColumn("table", f.lit(name))


def _listed(name: str, width: int) -> Any:
    from pyspark.sql import functions as f

    return f.coalesce(f.length(name) / width, f.lit(0)).cast("bigint")


def storage(spark: SparkSession, sources: Sources) -> DataFrame:
    """Return a row for each broker, day, table and recorder.

    Raises:
        MissingTableError: the trail has no record of any message.
    """
    from pyspark.sql import functions as f

    names = sources.need(RECORDERS, "with filters, journeys and records is what takes room")
    counts = None
    for name in names:
        rows = table(spark, sources, name, whole_files=True)
        one = counted(rows.drop("data", "keys") if name == "filters" else rows, name)
        counts = one if counts is None else counts.unionByName(one)
    assert counts is not None
    joined = counts.join(bytes_of_files(spark, sources, names), ["broker", "date", "table"], how="left")
    # Filters of several methods share files: the bytes are divided among them by their records.
    share = f.coalesce(_over(f.col("records"), f.sum("records").over(_whole())), f.lit(1.0))
    return joined.select(
        "broker",
        "date",
        "table",
        "recorder",
        "files",
        "messages",
        "records",
        (f.col("bytes") * share).cast("bigint").alias("bytes"),
        (f.col("raw_bytes") * share).cast("bigint").alias("raw_bytes"),
        _over(f.col("bytes") * share, f.col("messages")).alias("bytes_per_message"),
        _over(8 * f.col("bytes") * share, f.col("records")).alias("bits_per_record"),
        _over(8 * f.col("raw_bytes") * share, f.col("records")).alias("raw_bits_per_record"),
    )


def _over(above: Any, below: Any) -> Any:
    """Return a ratio; null if there is nothing to divide by, as for a broker that sealed filters and saw no message."""
    from pyspark.sql import functions as f

    return above / f.when(below != 0, below)


def _whole() -> Any:
    from pyspark.sql import Window

    frame = Window.partitionBy("broker", "date", "table")
    return frame.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def figures(rows: Iterable[Mapping[str, Any]]) -> str:
    """Draw bytes per message before and after compression, by day and recorder, as in the paper's Figures 4 and 5.

    A message counts once at each broker that it passed, because each of them keeps a record of it.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        here = sums.setdefault((str(row["date"]), row["recorder"]), [0, 0, 0])
        for place, name in enumerate(("messages", "raw_bytes", "bytes")):
            here[place] += int(row[name] or 0)
    days = sorted({day for day, _ in sums})[-MAX_DAYS:]
    recorders = sorted({recorder for _, recorder in sums})

    def panel(title: str, place: int) -> Panel:
        each = {name: [sums.get((day, name), [0, 0, 0]) for day in days] for name in recorders}
        return Panel(title, {name: [of[place] / of[0] if of[0] else None for of in each[name]] for name in recorders})

    return bars(days, [panel("bytes per message", 1), panel("bytes per message, compressed", 2)])


@dataclass(frozen=True, kw_only=True)
class StorageOptions(JobOptions):
    """Options of `storage`.

    Attributes:
        plot: the file for a chart; none by default.
    """

    plot: Path | None = None


def run(run: JobRun[StorageOptions]) -> dict[str, Any]:
    """Write `storage`, and a chart of it if the options ask for one."""
    run.tell("counting")
    place = run.write(storage(run.spark, run.sources), "storage", by=("date",))
    rows = run.read_small(place, ["date", "recorder", "messages", "records", "bytes", "raw_bytes"]).to_pylist()
    summary: dict[str, Any] = {}
    for recorder in sorted({row["recorder"] for row in rows}):
        here = [row for row in rows if row["recorder"] == recorder]
        records, size, raw = (sum(row[name] or 0 for row in here) for name in ("records", "bytes", "raw_bytes"))
        summary[f"{recorder}_bytes"] = int(size)
        summary[f"{recorder}_bits_per_record"] = round(8 * size / max(1, records), 2)
        summary[f"{recorder}_raw_bits_per_record"] = round(8 * raw / max(1, records), 2)
    plot = run.options.plot
    if plot is not None:
        try:
            write_private(plot, figures(rows).encode())
        except OSError as error:
            raise PipelineError(f"{plot}: the picture cannot be written ({error.strerror})") from None
        run.account.written.append(str(plot))
    return summary
