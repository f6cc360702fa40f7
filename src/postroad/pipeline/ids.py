"""The ids that a bulk trace asks for: read from Parquet, CSV or text, and parsed by Spark itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.messages.limits import MAX_FOREIGN_ID_BYTES
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.tables import ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "asked_ids",
    "check_asked",
    "id_text",
    "id_texts",
    "is_never_recorded",
    "parsed",
    "read_asked",
    "with_aliases",
]

ID_COLUMN = "id"
# Size of the file of ids per task: some hundred thousand ids.
PORTION_BYTES = 4 << 20
MIN_PORTIONS = 2
_TEXT_BYTES = 35
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_ID_TEXT = "^[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{12}-[0-9a-f]{4}$"


def check_asked(path: Path | None) -> None:
    """Refuse a file of ids that is not there, before Spark is started for it.

    Raises:
        PipelineError: it does not exist.
    """
    if path is not None and not Path(path).exists():
        raise PipelineError(f"{path}: there is no such file of ids")


def read_asked(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return what is asked for: the text `asked`, and the four numbers of the id, null if the text may be an alias.

    Parquet and CSV files have a column `id`, or just one column; Parquet may instead have the four numbers of ids as
    the trail has them (origin, time, publisher, counter). Text files have one id or alias on each line.

    Raises:
        PipelineError: the file does not exist, or has no such column.
    """
    place = Path(path)
    check_asked(place)
    where = f"file://{place.resolve()}"
    kind = _kind(place)
    portions = _portions(place)
    if kind == "parquet":
        return asked_ids(spark.read.parquet(where), str(place), portions)
    if kind == "csv":
        return asked_ids(spark.read.option("header", "true").csv(where), str(place), portions)
    return asked_ids(spark.read.text(where), str(place), portions)


def _portions(place: Path) -> int:
    """Return over how many tasks the ids are spread: a task costs as much as some ten thousand ids."""
    files = [place] if place.is_file() else [inner for inner in place.rglob("*") if inner.is_file()]
    return max(MIN_PORTIONS, -(-sum(file.stat().st_size for file in files) // PORTION_BYTES))


def _kind(place: Path) -> str:
    names = [place.name] if place.is_file() else [inner.name for inner in sorted(place.iterdir())]
    for kind in ("parquet", "csv"):
        if any(name.endswith((f".{kind}", f".{kind}.gz")) for name in names):
            return kind
    return "text"


def asked_ids(rows: DataFrame, where: str = "the ids", portions: int = MIN_PORTIONS) -> DataFrame:
    """Return the ids or aliases in a table, without repetitions and without empty ones.

    Args:
        rows: the table.
        where: what the table is called in errors.
        portions: over how many tasks to spread them.
    """
    from pyspark.sql import functions as f

    names = rows.columns
    if set(ID) <= set(names):
        numbers = [f.col(name).cast("int" if name == "counter" else "bigint").alias(name) for name in ID]
        known = rows.select(f.lit(None).cast("string").alias("asked"), *numbers)
        known = known.where(" and ".join(f"{name} is not null" for name in ID))
        return known.repartition(portions, *ID).distinct()
    if ID_COLUMN in names:
        column = f.col(ID_COLUMN).cast("string")
    elif len(names) == 1:
        column = f.col(f"`{names[0]}`").cast("string")
    else:
        raise PipelineError(f"{where}: has the columns {', '.join(names)}; name the one with the ids {ID_COLUMN!r}")
    texts = rows.select(f.trim(column).alias("asked"))
    return parsed(texts.where("asked is not null and asked != ''").repartition(portions, "asked").distinct())


def parsed(asked: DataFrame) -> DataFrame:
    """Parse texts into the numbers of ids; nulls for texts that are not ids and may be aliases."""
    from pyspark.sql import functions as f

    is_id = f.col("asked").rlike(_ID_TEXT)
    return asked.select(
        "asked",
        _number(is_id, 10, 8).alias("origin"),
        _number(is_id, 19, 12).alias("time"),
        _number(is_id, 1, 8).alias("publisher"),
        _number(is_id, 32, 4).cast("int").alias("counter"),
    )


def _number(is_id: Column, start: int, digits: int) -> Column:
    from pyspark.sql import functions as f

    return f.when(is_id, f.conv(f.substring("asked", start, digits), 16, 10).cast("bigint"))


def id_text() -> Column:
    """Return the text form of the id in the four columns. For many ids, `id_texts` is ten times as fast."""
    from pyspark.sql import functions as f

    def digits(name: str, count: int) -> Column:
        return f.lower(f.lpad(f.hex(f.col(name).cast("bigint")), count, "0"))

    return f.concat_ws("-", digits("publisher", 8), digits("origin", 8), digits("time", 12), digits("counter", 4))


def id_texts(origin: Any, time: Any, publisher: Any, counter: Any) -> Any:
    """Return the text forms of many ids as an Arrow column: the same as `id_text`, for functions over Arrow batches."""
    out = np.full((len(time), _TEXT_BYTES), ord("-"), np.uint8)
    at = 0
    for numbers, count in ((publisher, 8), (origin, 8), (time, 12), (counter, 4)):
        wide = np.asarray(numbers, np.int64)
        for place in range(count):
            out[:, at + place] = _DIGITS[(wide >> (4 * (count - 1 - place))) & 0xF]
        at += count + 1
    offsets = np.arange(0, _TEXT_BYTES * (len(time) + 1), _TEXT_BYTES, dtype=np.int32)
    return pa.StringArray.from_buffers(len(time), pa.py_buffer(offsets), pa.py_buffer(out))


def is_never_recorded() -> Column:
    """Return whether brokers record no name as long as the text that is asked for (`messages.check_alias`)."""
    from pyspark.sql import functions as f

    return f.octet_length(f.regexp_replace("asked", "\ufffd", "?")) > MAX_FOREIGN_ID_BYTES


def with_aliases(ids: DataFrame, aliases: DataFrame) -> DataFrame:
    """Look up texts that are not ids as aliases: a row for each message with that alias, or one row with nulls."""
    from pyspark.sql import functions as f

    known = aliases.select("alias", *(f.col(name).alias(f"its_{name}") for name in ID))
    joined = ids.where("origin is null").select("asked").join(known, f.col("asked") == f.col("alias"), how="left")
    found = joined.select("asked", *(f.col(f"its_{name}").alias(name) for name in ID)).distinct()
    return ids.where("origin is not null").unionByName(found)
