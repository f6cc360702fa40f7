"""Old files go, whole, and only when nobody can be reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from postroad.messages import MessageId
from postroad.tracking import LinkChanges, Names, Verdict
from postroad.trail import DAY_MS, SCHEMAS, Trail, TrailWriter, expire, pin, sweep, sweep_leftovers, write_file
from postroad.trail.coverage import GapReason
from postroad.trail.ledger import CHECKPOINT_EVERY, Ledger
from tests.trail.samples import HOUR, NOON, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path


def days_of_traffic(root: Path, days: int) -> TrailWriter:
    writer = TrailWriter(root, 1, NOON - HOUR)
    writer.write([Names(["publisher"], wide([7]), wide([NOON - HOUR]), ["bob"])], NOON - HOUR + 1)
    for day in range(days):
        at = NOON + day * DAY_MS
        writer.write([passages([(1, at + row, 7, 0) for row in range(50)])], at + HOUR)
        writer.ledger.checkpoint(at)
    return writer


def test_files_older_than_an_age_go_and_traces_say_so(tmp_path: Path) -> None:
    days_of_traffic(tmp_path, 4)
    gone = expire(tmp_path, 1, NOON + 3 * DAY_MS, max_age_ms=DAY_MS + HOUR)
    assert gone.files == 2
    assert gone.retained_since == NOON + DAY_MS + 50
    trail = Trail(tmp_path)
    assert trail.trace(MessageId(7, 1, NOON, 0)).journey.verdict is Verdict.OUTSIDE_RETENTION
    kept = trail.trace(MessageId(7, 1, NOON + 2 * DAY_MS, 0))
    assert kept.journey.verdict is Verdict.MATCHED_NOBODY
    assert kept.publisher == "bob"  # named before what went, and still publishing
    assert expire(tmp_path, 1, NOON + 3 * DAY_MS, max_age_ms=DAY_MS + HOUR).files == 0


def test_broker_deletes_what_others_took_the_place_of(tmp_path: Path) -> None:
    """As a compaction leaves it, or an erasure, at a broker that keeps all."""
    writer = days_of_traffic(tmp_path, 2)
    now = NOON + 2 * DAY_MS
    old = next(entry for entry in pin(tmp_path, 1).all_entries()[0] if entry.table == "passages")
    writer.ledger.replace(now, [old.path])
    for minute in range(2 * CHECKPOINT_EVERY):
        writer.write([], now + minute)
        writer.maintain(now + minute)
        assert (tmp_path / old.path).exists()
    for minute in range(CHECKPOINT_EVERY):
        writer.write([], now + 7 * HOUR + minute)
        writer.maintain(now + 7 * HOUR + minute)
    assert not (tmp_path / old.path).exists()


def two_brokers(root: Path) -> MessageId:
    """Each day broker 1 hands a message to broker 2, which delivers it; returns the first day's."""
    first, second = TrailWriter(root, 1, NOON - HOUR), TrailWriter(root, 2, NOON - HOUR)
    for day in range(4):
        at = NOON + day * DAY_MS
        links = [LinkChanges(wide([number]), wide([at - HOUR]), short([1]), short([1])) for number in (2, 1)]
        first.write([links[0], passages([(1, at, 7, 0)], relayed_to=[[2]])], at + HOUR)
        second.write([links[1], passages([(1, at, 7, 0)], arrived_from=[1], delivered=[[50]])], at + HOUR)
    return MessageId(7, 1, NOON, 0)


@pytest.mark.parametrize(("forgetful", "stops"), [(2, [1]), (1, [1, 2])])
def test_a_broker_that_keeps_less_than_others_makes_no_loss(tmp_path: Path, forgetful: int, stops: list[int]) -> None:
    message = two_brokers(tmp_path)
    assert Trail(tmp_path).trace(message).journey.verdict is Verdict.DELIVERED
    expire(tmp_path, forgetful, NOON + 4 * DAY_MS, max_age_ms=2 * DAY_MS)
    journey = Trail(tmp_path).trace(message).journey
    assert (journey.verdict, journey.lost) == (Verdict.RECORDED_IN_PART, ())
    assert [stop.broker for stop in journey.stops] == stops
    assert [(broker, gap.reason) for broker, gap in journey.gaps] == [(forgetful, GapReason.DELETED)]
    kept = Trail(tmp_path).trace(MessageId(7, 1, NOON + 3 * DAY_MS, 0)).journey
    assert kept.verdict is Verdict.DELIVERED


