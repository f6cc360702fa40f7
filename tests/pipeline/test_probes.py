"""Filters asked in bulk: the answers of `postroad trace`, id by id, doubts included; and the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from postroad.lab.trails import read_truth, write_trail
from postroad.messages import MessageId
from postroad.pipeline.tables import ID
from postroad.trail import Trail
from tests.pipeline.filter_trails import SCALE, bulk, filters_in
from tests.pipeline.trails import some_ids

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=["sealed each", "bloom each", "sealed sets"])
def trail(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorder, relay_keys = request.param.split()
    folder: Path = tmp_path_factory.mktemp(f"{recorder}-{relay_keys}") / "trail"
    write_trail(folder, replace(SCALE, recorder=recorder, relay_keys=relay_keys))
    return folder


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
        mine = [(one["broker"], one["subscription"], one["doubt"]) for one in row["delivered"]]
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
        assert {one["broker"] << 32 | one["subscription"] for one in row["delivered"]} >= set(truth[id]["deliveries"])
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
