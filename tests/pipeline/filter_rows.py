"""The rows of filters in a trail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.sources import open_sources
from postroad.trail import SCHEMAS

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(trail: Path, table: str, broker: int) -> pa.Table:
    entries = open_sources(trail).all_entries()[broker]
    tables = [pq.ParquetFile(trail / entry.path).read() for entry in entries if entry.table == table]
    return pa.concat_tables([SCHEMAS[table].empty_table(), *tables])
