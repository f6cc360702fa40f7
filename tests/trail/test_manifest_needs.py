"""Readers who see a compaction in part, because each broker has a manifest of its own: they tell no false loss."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.messages import MessageId
from postroad.pipeline import run_job
from postroad.pipeline.commit_note import Note, commit
from postroad.pipeline.jobs import trace
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.tracking import Verdict
from postroad.trail import DAY_MS, SCHEMAS, Ledger, Trail, TrailWriter, pin
from postroad.trail.files import write_file
from postroad.trail.manifest_needs import HALF_COMPACTED, WAIT_MS
from postroad.trail.shipper import Shipper
from tests.trail.samples import HOUR, NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.tracking import Journey
    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

ONE, OTHER = MessageId(7, 1, NOON, 0), MessageId(8, 2, NOON, 0)
AT = NOON + 2 * HOUR


def crossed(root: Path) -> None:
    """Two brokers, each with a message that the other one delivers."""
    for broker, there in ((1, 2), (2, 1)):
        rows = passages(
            [(broker, NOON, 6 + broker, 0), (there, NOON, 6 + there, 0)],
            arrived_from=[0, there],
            relayed_to=[[there], []],
            delivered=[[], [5]],
        )
        TrailWriter(root, broker, NOON - HOUR).write([rows], NOON + HOUR)


def pack(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def journey_file(root: Path, message: MessageId) -> FileEntry:
    broker, there = message.broker, 3 - message.broker
    row: dict[str, Any] = {
        "origin": broker,
        "time": message.time,
        "publisher": message.publisher,
        "counter": 0,
        "complete": 1,
    }
    row |= {"path": pack(broker, there), "delivered": pack(there, 5), "acknowledged": None, "refused": None}
    rows = pa.Table.from_pylist([row], schema=SCHEMAS["journeys"])
    return write_file(root, "journeys", broker, NOON // DAY_MS, f"compacted-{broker}", rows)


def compacted(root: Path) -> None:
    """Both messages as journeys, in the place of all passages, as a compaction commits it."""
    removed = {broker: pin(root, broker).all_entries("passages")[0] for broker in (1, 2)}
    added = {one.broker: [journey_file(root, one)] for one in (ONE, OTHER)}
    commit(root, "compacted", Note(AT, removed, added))


def told(root: Location, message: MessageId) -> Journey:
    return Trail(root).trace(message).journey


def by_pipeline(root: Location, folder: Path) -> dict[str, tuple[str, float, set[str]]]:
    (folder / "asked.txt").write_text(f"{ONE}\n{OTHER}\n")
    run_job("trace", trace.run, TraceOptions(root, folder / "traced", ids=folder / "asked.txt"))
    rows = pq.read_table(folder / "traced" / "trace").to_pylist()
    return {row["id"]: (row["verdict"], row["certainty"], {gap["reason"] for gap in row["gaps"]}) for row in rows}


@pytest.mark.parametrize("order", sorted({*permutations([1, 1, 2, 2])}))
def test_no_loss_is_told_while_brokers_ship_a_compaction_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    root, place = tmp_path / "trail", tmp_path / "place"
    crossed(root)
    shippers = {broker: Shipper(root, broker, place) for broker in (1, 2)}
    for shipper in shippers.values():
        shipper.ship(AT)
    compacted(root)
    for broker in order:
        shippers[broker].ship(AT + 1_000)
        for message in (ONE, OTHER):
            journey = told(place, message)
            assert (journey.verdict, journey.certainty) == (Verdict.DELIVERED, 1.0)
    # Each waits for the journeys of the other one, and goes on then.
    for shipper in shippers.values():
        shipper.ship(AT + 2_000)
    assert [shipper.behind() for shipper in shippers.values()] == [0, 0]
    for message in (ONE, OTHER):
        assert (told(place, message).verdict, told(place, message).certainty) == (Verdict.DELIVERED, 1.0)
    assert not pin(place, 1).all_entries("passages")[0]


def test_broker_that_ships_no_more_holds_up_nobody_and_what_is_missing_is_stated(tmp_path: Path) -> None:
    root, place = tmp_path / "trail", tmp_path / "place"
    crossed(root)
    for broker in (1, 2):
        Shipper(root, broker, place).ship(AT)
    compacted(root)
    Shipper(root, 2, place).ship(AT + WAIT_MS)
    assert Shipper(root, 2, place).behind() == 0
    journey = told(place, ONE)
    assert (journey.verdict, journey.certainty, journey.lost) == (Verdict.RECORDED_IN_PART, 0.0, ())
    assert {(broker, gap.reason) for broker, gap in journey.gaps} == {(2, HALF_COMPACTED)}
    # What stands for the record of the other message is there: its journey tells of both brokers.
    assert (told(place, OTHER).verdict, told(place, OTHER).certainty) == (Verdict.DELIVERED, 1.0)
    found = by_pipeline(place, tmp_path)
    assert found[str(ONE)] == ("recorded in part", 0.0, {HALF_COMPACTED})
    # The times stay known when a checkpoint sums up the change.
    Ledger(root, 2).checkpoint(AT)
    Shipper(root, 2, place).ship(AT + WAIT_MS)
    assert pin(place, 2).checkpoint is not None
    assert told(place, ONE).verdict is Verdict.RECORDED_IN_PART
    assert [(need.broker, need.since, need.until) for need in pin(place, 2).needs] == [(1, NOON, NOON)]
    Shipper(root, 1, place).ship(AT + WAIT_MS)
    assert {row[:2] for row in by_pipeline(place, tmp_path).values()} == {("delivered", 1.0)}


@pytest.mark.parametrize("first", [1, 2])
def test_reader_that_pins_one_manifest_before_a_compaction_and_one_after_it_tells_no_loss(
    tmp_path: Path, first: int
) -> None:
    crossed(tmp_path)
    trail = Trail(tmp_path)
    trail.pinned(first)
    compacted(tmp_path)
    for message in (ONE, OTHER):
        journey = trail.trace(message).journey
        assert (journey.verdict, journey.certainty) == (Verdict.DELIVERED, 1.0)
