"""Tables that workers read and write themselves with pyarrow, for places that Spark cannot reach.

Spark comes without the libraries of object stores, and this package downloads nothing. So the driver assigns files of a
store to workers. They fetch the files, compare them with their checksums, and pass the rows to Spark. Each task writes
its own results (`arrow_output`). One more file, written last, lists which files count.
"""

from __future__ import annotations

import base64
import pickle
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.arrow_output import ArrowOutput, rendered
from postroad.pipeline.errors import DamagedFileError, PipelineError
from postroad.trail import SCHEMAS, FileEntry, Reads, date_text
from postroad.trail.coverage import run_of_file
from postroad.trail.locations import StoredPath, put_file, remove_file
from postroad.trail.read_ahead import opened_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.pipeline.sources import SourceFile
    from postroad.trail.locations import Location

__all__ = ["CURRENT", "commit_stored", "file_rows", "stored_output", "stored_rows", "stored_table"]

# What a task reads, compressed: some seconds of work, most of it waiting.
TASK_BYTES = 16 << 20
MIN_TASKS, MAX_TASKS = 4, 2_000
BATCH_ROWS = 65_536
# Lists the files of a result table that count. Other files belong to a run under way, or to one that died.
CURRENT = "_current.json"


class _Portion(NamedTuple):
    """Some files of a table, for one task."""

    root: Location
    table: str
    files: tuple[tuple[int, FileEntry], ...]


def file_rows(
    spark: SparkSession, root: Location, name: str, files: Sequence[SourceFile], schema: StructType, *, runs: bool
) -> DataFrame:
    """Return the rows of files, limited to the row groups in their entries; optionally with the run that wrote each.

    Raises, when the rows are used:
        TrailDamageError: a file is missing or differs from what was written.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    wanted = StructType([*schema.fields, StructField("run", LongType())]) if runs else schema
    tasks = min(MAX_TASKS, max(MIN_TASKS, -(-sum(_bytes(one.entry) for one in files) // TASK_BYTES)))
    # The largest first, each to the task with the least to do.
    shares: list[list[tuple[int, FileEntry]]] = [[] for _ in range(min(tasks, len(files)))]
    for place, one in enumerate(sorted(files, key=lambda one: -one.entry.size)):
        shares[place % len(shares)].append((one.broker, one.entry))
    portions = [(base64.b64encode(pickle.dumps(_Portion(root, name, tuple(share)))).decode(),) for share in shares]
    rows = spark.createDataFrame(portions, "portion string").repartition(len(portions), "portion")

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from _read(pickle.loads(base64.b64decode(text)), runs)

    return rows.mapInArrow(read, wanted)


def _bytes(entry: FileEntry) -> int:
    """Estimate how many bytes of a file are read: the share of its rows that its groups have."""
    rows = sum(group.rows for group in entry.groups) or entry.rows
    return entry.size * min(rows, entry.rows) // max(1, entry.rows)


def _read(portion: _Portion, runs: bool) -> Iterator[Any]:
    schema = SCHEMAS[portion.table]
    for broker, entry, file in opened_ahead(portion.root, portion.files, Reads()):
        groups = {group.index for group in entry.groups}
        # A column that is empty in the whole file has no type.
        rows = file.read(schema.names, groups).select(schema.names).cast(schema)
        count = rows.num_rows
        rows = rows.append_column("broker", pa.repeat(pa.scalar(broker, pa.int64()), count))
        rows = rows.append_column("date", pa.repeat(pa.scalar(date_text(entry.day), pa.string()), count))
        if runs:
            rows = rows.append_column("run", pa.repeat(pa.scalar(run_of_file(entry.path), pa.int64()), count))
        yield from rows.to_batches(BATCH_ROWS)


# --- results --------------------------------------------------------------------------------------------------------


def stored_output(rows: DataFrame, place: StoredPath) -> None:
    """Write a table of results to a folder of a store, and replace an earlier one.

    Readers that use `_current.json` see the old table or the new one, whole. Readers that take all files of the folder
    see both for a moment, until the old files are deleted.

    Raises:
        PipelineError: the store refuses the write.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    output = ArrowOutput(place, to_arrow_schema(rows.schema))
    output.add(rows)
    commit_stored(output)


def commit_stored(output: ArrowOutput) -> None:
    """Put files that were written to a folder of a store in the place of an earlier table.

    Raises:
        PipelineError: the store does not take it.
    """
    assert isinstance(output.place, StoredPath)
    if output.written:
        _commit(output.place, output.written)
    else:
        stored_table(output.schema.empty_table(), output.place)


def stored_table(rows: Any, place: StoredPath) -> None:
    """Write an Arrow table in the way `stored_output` writes a Spark table.

    Raises:
        PipelineError: the store refuses the write.
    """
    name = f"{uuid.uuid4().hex}-0.parquet"
    try:
        put_file(place / name, rendered(rows))
    except OSError as error:
        raise PipelineError(f"{place}: the store does not take the results ({error})") from error
    _commit(place, [name])


def _commit(place: StoredPath, written: list[str]) -> None:
    try:
        put_file(place / CURRENT, memoryview(msgspec.json.encode(sorted(written))))
        for other in place.iterdir():
            if other.name.endswith(".parquet") and other.name not in written:
                remove_file(other)
    except OSError as error:
        raise PipelineError(f"{place}: the store does not take the results ({error})") from error


def _stored(place: StoredPath) -> tuple[list[str], Any]:
    """The files of a table in a store, and its schema."""
    try:
        names = msgspec.json.decode((place / CURRENT).read_bytes(), type=list[str])
        with (place / names[0]).open() as first:
            return names, pq.read_schema(first)
    except (OSError, IndexError, msgspec.MsgspecError, pa.ArrowException) as error:
        raise DamagedFileError(str(place), f"cannot be read: {error}") from error


def stored_small(place: StoredPath, columns: Sequence[str] | None = None) -> Any:
    """Return what `stored_rows` returns, read by the driver itself.

    Raises:
        DamagedFileError: the table is missing or cannot be read.
    """
    parts = []
    try:
        for name in _stored(place)[0]:
            with (place / name).open() as file:
                parts.append(pq.ParquetFile(file, page_checksum_verification=True).read(columns))
    except (OSError, pa.ArrowException) as error:
        raise DamagedFileError(str(place), f"cannot be read: {error}") from error
    return pa.concat_tables(parts)


def stored_rows(spark: SparkSession, place: StoredPath) -> DataFrame:
    """Return a table of results that `stored_output` wrote.

    Raises:
        DamagedFileError: the table is missing or cannot be read.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    names, schema = _stored(place)

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for name in batch.column(0).to_pylist():
                with (place / name).open() as file:
                    yield from pq.ParquetFile(file, page_checksum_verification=True).read().to_batches(BATCH_ROWS)

    listed = spark.createDataFrame([(name,) for name in names], "name string").repartition(len(names), "name")
    return listed.mapInArrow(read, from_arrow_schema(schema))
