"""A table of results written by the tasks that have its rows, with pyarrow: none of them passes through Spark again.

What a Python function gives to Spark is taken apart value by value and written row by row, which of nested rows, such
as verdicts, takes longer than to find them. Here the function's own batches become files. A file is named after its
task and attempt: tasks that are tried again, or twice at once, never meet, and only those count that Spark took.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.trail.locations import put_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from postroad.trail.locations import Location

__all__ = ["ArrowOutput", "rendered"]

# Rows of one file, which a task holds before it is written.
MAX_FILE_ROWS = 1_000_000


class ArrowOutput:
    """The files of one table of results.

    Args:
        place: the folder for them, which is there, or one of a store.
        schema: of the rows, as Arrow has it.

    Attributes:
        written: the names of the files that count.
    """

    def __init__(self, place: Location, schema: Any) -> None:
        self.place, self.schema = place, schema
        self.written: list[str] = []

    def add(self, rows: DataFrame, work: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> None:
        """Write what the work makes of rows, batch by batch; by itself it changes nothing."""
        place, schema, name = self.place, self.schema, uuid.uuid4().hex

        def write(batches: Iterable[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            task = TaskContext.get()
            mark = (
                f"{name}-{task.partitionId() if task else 0:05d}-{task.taskAttemptId() if task else uuid.uuid4().hex}"
            )
            for number, part in enumerate(_portions(work(batches), schema)):
                path = f"{mark}-{number:03d}.parquet"
                put_file(place / path, rendered(part))
                yield pa.RecordBatch.from_arrays([pa.array([path])], names=["path"])

        self.written += [row["path"] for row in rows.mapInArrow(write, "path string").collect()]

    def add_table(self, rows: Any) -> None:
        """Write rows that the driver has."""
        if rows.num_rows:
            path = f"{uuid.uuid4().hex}.parquet"
            put_file(self.place / path, rendered(rows.cast(self.schema)))
            self.written.append(path)


def _portions(batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    held: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if count >= MAX_FILE_ROWS:
            yield pa.Table.from_batches(held).cast(schema)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held).cast(schema)


def rendered(rows: Any) -> memoryview:
    """An Arrow table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    return memoryview(sink.getvalue()).cast("B")
