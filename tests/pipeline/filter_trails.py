"""Generated trails of filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.lab.trails import Faults, Scale
from postroad.pipeline.context import read_context
from postroad.pipeline.evidence import HITS
from postroad.pipeline.judgement import judged
from postroad.pipeline.probes import FILTER_COLUMNS, hits_of
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.trail import pin
from tests.pipeline.trails import EVIDENCE, evidence_of

if TYPE_CHECKING:
    from pathlib import Path


SCALE = Scale(
    brokers=7,
    messages=900,
    seed=21,
    publishers=10,
    subscriptions=4,
    interests=80,
    seconds=60,
    seal_seconds=20,
    faults=Faults(lost=0.05, shed=0.05, acknowledging=0.5, gaps=1),
)


def filters_in(trail: Path) -> pa.Table:
    tables = []
    for broker in range(1, SCALE.brokers + 1):
        for entry in pin(trail, broker).all_entries("filters")[0]:
            rows = pq.ParquetFile(trail / entry.path).read()
            tables.append(rows.append_column("broker", pa.array(np.full(rows.num_rows, broker))))
    return pa.concat_tables(tables).select(list(FILTER_COLUMNS))


def bulk(trail: Path, ids: list[tuple[int, ...]], filters: pa.Table) -> dict[tuple[int, ...], dict[str, Any]]:
    context = read_context(open_sources(trail))
    rows = evidence_of(trail, ids).to_pylist()
    for origin in {one[0] for one in ids}:
        mine = [one for one in ids if one[0] == origin]
        columns = [pa.array([one[place] for one in mine], EVIDENCE.field(ID[place]).type) for place in range(4)]
        table = pa.Table.from_arrays(columns, names=list(ID))
        here = filters.filter(pa.compute.equal(filters.column("origin"), origin))
        rows += [{**row, "source": HITS} for row in hits_of(context, table, here).to_pylist()]
    rows.sort(key=lambda row: (*(row[name] for name in ID), row["source"], row["broker"] or 0))
    found = judged(context, pa.Table.from_pylist(rows, schema=EVIDENCE)).to_pylist()
    return {tuple(row[name] for name in ID): row for row in found}
