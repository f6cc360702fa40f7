"""Copies of trails that lag behind: they state what may be missing, and deny nothing that they cannot know."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from postroad.messages import MessageId
from postroad.pipeline import run_job
from postroad.pipeline.jobs import trace
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.tracking import Verdict
from postroad.trail import Trail, TrailWriter, lock_path
from postroad.trail.coverage import GapReason
from postroad.trail.locations import location
from postroad.trail.shipper import Shipper
from tests.trail.samples import HOUR, NOON, passages
from tests.trail.shipments import LATER, message, verdict, written

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail.locations import Location
    from tests.trail.stores import Store

# It enters after all that is shipped at first.
LATE = MessageId(9, 1, NOON - HOUR // 2, 0)
NEVER = MessageId(8, 1, NOON, 0)


@pytest.fixture(params=["directory", "store"])
def place(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Location:
    return (
        store.place(f"copy-{zlib.crc32(request.node.name.encode()):x}")
        if request.param == "store"
        else location(f"file:{tmp_path}/copy")
    )


def by_pipeline(root: Location, folder: Path, *ids: MessageId) -> list[tuple[str, float, set[str]]]:
    """Verdict, certainty and reasons of gaps for each id, as `pipeline trace` tells them."""
    asked = folder / "asked.txt"
    asked.write_text("".join(f"{one}\n" for one in ids))
    run_job("trace", trace.run, TraceOptions(root, folder / "traced", ids=asked))
    rows = {row["id"]: row for row in pq.read_table(folder / "traced" / "trace").to_pylist()}
    found = [rows[str(one)] for one in ids]
    return [(row["verdict"], row["certainty"], {gap["reason"] for gap in row["gaps"]}) for row in found]


def test_copy_denies_no_message_that_entered_long_after_its_time_and_is_not_shipped(
    place: Location, tmp_path: Path
) -> None:
    root = tmp_path / "trail"
    writer = written(root)
    shipper = Shipper(root, 1, place)
    shipper.ship(LATER)
    # Its receipt waits until this is in the trail, and not until it is in the copy.
    writer.write([passages([(1, LATE.time, 9, 0)], delivered=[[3]])], LATER)
    assert Trail(root).trace(LATE).journey.verdict is Verdict.DELIVERED
    journey = Trail(place).trace(LATE).journey
    assert (journey.verdict, journey.certainty) == (Verdict.NOT_RECORDED, 0.0)
    (gap,) = [gap for _, gap in journey.gaps]
    assert (gap.since, gap.reason) == (NOON + 150_000, GapReason.NOT_SHIPPED)
    assert gap.hides.startswith("whether the message entered here")
    told = by_pipeline(place, tmp_path, LATE, message(0))
    assert told == [("not recorded", 0.0, {GapReason.NOT_SHIPPED.value}), ("delivered", 1.0, set())]
    assert any(GapReason.NOT_SHIPPED in reason for reason in Trail(place).may_hide())
    shipper.ship(LATER)
    assert verdict(place, 0) == (Verdict.DELIVERED, 1.0)
    assert Trail(place).trace(LATE).journey.verdict is Verdict.DELIVERED
    # The trail itself denies what never was; the copy cannot know.
    never = Trail(root).trace(NEVER).journey
    assert (never.verdict, never.certainty) == (Verdict.NEVER_ACCEPTED, 1.0)
    assert by_pipeline(root, tmp_path, NEVER) == [("never accepted", 1.0, set())]
    assert Trail(place).trace(NEVER).journey.verdict is Verdict.NOT_RECORDED


def test_copy_that_ends_with_a_stop_denies_nothing_of_a_run_that_is_not_shipped(
    place: Location, tmp_path: Path
) -> None:
    """Broker 2 stops, starts again, and takes what 1 has relayed to it a second before; its copy lags."""
    root = tmp_path / "trail"
    ends, moment = NOON + HOUR, MessageId(7, 1, NOON, 0)
    sender = TrailWriter(root, 1, NOON - HOUR)
    sender.write([passages([(1, NOON, 7, 0)], relayed_to=[[2]])], ends)
    receiver = TrailWriter(root, 2, NOON - HOUR)
    receiver.close(NOON + 500)
    for broker in (1, 2):
        Shipper(root, broker, place).ship(ends)
    receiver = TrailWriter(root, 2, NOON + 1_000)
    receiver.write([passages([(1, NOON, 7, 0)], arrived_from=[1], delivered=[[5]])], ends)
    assert Trail(root).trace(moment).journey.verdict is Verdict.DELIVERED
    journey = Trail(place).trace(moment).journey
    assert (journey.verdict, journey.lost) == (Verdict.RECORDED_IN_PART, ())
    assert {(broker, gap.reason) for broker, gap in journey.gaps} == {(2, GapReason.NOT_SHIPPED)}
    told = by_pipeline(place, tmp_path, moment)
    assert told == [("recorded in part", 0.0, {GapReason.NOT_SHIPPED.value})]
    Shipper(root, 2, place).ship(ends)
    assert Trail(place).trace(moment).journey.verdict is Verdict.DELIVERED


def test_copy_does_not_say_that_nobody_wanted_what_a_second_process_may_have_delivered(
    place: Location, tmp_path: Path
) -> None:
    root = tmp_path / "trail"
    moment = MessageId(7, 1, NOON, 0)
    TrailWriter(root, 1, NOON - HOUR).write([passages([(1, NOON, 7, 0)])], NOON + 1_000)
    Shipper(root, 1, place).ship(LATER)
    # The process is killed; its publisher sends the message again to the next one, where somebody wants it.
    writer = TrailWriter(root, 1, NOON + 2_000)
    writer.write([passages([(1, NOON, 7, 0)], delivered=[[5]])], LATER)
    assert [number for _, (number, *_) in Trail(root).trace(moment).journey.delivered] == [5]
    journey = Trail(place).trace(moment).journey
    assert (journey.verdict, journey.delivered) == (Verdict.RECORDED_IN_PART, [])
    assert [gap.reason for _, gap in journey.gaps] == [GapReason.NOT_SHIPPED]


def test_copy_that_a_broker_writes_to_is_a_trail_again(tmp_path: Path) -> None:
    root, place = tmp_path / "trail", tmp_path / "copy"
    written(root)
    Shipper(root, 1, place).ship(LATER)
    assert Trail(place).trace(NEVER).journey.verdict is Verdict.NOT_RECORDED
    moved = place.rename(tmp_path / "elsewhere")
    assert Trail(moved).trace(NEVER).journey.verdict is Verdict.NOT_RECORDED
    lock_path(moved, 1).parent.mkdir()
    lock_path(moved, 1).touch()
    assert Trail(moved).trace(NEVER).journey.verdict is Verdict.NEVER_ACCEPTED


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_late_message_is_not_denied_where_the_manifest_that_named_it_is_lost(tmp_path: Path, harm: str) -> None:
    writer = written(tmp_path)
    writer.write([passages([(1, LATE.time, 9, 0)], delivered=[[3]])], LATER)
    manifest = sorted((tmp_path / "manifests" / "broker=1").glob("0*.json"))[-1]
    writer.write([passages([(1, LATER, 7, 0)])], LATER + HOUR)
    assert Trail(tmp_path).trace(LATE).journey.verdict is Verdict.DELIVERED
    if harm == "missing":
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:-9])
    journey = Trail(tmp_path).trace(LATE).journey
    assert (journey.verdict, journey.certainty) == (Verdict.NOT_RECORDED, 0.0)
    assert {gap.reason for _, gap in journey.gaps} == {"a manifest is missing or damaged"}
    # What entered in time is denied as before.
    after = MessageId(8, 1, LATER + HOUR + 20_000, 0)
    writer.write([passages([(1, LATER + HOUR, 7, 0)])], LATER + 2 * HOUR)
    assert Trail(tmp_path).trace(after).journey.verdict is Verdict.NEVER_ACCEPTED
