"""Work on whole files: one unit is a few files of one broker, handled by one task with pyarrow.

Spark distributes the units and collects the results; no rows of the trail pass through it.
"""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from postroad.trail import FileEntry

__all__ = ["Unit", "done"]

Result = TypeVar("Result")
# What a task reads, compressed: some seconds of work. With fewer tasks than cores, some cores would be idle.
TASK_BYTES = 8 << 20
MIN_TASKS, MAX_TASKS = 8, 1_000


class Unit(NamedTuple):
    """Some files of one broker, table and day."""

    broker: int
    table: str
    day: int
    entries: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


def done(spark: SparkSession, units: Sequence[Unit], work: Callable[[int, Unit], Iterable[Result]]) -> list[Result]:
    """Return the results of all units, in any order. `work` gets the number of its unit and the unit."""
    import pyarrow as pa

    if not units:
        return []
    # The largest first. Small units share tasks: a task costs more than merging a few small files.
    ordered = sorted(enumerate(units), key=lambda one: -one[1].size)
    texts = [(base64.b64encode(pickle.dumps(one)).decode(),) for one in ordered]
    tasks = max(MIN_TASKS, -(-sum(unit.size for unit in units) // TASK_BYTES))
    rows = spark.createDataFrame(texts, "unit string").repartition(min(len(units), tasks, MAX_TASKS))

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                number, unit = pickle.loads(base64.b64decode(text))
                found = [pickle.dumps(result) for result in work(number, unit)]
                yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], names=["result"])

    return [pickle.loads(row["result"]) for row in rows.mapInArrow(run, "result binary").collect()]
