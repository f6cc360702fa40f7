"""`match`: which messages of an archive a subscription would have got, by the very index that brokers match with.

Physical plan: one scan of two columns, the envelope and the encoded message without its body. An Arrow batch of them is
a batch of messages as it is: nothing is copied, and no Python object is made for a message. One column with the answer
joins the rows where they are; there is no shuffle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.matching import NO_BUDGET, SubscriptionIndex
from postroad.messages import decode_batch, decode_envelopes
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import JobReport, stopped_by_interrupts, told_error
from postroad.pipeline.output import replace_output
from postroad.pipeline.session import session
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from postroad.messages import Batch

__all__ = ["MatchOptions", "archived_batch", "match_archive", "matched", "run"]

_ENVELOPE = 40
# What is written of a message that matches; the rest of it is found by its id.
OUTPUT = "id string, time timestamp, topic string"
_OUTPUT_SCHEMA = pa.schema([("id", pa.string()), ("time", pa.timestamp("us", "UTC")), ("topic", pa.string())])


@dataclass(frozen=True)
class MatchOptions:
    """What the job is told.

    Attributes:
        archive: the directory that `postroad archive export` has written.
        out: the directory for results.
        where: a selector; empty for all.
        topic: a pattern of topics; all without.
        master: where Spark runs; this machine by default.
        since: the first id time that counts, in Unix ms.
        until: the first that does not.
    """

    archive: Path
    out: Path
    where: str = ""
    topic: str = ">"
    master: str | None = None
    since: int | None = None
    until: int | None = None


def archived_batch(envelopes: pa.Array, encoded: pa.Array) -> Batch:
    """Rows of an archive as a batch over the bytes of the column.

    Raises:
        DecodeError: they are not what an archive holds.
    """
    data, lengths, start = _bytes_of(encoded)
    heads, sizes, first = _bytes_of(envelopes)
    if (sizes != _ENVELOPE).any():
        raise PipelineError("an envelope of an archive does not have 40 bytes; was it written by `archive export`?")
    ids, columns, _ = decode_envelopes(heads, len(sizes), first)
    return decode_batch(data, lengths, start=start, ids=ids, envelopes=columns)


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32], int]:
    """The bytes of a column, the length of each value, and where the first begins."""
    wide = pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    count = len(array)
    if not count:
        return np.empty(0, np.uint8), np.empty(0, np.int32), 0
    places = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + count + 1]
    held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return held, np.diff(places).astype(np.int32), int(places[0])


def matched(envelopes: pa.Array, encoded: pa.Array, index: SubscriptionIndex) -> NDArray[np.bool_]:
    """Which rows of an archive an index wants."""
    offsets, _ = index.match(archived_batch(envelopes, encoded), NO_BUDGET)
    found: NDArray[np.bool_] = np.diff(offsets) > 0
    return found


def match_archive(rows: DataFrame, where: str, topic: str = ">") -> DataFrame:
    """The messages of an archive that a subscription would have got: id, time and topic.

    Args:
        rows: the archive.
        where: a selector; empty for all.
        topic: a pattern of topics.

    Raises:
        SelectorError, TopicError: a text does not parse.
    """
    # Here as well as there: a mistake is told before anything runs.
    _index(where, topic)

    def choose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _index(where, topic)
        for batch in batches:
            mask = matched(batch.column("envelope"), batch.column("encoded"), index)
            found = batch.filter(pa.array(mask)).select(_OUTPUT_SCHEMA.names)
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(found.columns, _OUTPUT_SCHEMA, strict=True)],
                schema=_OUTPUT_SCHEMA,
            )

    return rows.select(*_OUTPUT_SCHEMA.names, "envelope", "encoded").mapInArrow(choose, OUTPUT)


def _index(where: str, topic: str) -> SubscriptionIndex:
    index = SubscriptionIndex()
    index.add(1, Selector.parse(where) if where.strip() else None, TopicPattern.parse(topic))
    return index


def run(
    options: MatchOptions, tell: Callable[[str], None] = lambda _: None, spark: SparkSession | None = None
) -> JobReport:
    """Write the messages that match to `OUT/match`.

    Raises:
        PipelineError: it cannot be done; the text says why.
        SelectorError, TopicError: a text does not parse.
    """
    began = time.monotonic()
    _index(options.where, options.topic)
    if not any(options.archive.glob("*.parquet")):
        raise PipelineError(f"{options.archive}: no archive here; write one with `postroad archive export`")
    own = spark is None
    tell("starting Spark")
    spark = spark or session(options.master, name="postroad match")
    report = JobReport("match", starting_seconds=time.monotonic() - began)
    with stopped_by_interrupts(spark, own) as interrupted:
        try:
            report.summary = _written(spark, options, tell, report)
        except PipelineError:
            raise
        except Exception as error:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise told_error(error) from error
        finally:
            if own and not interrupted.is_set():
                spark.stop()
    report.seconds = time.monotonic() - began
    return report


def _written(
    spark: SparkSession, options: MatchOptions, tell: Callable[[str], None], report: JobReport
) -> dict[str, Any]:
    rows = spark.read.parquet(f"file://{options.archive.resolve()}")
    if options.since is not None:
        rows = rows.where(f"time >= timestamp_millis({options.since})")
    if options.until is not None:
        rows = rows.where(f"time < timestamp_millis({options.until})")
    tell("matching")
    place = replace_output(match_archive(rows, options.where, options.topic), options.out, "match")
    report.written.append(str(place))
    return {"messages": rows.count(), "matched": spark.read.parquet(f"file://{place.resolve()}").count()}
