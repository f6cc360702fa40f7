"""The tables of the trail as DataFrames: declared schemas, files from the pinned manifests, brokers from the paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroad.pipeline.arrow_tables import file_rows
from postroad.pipeline.errors import PipelineError
from postroad.trail import SCHEMAS, TABLES
from postroad.trail.coverage import RUN_IN_NAME
from postroad.trail.locations import file_uri

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.pipeline.sources import SourceFile, Sources

__all__ = ["ID", "spark_schema", "table", "with_runs"]

# The columns that make an id.
ID = ("origin", "time", "publisher", "counter")

# Characters that Hadoop interprets as a pattern in a path.
_PATTERNS = str.maketrans({character: "\\" + character for character in "\\*?[]{}"})


def spark_schema(name: str) -> StructType:
    """Return the columns of a table for Spark: those of its files, then `broker` and `date` from the path."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

    kinds = {pa.int64(): LongType(), pa.int32(): IntegerType(), pa.string(): StringType(), pa.binary(): BinaryType()}
    fields = [StructField(field.name, kinds[field.type], field.nullable) for field in SCHEMAS[name]]
    return StructType([*fields, StructField("broker", LongType()), StructField("date", StringType())])


# Tables whose files may hold rows from outside the time range of a job. Filters only have a time range; and links,
# subscriptions and names stay valid from whenever they were recorded.
_ROWS_BY_TIME = ("passages", "journeys", "shed", "records", "timings", "latencies")


def table(
    spark: SparkSession,
    sources: Sources,
    name: str,
    files: Iterable[SourceFile] | None = None,
    *,
    whole_files: bool = False,
) -> DataFrame:
    """Return the rows of a table in the time range of the sources; only from the given files, if any.

    Args:
        spark: the session.
        sources: the trail.
        name: of the table.
        files: where to look; by default, all files with rows in the range.
        whole_files: return all rows of the files.

    Raises:
        DamagedFileError: one of the files cannot be read.
    """
    chosen = list(sources.of(name) if files is None else files)
    schema = spark_schema(name)
    journalled = sources.journalled.get(name) if files is None else None
    if journalled is not None:
        more = _journalled(spark, journalled, schema, runs=name == "passages")
        if not chosen:
            return more
        written = table(spark, sources, name, chosen, whole_files=whole_files)
        return more.unionByName(with_runs(written) if name == "passages" else written)
    if not chosen:
        return spark.createDataFrame([], schema)
    far = [source for source in chosen if sources.is_far(source)]
    near = chosen if not far else [source for source in chosen if not sources.is_far(source)]
    rows = _near(spark, sources.directory, name, near, schema) if near else None
    if far:
        others = file_rows(spark, sources.root, name, far, schema, runs=name == "passages")
        rows = others if rows is None else others.unionByName(with_runs(rows) if name == "passages" else rows)
    assert rows is not None
    if whole_files or name not in _ROWS_BY_TIME or not sources.is_bounded:
        return rows
    time = TABLES[name].time
    return rows.where(f"{time} >= {sources.since} and {time} < {sources.until}")


def _journalled(spark: SparkSession, journalled: Any, schema: StructType, *, runs: bool) -> DataFrame:
    """Return rows that the driver read from journals, with the columns of `schema`, and with `run` if wanted."""
    from pyspark.sql import functions as f

    rows = spark.createDataFrame(journalled).withColumn("date", f.lit(None).cast("string"))
    columns = [f.col(field.name).cast(field.dataType).alias(field.name) for field in schema]
    return rows.select(*columns, *([f.col("run")] if runs else []))


def _near(spark: SparkSession, directory: Path, name: str, files: list[SourceFile], schema: StructType) -> DataFrame:
    """Return the rows of local files, or of files that all machines share, read by Spark itself."""
    # The manifests came from this machine's file system, so the files are there too, whatever Spark's default is.
    root = file_uri(directory)
    paths = [f"{root}/{source.entry.path}".translate(_PATTERNS) for source in files]
    reader = spark.read.schema(schema).option("basePath", root)
    # Pages have checksums; a flipped bit must not become an answer.
    rows = reader.option("parquet.page.verify-checksum.enabled", "true").parquet(*paths)
    if rows.schema.names != schema.names:
        raise PipelineError(f"{directory}: table {name!r} came with the columns {rows.schema.names}")
    return rows


def with_runs(rows: DataFrame) -> DataFrame:
    """Add the `run` that wrote each passage, from the name of its file; 0 if not known."""
    from pyspark.sql import functions as f

    if "run" in rows.columns:
        return rows
    digits = f.regexp_extract(f.col("_metadata.file_name"), RUN_IN_NAME, 1)
    return rows.select("*", f.when(digits == "", f.lit(0)).otherwise(digits.cast("bigint")).alias("run"))
