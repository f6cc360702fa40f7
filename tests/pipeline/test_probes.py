"""Filters asked in bulk: the answers of `postroad trace`, id by id, doubts included; and the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import Faults, Scale, read_truth, write_trail
from postroad.messages import MessageId
from postroad.pipeline.context import read_context
from postroad.pipeline.evidence import HITS
from postroad.pipeline.judgement import judged
from postroad.pipeline.probes import FILTER_COLUMNS, hits_of
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.trail import Trail, pin
from tests.pipeline.trails import EVIDENCE, evidence_of, some_ids

if TYPE_CHECKING:
    from pathlib import Path

SCALE = Scale(
    brokers=7,
    messages=900,
    seed=21,
    publishers=10,
    subscribers=4,
    interests=80,
    seconds=60,
    seal_seconds=20,
    faults=Faults(lost=0.05, shed=0.05, acknowledging=0.5, gaps=1),
)


@pytest.fixture(scope="module", params=["sealed keys", "bloom keys", "sealed sets"])
def trail(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorder, forwarding = request.param.split()
    folder: Path = tmp_path_factory.mktemp(f"{recorder}-{forwarding}") / "trail"
    write_trail(folder, replace(SCALE, recorder=recorder, forwarding=forwarding))
    return folder


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


def test_bulk_agrees_with_postroad_trace(trail: Path) -> None:
    ids = some_ids(trail, 250, seed=3)
    found = bulk(trail, ids, filters_in(trail))
    reader = Trail(trail)
    verdicts = set()
    for id in ids:
        origin, time, publisher, counter = id
        journey = reader.trace(MessageId(publisher, origin, time, counter)).journey
        row = found[id]
        verdicts.add(row["verdict"])
        assert row["verdict"] == journey.verdict.value
        assert row["certainty"] == pytest.approx(journey.certainty, rel=1e-12)
        assert row["brokers"] == sorted(stop.broker for stop in journey.stops)
        delivered = sorted((broker, hit.number, hit.doubt) for broker, hit in journey.delivered)
        mine = [(one["broker"], one["subscriber"], one["doubt"]) for one in row["subscribers"]]
        assert [one[:2] for one in mine] == [one[:2] for one in delivered]
        assert [one[2] for one in mine] == pytest.approx([one[2] for one in delivered], rel=1e-9)
        assert [(hop["broker"], hop["neighbour"]) for hop in row["lost"]] == [hop[:2] for hop in journey.lost]
        assert [(hop["broker"], hop["neighbour"]) for hop in row["pruned"]] == [hop[:2] for hop in journey.pruned]
    assert verdicts >= {"delivered", "never accepted", "lost after hop", "shed at the queue", "acknowledged"}


def test_no_hop_and_no_delivery_is_missed(trail: Path) -> None:
    truth = {tuple(row[name] for name in ID): row for row in read_truth(trail).to_pylist()}
    for id, row in bulk(trail, list(truth), filters_in(trail)).items():
        if row["gaps"]:
            continue
        assert set(row["brokers"]) >= {id[0], *(hop & 0xFFFFFFFF for hop in truth[id]["path"])}
        assert {one["broker"] << 32 | one["subscriber"] for one in row["subscribers"]} >= set(truth[id]["deliveries"])
        assert row["certainty"] > 0.99


def test_damaged_filters_make_a_no_uncertain(trail: Path) -> None:
    ids = some_ids(trail, 40, seed=8)
    filters = filters_in(trail)
    broken = filters.set_column(
        filters.column_names.index("crc"), "crc", pa.array(np.zeros(filters.num_rows, np.int64))
    )
    found = bulk(trail, ids, broken)
    assert {row["verdict"] for row in found.values()} == {"not recorded"}
    assert all(any("filters are damaged" in gap["reason"] for gap in row["gaps"]) for row in found.values())
