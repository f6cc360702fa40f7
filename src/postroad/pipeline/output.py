"""What a job writes: Parquet tables, put in place in one step, so that a repeated or killed run leaves no half."""

from __future__ import annotations

import ctypes
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from postroad.pipeline.arrow_output import ArrowOutput, rendered
from postroad.pipeline.arrow_tables import commit_stored, stored_output, stored_rows, stored_small, stored_table
from postroad.pipeline.errors import PipelineError
from postroad.trail import TrailWriteError, replace_file
from postroad.trail.access import close_to_others, make_folders
from postroad.trail.locations import StoredPath, file_uri, location, remove_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.trail.locations import Location

__all__ = ["discard_output", "output_by_tasks", "read_output", "replace_output", "replace_output_by", "small_output"]

# renameat2(2): exchange two names in one step.
_HERE = -100
_EXCHANGE = 2


def replace_output(rows: DataFrame, out: str | Location, name: str, *, by: tuple[str, ...] = ()) -> Location:
    """Write a table as `out/name`; the same step replaces the table of an earlier run.

    Args:
        rows: the table.
        out: the directory of results, or a folder of a store.
        name: of the table in it.
        by: columns to partition it by; not possible in a store.

    Raises:
        PipelineError: the directory cannot be written.
    """
    folder = location(out)
    if isinstance(folder, StoredPath):
        stored_output(rows, folder / name)
        return folder / name
    with _replacement(folder, name) as fresh:
        writer = rows.write.mode("error")
        (writer.partitionBy(*by) if by else writer).parquet(file_uri(fresh))
        close_to_others(fresh)
    return folder / name


@contextmanager
def output_by_tasks(out: str | Location, name: str, schema: Any) -> Iterator[ArrowOutput]:
    """A table that tasks write themselves; at the end it takes the place of an earlier one, as in `replace_output`.

    Raises:
        PipelineError: the directory cannot be written.
    """
    folder = location(out)
    if isinstance(folder, StoredPath):
        output = ArrowOutput(folder / name, schema)
        yield output
        commit_stored(output)
        return
    with _replacement(folder, name) as fresh:
        try:
            make_folders(fresh)
        except OSError as error:
            raise PipelineError(f"{fresh}: cannot be made ({error.strerror})") from None
        # Executors have working directories of their own.
        output = ArrowOutput(fresh.absolute(), schema)
        yield output
        for one in fresh.iterdir():
            if one.name not in output.written:
                one.unlink()
        if not output.written:
            replace_file(fresh / "part-00000.parquet", rendered(schema.empty_table()))
        close_to_others(fresh)


def replace_output_by(rows: Any, out: str | Location, name: str) -> Location:
    """Write an Arrow table in the way `replace_output` writes a Spark table, without Spark.

    Raises:
        PipelineError: the directory cannot be written.
    """
    folder = location(out)
    if isinstance(folder, StoredPath):
        stored_table(rows, folder / name)
        return folder / name
    with _replacement(folder, name) as fresh:
        try:
            make_folders(fresh)
            replace_file(fresh / "part-00000.parquet", rendered(rows))
        except (OSError, TrailWriteError) as error:
            raise PipelineError(f"{folder}: cannot be written ({error})") from None
    return folder / name


def read_output(spark: SparkSession, place: Location, schema: StructType | str | None = None) -> DataFrame:
    """Return a table that `replace_output` wrote; only some of its columns, if a schema names them."""
    if isinstance(place, StoredPath):
        return stored_rows(spark, place)
    reader = spark.read if schema is None else spark.read.schema(schema)
    return reader.parquet(file_uri(place))


def small_output(place: Location, columns: Sequence[str] | None = None) -> Any:
    """Return a table that `replace_output` wrote, read by the driver itself: for a few rows per broker.

    Raises:
        DamagedFileError: the table is missing or cannot be read.
    """
    if isinstance(place, StoredPath):
        return stored_small(place, columns)
    return pq.read_table(place, columns=None if columns is None else list(columns))


def discard_output(place: Location) -> None:
    """Delete a table that `replace_output` wrote; errors are ignored."""
    if isinstance(place, StoredPath):
        with suppress(OSError):
            for one in place.iterdir():
                remove_file(one)
    else:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _replacement(folder: Path, name: str) -> Iterator[Path]:
    """Yield a place to write a table to, which then becomes `folder/name`; after an error, nothing changes."""
    fresh = folder / f".{name}-{uuid.uuid4().hex}"
    try:
        make_folders(folder)
    except OSError as error:
        raise PipelineError(f"{folder}: cannot be made ({error.strerror})") from None
    try:
        yield fresh
        try:
            _put(fresh, folder / name)
        except OSError as error:
            raise PipelineError(f"{folder}: cannot be written ({error})") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put(fresh: Path, place: Path) -> None:
    """Replace a directory by another, in one step if the system can."""
    if not place.exists():
        fresh.rename(place)
        return
    if not _exchanged(fresh, place):
        # Two steps: a crash between them leaves nothing in place, and the old table under the other name.
        aside = fresh.with_name(fresh.name + "-old")
        place.rename(aside)
        fresh.rename(place)
        aside.rename(fresh)
    shutil.rmtree(fresh, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return int(exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)) == 0
