"""`match`: which messages of an archive a subscription would have got, by the same index that brokers use.

Physical plan: a task is a few row groups of a file. It reads five columns with Arrow, without bodies and attributes.
Spark's own reader would turn them into rows and back into columns, which takes longer than the matching. The envelopes
and encoded messages of a row group already form a batch of messages: nothing is copied, and there is no Python object
per message. Only matching messages pass through Spark, and there is no shuffle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.messages import decode_batch, decode_envelopes
from postroad.messages.envelope import ENVELOPE_BYTES
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import SMALL_BYTES, JobReport, spark_work
from postroad.pipeline.output import read_output, replace_output
from postroad.pipeline.progress import UNCOUNTED, counted
from postroad.pipeline.session import SparkStart
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from postroad.messages import Batch
    from postroad.pipeline.progress import Tally
    from postroad.trail.locations import Location

__all__ = ["MatchOptions", "archived_batch", "match_archive", "matched", "run"]

# A task takes a tenth of a second to begin, and a second for a few million messages.
TASK_ROWS = 500_000
# What is written of a message that matches; its id leads to the rest.
OUTPUT = "id string, time timestamp, topic string"
_OUTPUT_SCHEMA = pa.schema([("id", pa.string()), ("time", pa.timestamp("us", "UTC")), ("topic", pa.string())])


@dataclass(frozen=True)
class MatchOptions:
    """Options of the job.

    Attributes:
        archive: the directory that `postroad archive export` wrote.
        out: the directory for results.
        where: a selector; empty for all.
        topic: a pattern of topics; all by default.
        master: where Spark runs; this machine by default.
        since: the first id time that counts, in Unix ms.
        until: the first that does not.
        settings: further settings of Spark.
    """

    archive: Path
    out: Location
    where: str = ""
    topic: str = ">"
    master: str | None = None
    since: int | None = None
    until: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def archived_batch(envelopes: pa.Array, encoded: pa.Array) -> Batch:
    """Return rows of an archive as a batch over the bytes of the column.

    Raises:
        DecodeError: the bytes are not those of an archive.
    """
    data, lengths, start = _bytes_of(encoded)
    heads, sizes, first = _bytes_of(envelopes)
    if (sizes != ENVELOPE_BYTES).any():
        raise PipelineError(
            f"an envelope of an archive does not have {ENVELOPE_BYTES} bytes; was it written by `archive export`?"
        )
    ids, columns, _ = decode_envelopes(heads, len(sizes), first)
    return decode_batch(data, lengths, start=start, ids=ids, envelopes=columns)


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32], int]:
    """Return the bytes of a column, the length of each value, and where the first begins."""
    wide = pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    count = len(array)
    if not count:
        return np.empty(0, np.uint8), np.empty(0, np.int32), 0
    places = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + count + 1]
    held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return held, np.diff(places).astype(np.int32), int(places[0])


def matched(envelopes: pa.Array, encoded: pa.Array, index: SubscriptionIndex) -> NDArray[np.bool_]:
    """Return which rows of an archive an index wants."""
    offsets, _ = index.match(archived_batch(envelopes, encoded), NO_BUDGET)
    found: NDArray[np.bool_] = np.diff(offsets) > 0
    return found


def match_archive(
    spark: SparkSession,
    archive: Path,
    where: str,
    topic: str = ">",
    since: int | None = None,
    until: int | None = None,
    tally: Tally = UNCOUNTED,
) -> DataFrame:
    """Return the messages of an archive that a subscription would have got: id, time and topic.

    Args:
        spark: the session.
        archive: the directory of the archive.
        where: a selector; empty for all.
        topic: a pattern of topics.
        since: the first id time that counts, in Unix ms.
        until: the first that does not.
        tally: counts the messages examined.

    Raises:
        SelectorError, TopicError: a text does not parse.
    """
    # Parse here as well as in the workers: a mistake is reported before anything runs.
    _index(where, topic)
    first, last = 0 if since is None else since, 2**48 if until is None else until

    def choose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _index(where, topic)
        for batch in batches:
            for part in batch.to_pylist():
                for rows in _row_groups(part["path"], part["first"], part["last"]):
                    times = rows.column("time").cast(pa.int64()).to_numpy()
                    tally.add(rows.num_rows)
                    mask = matched(rows.column("envelope"), rows.column("encoded"), index)
                    found = rows.filter(pa.array(mask & (times >= first) & (times < last)))
                    columns = [found.column(name) for name in _OUTPUT_SCHEMA.names]
                    yield pa.RecordBatch.from_arrays(
                        [each.cast(field.type) for each, field in zip(columns, _OUTPUT_SCHEMA, strict=True)],
                        schema=_OUTPUT_SCHEMA,
                    )

    parts = _parts(archive)
    tasks = spark.createDataFrame(parts, "path string, first int, last int").repartition(len(parts))
    return tasks.mapInArrow(choose, OUTPUT)


def _parts(archive: Path) -> list[tuple[str, int, int]]:
    """Return row groups of the files of an archive, grouped into tasks of a useful size."""
    parts = []
    for path in sorted(archive.glob("*.parquet")):
        footer = pq.read_metadata(path)
        first, rows = 0, 0
        for group in range(footer.num_row_groups):
            rows += footer.row_group(group).num_rows
            if rows >= TASK_ROWS or group == footer.num_row_groups - 1:
                parts.append((str(path.resolve()), first, group + 1))
                first, rows = group + 1, 0
    return parts or [("", 0, 0)]


def _row_groups(path: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
    if first == last:
        return
    with pq.ParquetFile(path) as file:
        for group in range(first, last):
            table = file.read_row_group(group, columns=[*_OUTPUT_SCHEMA.names, "envelope", "encoded"])
            yield from table.combine_chunks().to_batches()


def _index(where: str, topic: str) -> SubscriptionIndex:
    index = SubscriptionIndex()
    index.add(1, Selector.parse(where) if where.strip() else None, TopicPattern.parse(topic))
    return index


def run(
    options: MatchOptions,
    tell: Callable[[str], None] = lambda _: None,
    spark: SparkSession | None = None,
    show: Callable[[int, int], None] = lambda *_: None,
) -> JobReport:
    """Write the messages that match to `OUT/match`.

    Raises:
        PipelineError: the job cannot run; the text says why.
        SelectorError, TopicError: a text does not parse.
    """
    began = time.monotonic()
    _index(options.where, options.topic)
    if not any(options.archive.glob("*.parquet")):
        raise PipelineError(f"{options.archive}: no archive here; write one with `postroad archive export`")
    own = spark is None
    tell("starting Spark")
    start = SparkStart(options.master, "postroad match", options.settings)
    start.made = spark
    start.is_small = sum(path.stat().st_size for path in options.archive.glob("*.parquet")) <= SMALL_BYTES
    made = start()
    report = JobReport("match", starting_seconds=time.monotonic() - began)
    with spark_work(start, own):
        report.summary = _written(made, options, tell, show, report)
    report.seconds = time.monotonic() - began
    return report


def _written(
    spark: SparkSession,
    options: MatchOptions,
    tell: Callable[[str], None],
    show: Callable[[int, int], None],
    report: JobReport,
) -> dict[str, Any]:
    tell("matching")
    messages = sum(pq.read_metadata(path).num_rows for path in options.archive.glob("*.parquet"))
    with counted(spark, show, messages) as tally:
        texts, times = (options.where, options.topic), (options.since, options.until)
        place = replace_output(match_archive(spark, options.archive, *texts, *times, tally), options.out, "match")
    report.written.append(str(place))
    return {"messages": messages, "matched": read_output(spark, place).count()}
