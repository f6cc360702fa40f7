"""The tables of the trail as DataFrames: declared schemas, files from the pinned manifests, brokers from the paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from postroad.pipeline.errors import PipelineError
from postroad.trail import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.pipeline.sources import Source, Sources

__all__ = ["ID", "spark_schema", "table"]

# The columns that make an id.
ID = ("origin", "time", "publisher", "counter")

# Characters that Hadoop takes for a pattern in a path.
_PATTERNS = str.maketrans({character: "\\" + character for character in "\\*?[]{}"})


def spark_schema(name: str) -> StructType:
    """The columns of a table as Spark has them: those of its files, then `broker` and `date` from the path."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

    kinds = {pa.int64(): LongType(), pa.int32(): IntegerType(), pa.string(): StringType(), pa.binary(): BinaryType()}
    fields = [StructField(field.name, kinds[field.type], field.nullable) for field in SCHEMAS[name]]
    return StructType([*fields, StructField("broker", LongType()), StructField("date", StringType())])


def table(spark: SparkSession, sources: Sources, name: str, files: Iterable[Source] | None = None) -> DataFrame:
    """The rows of a table in the given files, by default those between the times that the sources are about.

    Raises:
        DamagedFileError: one of the files cannot be read.
    """
    chosen = list(sources.of(name) if files is None else files)
    schema = spark_schema(name)
    if not chosen:
        return spark.createDataFrame([], schema)
    # Manifests were read from this machine's file system, so the files are there too, whatever Spark's default is.
    root = f"file://{sources.root.resolve()}"
    paths = [f"{root}/{source.entry.path}".translate(_PATTERNS) for source in chosen]
    reader = spark.read.schema(schema).option("basePath", root)
    # Pages carry checksums; a flipped bit must not become an answer.
    rows = reader.option("parquet.page.verify-checksum.enabled", "true").parquet(*paths)
    if rows.schema.names != schema.names:
        raise PipelineError(f"{sources.root}: table {name!r} came with the columns {rows.schema.names}")
    return rows
