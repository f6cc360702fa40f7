"""All evidence in the trail about the requested ids in one table, whatever recorder wrote it.

Rows of one id are adjacent and sorted, so that a function over Arrow batches can judge id by id without an object per
row. `source` says what kind of row it is, and which of the other columns are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.pipeline.tables import ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "ASKED",
    "COLUMNS",
    "HITS",
    "JOURNEY",
    "KEY",
    "PASSAGE",
    "RECORD",
    "SHED",
    "SOURCES",
    "as_evidence",
    "filled",
    "id_key",
    "of_asked",
    "together",
]

# What a row of evidence is.
ASKED = 0  # the question itself: `asked`
JOURNEY = 1  # a row of `journeys`: `relayed_to` has the path; it and the other lists are pairs
PASSAGE = 2  # a row of `passages`
SHED = 3  # a row of `shed`: `subscription`, `link`, `reason`, `at`
HITS = 4  # what the filters of a broker answered: `hits`
RECORD = 5  # a row of `records`: `link` has the kind, `subscription` the subject

SOURCES = 6

KEY = "key"

COLUMNS = {
    **dict.fromkeys(ID[:3], "bigint"),
    "counter": "int",
    "source": "int",
    "broker": "bigint",
    "arrived_from": "bigint",
    "relayed_to": "binary",
    "delivered": "binary",
    "acknowledged": "binary",
    "refused": "binary",
    "queued": "binary",
    "hits": "binary",
    "subscription": "bigint",
    "link": "bigint",
    "reason": "string",
    "at": "bigint",
    "asked": "string",
    # The run that wrote a passage; 0 or null where that is not known.
    "run": "bigint",
}


def id_key() -> Column:
    """Return one number for an id. Two ids may share it, so joins compare the ids too."""
    from pyspark.sql import functions as f

    return f.xxhash64(*ID)


def as_evidence(rows: DataFrame, source: int, renamed: dict[str, str] | None = None) -> DataFrame:
    """Return rows of a table as evidence: columns by name or renamed, and null if the table lacks them."""
    from pyspark.sql import functions as f

    names = {name: name for name in rows.columns} | (renamed or {})
    columns = []
    for name, kind in COLUMNS.items():
        if name == "source":
            columns.append(f.lit(source).alias(name))
        elif name in names:
            columns.append(f.col(names[name]).cast(kind).alias(name))
        else:
            columns.append(f.lit(None).cast(kind).alias(name))
    return rows.select(*columns)


def filled(rows: DataFrame, renamed: dict[str, str] | None = None) -> set[str]:
    """The columns of evidence that rows of a table fill; the others are null."""
    return {"source", *COLUMNS} & {"source", *rows.columns, *(renamed or {})}


def of_asked(rows: DataFrame, ids: DataFrame) -> DataFrame:
    """Select the rows of a table about the requested ids, by a hash join with broadcast ids; the table does not move.

    The join is on one 64-bit number, for which Spark's hash table is several times faster than for four columns. The
    equality of the ids is also compared as one number, which is 0 if they are equal: Spark would turn each plain
    comparison of two columns into a further key.
    """
    from pyspark.sql import functions as f

    wanted = ids.select(id_key().alias(KEY), *(f.col(name).alias(f"asked_{name}") for name in ID))
    differing = f.lit(0).cast("bigint")
    for name in ID:
        differing = differing.bitwiseOR(f.col(name).cast("bigint").bitwiseXOR(f.col(f"asked_{name}").cast("bigint")))
    keyed = rows.withColumn("row_key", id_key())
    condition = (f.col("row_key") == f.col(KEY)) & (differing == 0)
    return keyed.join(f.broadcast(wanted), condition, how="inner").select(*rows.columns)


def together(evidence: DataFrame, partitions: int) -> DataFrame:
    """Bring all rows of an id together, adjacent, with the questions first.

    The time comes first in the sort: Spark compares the first column natively, and the others only if it is equal.
    """
    order = ("time", *(name for name in ID if name != "time"), "source", "broker")
    return evidence.repartition(partitions, *ID).sortWithinPartitions(*order)
