"""Filters asked in bulk: the answers of `postroad trace`, id by id, doubts included; and the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pytest

from postroad.lab.trails import read_truth, write_trail
from postroad.messages import Batch, Draft, MessageId
from postroad.pipeline.tables import ID
from postroad.tracking import BloomRecorder, HistorySettings, SealedRecorder
from postroad.trail import Trail, TrailWriter
from tests.pipeline.filter_trails import SCALE, bulk, filters_in
from tests.pipeline.trails import some_ids
from tests.trail.samples import HOUR, NOON, passages

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


@pytest.mark.parametrize("relay_keys", ["each", "sets"])
@pytest.mark.parametrize("kind", [SealedRecorder, BloomRecorder])
def test_filters_are_asked_about_those_who_came_long_after_the_time_of_the_id(
    tmp_path: Path, kind: type[SealedRecorder] | type[BloomRecorder], relay_keys: Literal["each", "sets"]
) -> None:
    late = NOON + HOUR
    writer = TrailWriter(tmp_path, 1, NOON - HOUR)
    recorder = kind(1, HistorySettings(relay_keys=relay_keys), NOON - HOUR)
    batch = Batch.build([Draft("a", {}, (), b"", MessageId(7, 1, NOON, 0))])
    every = np.arange(1)
    recorder.accepted(batch, NOON)
    write_all(recorder, writer, NOON + 60_000)
    # A link and a subscription that were not there when the message entered.
    recorder.linked(2, 1, late - 5)
    recorder.subscribed(9, "ann", "a", "", late - 5)
    recorder.relayed(batch, every, 2, late)
    recorder.delivered(batch, every, 9, late)
    write_all(recorder, writer, late + 60_000)
    writer.close(late + 60_000)
    far = TrailWriter(tmp_path, 2, NOON - HOUR)
    far.write([passages([(1, NOON, 7, 0)], arrived_from=[1])], late)
    far.close(late + 60_000)
    journey = Trail(tmp_path).trace(MessageId(7, 1, NOON, 0)).journey
    assert [stop.broker for stop in journey.stops] == [1, 2]
    assert [(broker, hit.number) for broker, hit in journey.delivered] == [(1, 9)]
    id = (1, NOON, 7, 0)
    row = bulk(tmp_path, [id], filters_in(tmp_path))[id]
    assert (row["verdict"], row["brokers"]) == (journey.verdict.value, [1, 2])
    assert row["certainty"] == pytest.approx(journey.certainty, rel=1e-12)


def write_all(recorder: SealedRecorder | BloomRecorder, writer: TrailWriter, now: int) -> None:
    for job in recorder.due(now, force=True):
        writer.write(job.make(), job.through)
        recorder.release(job.number)