def test_a_journey_is_told_whole_when_its_brokers_keep_nothing_else_of_the_time(tmp_path: Path) -> None:
    message = two_brokers(tmp_path)
    pairs = {
        name: b"".join(one.to_bytes(4, "big") for one in two)
        for name, two in (("path", (1, 2)), ("delivered", (2, 50)))
    }
    nothing = {"acknowledged": None, "refused": None}
    row = {"origin": 1, "time": NOON, "publisher": 7, "counter": 0, **pairs, **nothing, "complete": 1}
    file = write_file(
        tmp_path, "journeys", 1, NOON // DAY_MS, "compacted", pa.Table.from_pylist([row], schema=SCHEMAS["journeys"])
    )
    Ledger(tmp_path, 1).append(NOON, [file])
    expire(tmp_path, 2, NOON + 4 * DAY_MS, max_age_ms=2 * DAY_MS)
    assert Trail(tmp_path).trace(message).journey.verdict is Verdict.DELIVERED


def test_the_oldest_files_go_until_the_rest_is_small_enough(tmp_path: Path) -> None:
    days_of_traffic(tmp_path, 4)
    entries = pin(tmp_path, 1).all_entries("passages")[0]
    total = sum(entry.size for entry in pin(tmp_path, 1).all_entries()[0])
    gone = expire(tmp_path, 1, NOON, max_bytes=total - 1)
    assert (gone.files, gone.bytes) == (1, min(entries, key=lambda entry: entry.day).size)
    assert expire(tmp_path, 1, NOON, max_bytes=total - 1).files == 0


def test_files_are_deleted_only_after_the_grace_period(tmp_path: Path) -> None:
    writer = days_of_traffic(tmp_path, 3)
    now = NOON + 3 * DAY_MS
    reader = Trail(tmp_path)
    reader.pinned(1)
    expire(tmp_path, 1, now, max_age_ms=2 * DAY_MS)
    sweep(tmp_path, 1, now + 9, grace_ms=10)
    assert reader.findings(1, MessageId(7, 1, NOON, 0)).accepted is not None
    assert len(list(tmp_path.glob("passages/**/*.parquet"))) == 3
    writer.ledger.checkpoint(now + 9)
    sweep(tmp_path, 1, now + 10, grace_ms=10)
    assert len(list(tmp_path.glob("passages/**/*.parquet"))) == 2
    assert pin(tmp_path, 1).warnings == []


def test_manifests_that_were_summed_up_go_and_what_is_left_says_the_same(tmp_path: Path) -> None:
    writer = days_of_traffic(tmp_path, 12)
    before = {entry.path: entry for entry in pin(tmp_path, 1).all_entries()[0]}
    manifests = len(list(writer.ledger.folder.rglob("*.*")))
    assert sweep(tmp_path, 1, NOON + 12 * DAY_MS, grace_ms=DAY_MS) > 0
    left = list(writer.ledger.folder.rglob("*.*"))
    assert len(left) < manifests
    assert {entry.path: entry for entry in pin(tmp_path, 1).all_entries()[0]} == before
    # Should the latest checkpoint be damaged, the one before and the changes since make up for it.
    max(path for path in left if path.name.endswith(".checkpoint.json")).write_bytes(b"")
    assert {entry.path: entry for entry in pin(tmp_path, 1).all_entries()[0]} == before
    assert pin(tmp_path, 1).holes == ()


def test_leftovers_of_runs_that_crashed_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    writer = days_of_traffic(tmp_path, 1)
    (live,) = tmp_path.glob("passages/**/*.parquet")
    orphan = live.with_name("000000000001-000099.parquet")
    torn = live.with_name("000000000001-000098.parquet.77-5.tmp")
    compaction = live.with_name("compact-1.parquet")
    for path in (orphan, torn, compaction):
        path.write_bytes(b"?")
    assert sweep_leftovers(tmp_path, 1, writer.run.number) == 0
    assert sweep_leftovers(tmp_path, 1, TrailWriter(tmp_path, 1, NOON + DAY_MS).run.number) == 2
    assert live.exists()
    assert compaction.exists()


def test_nothing_is_taken_for_a_leftover_where_the_manifest_cannot_be_read_or_nobody_crashed(tmp_path: Path) -> None:
    writer = days_of_traffic(tmp_path, 2)
    files = sorted(tmp_path.glob("passages/**/*.parquet"))
    (damaged, *_) = sorted((writer.ledger.folder / "parts").glob("*.parquet"), reverse=True)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    later = TrailWriter(tmp_path, 1, NOON + 2 * DAY_MS)
    assert sweep_leftovers(tmp_path, 1, later.run.number) == 0
    damaged.write_bytes(whole)
    assert sorted(tmp_path.glob("passages/**/*.parquet")) == files
    files[0].with_name("000000000001-000099.parquet").write_bytes(b"?")
    writer.close(NOON + 2 * DAY_MS)
    assert sweep_leftovers(tmp_path, 1, later.run.number) == 0
