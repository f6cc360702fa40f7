"""Groups ids with the records of their origin and time, if the ids are too many to send everywhere.

Time is divided into bins. Ids and records of one origin and bin meet in one task. If an origin has many ids in a bin,
they are salted over several tasks. A task holds one bin of one origin at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.messages.identity import COUNTER_BITS
from postroad.pipeline.probes import FILTER_COLUMNS, HITS_SCHEMA, hits_of
from postroad.pipeline.tables import ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from postroad.pipeline.context import Context
    from postroad.pipeline.sources import SourceFile


__all__ = ["BROADCAST_IDS", "Bins", "filter_hits", "in_bins", "of_asked_by_bins", "rows_of_ids", "width_of_bins"]

# About 100 bytes per id in the hash table of each executor: 400 MB.
BROADCAST_IDS = 4_000_000
# The default seal interval of brokers: most filters then meet the ids of one bin or two.
BIN_MS = 60_000
# If the records of one origin in a bin have more bytes than this, bins are narrower: decoded, and with Spark's own
# copies, they take about twenty times as much.
BIN_BYTES = 16 << 20
MIN_BIN_MS = 100
# Ids of one origin and bin per task: some tens of megabytes with all that is found.
IDS_PER_TASK = 250_000
# Rows of evidence that one task of the last step sorts, and roughly how many rows an id has.
ROWS_PER_PARTITION = 500_000
_ROWS_PER_ID = 4
MIN_PARTITIONS = 2


@dataclass(frozen=True)
class Bins:
    """How ids are spread.

    Attributes:
        count: ids in all.
        width: of a bin, in ms.
        salts: the largest number of tasks that the ids of one origin and bin are spread over.
    """

    count: int
    width: int
    salts: int

    @classmethod
    def of(cls, ids: DataFrame, files: Sequence[SourceFile] = (), *, uncrowded: int = 0) -> Bins:
        """Look at the ids, how many there are and how they crowd, and at the sizes of files.

        Args:
            ids: the ids.
            files: with records of them.
            uncrowded: up to this many ids, crowding does not matter.
        """
        from pyspark.sql import functions as f

        width = width_of_bins(files)
        if uncrowded:
            total = ids.count()
            if total <= uncrowded:
                return cls(total, width, 1)
        crowds = ids.groupBy("origin", f.floor(f.col("time") / width).alias("bin")).count()
        row = crowds.agg(f.sum("count").alias("ids"), f.max("count").alias("most")).first()
        assert row is not None
        count, most = int(row["ids"] or 0), int(row["most"] or 0)
        return cls(count, width, max(1, -(-most // IDS_PER_TASK)))

    @property
    def partitions(self) -> int:
        """Return the number of partitions for the evidence of all ids."""
        return max(MIN_PARTITIONS, -(-self.count * _ROWS_PER_ID // ROWS_PER_PARTITION))


def width_of_bins(files: Sequence[SourceFile]) -> int:
    """Return a width so that one origin does not have too many records in a bin, by the manifests."""
    groups = [group for source in files for group in source.entry.groups if group.rows]
    if not groups:
        return BIN_MS
    span = max(group.time_to for group in groups) - min(group.time_from for group in groups) + 1
    origins = len({group.origin for group in groups})
    width, dense = BIN_MS, sum(source.entry.size for source in files) / span / origins
    while width > MIN_BIN_MS and dense * width > BIN_BYTES:
        width //= 2
    return width


def of_asked_by_bins(rows: DataFrame, ids: DataFrame, bins: Bins) -> DataFrame:
    """Select the rows of a table about the requested ids by cogrouping; memory holds one bin of one origin."""
    from pyspark.sql import functions as f

    spot = f.floor(f.col("time") / bins.width).alias("bin")
    salt = f.pmod(f.xxhash64(*ID), f.lit(bins.salts)).alias("salt")
    keys = ["origin", "bin", "salt"]
    left = ids.select(*ID, spot, salt).groupBy(*keys)
    right = rows.select("*", spot, salt).groupBy(*keys)
    names = rows.columns
    return left.cogroup(right).applyInArrow(lambda one, other: rows_of_ids(one, other.select(names)), rows.schema)


def rows_of_ids(ids: Any, rows: Any) -> Any:
    """Return the rows whose ids are among those given; both of one origin."""
    if not ids.num_rows or not rows.num_rows:
        return rows.slice(0, 0)
    wanted, there = _words(ids), _words(rows)
    return rows.filter(pa.array(np.isin(there, wanted)))


def _words(rows: Any) -> NDArray[np.void]:
    """Return the ids of rows, each as one comparable value; they share their origin."""
    words = np.empty((rows.num_rows, 2), np.int64)
    words[:, 0] = rows.column("publisher").to_numpy()
    words[:, 1] = rows.column("time").to_numpy() << COUNTER_BITS | rows.column("counter").to_numpy()
    return words.view("V16").ravel()


def filter_hits(filters: DataFrame, ids: DataFrame, bins: Bins, context: Context) -> DataFrame:
    """Return what filters say about ids, by cogrouping both by origin and bin of time."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    keys = ["origin", "bin", "salt"]
    salt = f.pmod(f.xxhash64(*ID), f.lit(bins.salts)).alias("salt")
    spot = f.floor(f.col("time") / bins.width).alias("bin")
    left = ids.select(*ID, spot, salt)
    # Bins that no id lies in need no filters.
    wanted = f.broadcast(left.select("origin", "bin").distinct())
    right = in_bins(filters.select(*FILTER_COLUMNS), bins.width).join(wanted, ["origin", "bin"], how="left_semi")
    salted = right.withColumn("salt", f.explode(f.expr(f"sequence(0L, {bins.salts - 1}L)")))
    grouped = left.groupBy(*keys).cogroup(salted.groupBy(*keys))
    return grouped.applyInArrow(lambda one, other: hits_of(context, one, other), from_arrow_schema(HITS_SCHEMA))


def in_bins(filters: DataFrame, width: int) -> DataFrame:
    """Repeat filters for each bin of time that they cover by their range or by single times."""
    from pyspark.sql import functions as f

    # Single times are 64-bit numbers, little-endian; ids have 48 bits of time. Spark reads hexadecimal digits.
    digits = "hex(substring(singles, 8 * i + 1, 8))"
    big = "concat(" + ", ".join(f"substring({digits}, {place}, 2)" for place in (11, 9, 7, 5, 3, 1)) + ")"
    late = f.expr(
        "case when singles is null then array() else "
        f"transform(sequence(0, length(singles) div 8 - 1), i -> cast(conv({big}, 16, 10) as bigint) div {width}) end"
    )
    inside = f.expr(
        f"case when time_from <= time_to then sequence(time_from div {width}, time_to div {width}) else array() end"
    )
    return filters.withColumn("bin", f.explode(f.array_distinct(f.concat(inside, late))))
