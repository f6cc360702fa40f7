"""Following a growing trail: everything counts once, whatever happens in between; and alerts say what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import growing_trail, read_truth, write_trail
from postroad.pipeline import PipelineError, alerts, run_job
from postroad.pipeline.alerts import Totals, alerts_of, news, read_totals, refresh, store_increments
from postroad.pipeline.counts import BIN_MS, INCREMENTS
from postroad.pipeline.jobs import compact, follow
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.follow import FollowOptions
from postroad.pipeline.stream import TrailStream, added_between
from postroad.tracking import Shed
from postroad.trail import Ledger, TrailWriter, pin
from postroad.trail.ledger import CHECKPOINT_EVERY
from postroad.trail.manifest import change_name
from postroad.trail.retention import sweep_manifests
from tests.pipeline.growing_trails import LATER, SCALE, check
from tests.pipeline.trails import passages

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.trail import Pinned

MINUTE = 1_790_000_040_000


def followed(spark: SparkSession, trail: Path, out: Path) -> None:
    run_job("follow", follow.run, FollowOptions(trail, out, once=True, seconds=0.1), spark=spark)


def test_growing_trail_is_counted_once_across_stops_and_compaction(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    for part, _ in growing_trail(trail, SCALE):
        if part == 2:
            followed(spark, trail, out)
        elif part == 4:
            # A batch that stored its counts and died before Spark knew: it is done again.
            real = alerts.store_increments

            def dies(*given: Any, real: Any = real) -> None:
                real(*given)
                raise RuntimeError("killed")

            with monkeypatch.context() as patched:
                patched.setattr(follow, "store_increments", dies)
                with pytest.raises(PipelineError, match="Spark gave up"):
                    followed(spark, trail, out)
            options = CompactOptions(trail, tmp_path / "compacted", now=SCALE.end, sample=20)
            run_job("compact", compact.run, options, spark=spark)
            followed(spark, trail, out)
    followed(spark, trail, out)
    check(trail, out)
    followed(spark, trail, out)
    check(trail, out)
    found = refresh(trail, out, LATER)
    losses = [alert for alert in found if alert["alert"] == "loss after hop"]
    lost = [row for row in read_truth(trail).to_pylist() if row["lost"]]
    assert sum(alert["messages"] for alert in losses) == len(lost)
    assert {alert["neighbour"] for alert in losses} == {row["lost"] for row in lost}
    assert pq.read_table(out / "alerts").num_rows == len(found)


def test_following_once_ends_while_brokers_go_on_writing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    writer = TrailWriter(trail, 1, MINUTE)
    real, commits = alerts.store_increments, 0

    def goes_on(*given: Any) -> None:
        nonlocal commits
        real(*given)
        # With each batch that is counted comes the next commit, so that there is always something new.
        commits += 1
        assert commits < 50, "it never ends"
        writer.write([passages((1, MINUTE + commits, 0, [], [9]))], MINUTE + commits)

    writer.write([passages((1, MINUTE, 0, [], [9]))], MINUTE + 1)
    monkeypatch.setattr(follow, "store_increments", goes_on)
    followed(spark, trail, out)
    assert 0 < commits < 3
    assert sum(read_totals(out).of("accepted").values()) == 1
    monkeypatch.setattr(follow, "store_increments", real)
    followed(spark, trail, out)
    assert sum(read_totals(out).of("accepted").values()) == 1 + commits


def test_filters_are_reconciled_by_origin(spark: SparkSession, tmp_path: Path) -> None:
    write_trail(tmp_path / "trail", replace(SCALE, recorder="sealed", messages=300))
    followed(spark, tmp_path / "trail", tmp_path / "out")
    lost = [row for row in read_truth(tmp_path / "trail").to_pylist() if row["lost"]]
    found = refresh(tmp_path / "trail", tmp_path / "out", LATER)
    assert {alert["alert"] for alert in found} == {"loss after hop"}
    assert {alert["broker"] for alert in found} == {row["origin"] for row in lost}
    assert sum(alert["messages"] for alert in found) == len(lost)


def test_broker_that_writes_no_more_is_told(tmp_path: Path) -> None:
    steps = growing_trail(tmp_path / "trail", SCALE)
    for part, _ in steps:
        if part == 2:
            break
    now = SCALE.start + 80_000 + alerts.QUIET_MS
    assert refresh(tmp_path / "trail", tmp_path / "out", now) == []
    found = refresh(tmp_path / "trail", tmp_path / "out", now + 1_000)
    assert [alert["broker"] for alert in found] == [1, 2, 3, 4, 5]
    assert {alert["alert"] for alert in found} == {"broker gone quiet"}
    steps.close()  # type: ignore[attr-defined]


def test_counts_are_summed_up_and_nothing_is_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MAX_BATCHES", 3)
    rows = pa.Table.from_pylist(
        [{"about": "relayed", "number": 1, "other": 2, "bin": 7, "messages": 5}], schema=INCREMENTS
    )
    for batch in range(10):
        store_increments(tmp_path, batch, rows)
        store_increments(tmp_path, batch, rows)
        assert read_totals(tmp_path).of("relayed") == {(1, 2, 7): 5 * (batch + 1)}
    assert len(list((tmp_path / "increments").iterdir())) <= 5


def test_counts_of_another_format_are_refused(tmp_path: Path) -> None:
    rows = [{"about": "handed", "number": 1, "other": 2, "bin": 7, "messages": 5}]
    store_increments(tmp_path, 0, pa.Table.from_pylist(rows, schema=INCREMENTS))
    with pytest.raises(PipelineError, match=r"another format \('handed'\); begin again with another --out"):
        read_totals(tmp_path)


def test_minutes_without_losses_are_let_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MAX_BATCHES", 1)
    old, recent = 1_000, 1_000 + alerts.MINUTES_KEPT_MS // BIN_MS
    counts = [
        ("relayed", 1, 2, old, 5), ("arrived", 1, 2, old, 5), ("accepted", 1, 0, old, 5), ("begun", 1, 77, 0, 1),
        ("relayed", 1, 3, old, 5), ("arrived", 1, 3, old, 3), ("returned", 1, 3, old, 1),
        ("relayed", 1, 2, recent, 5), ("arrived", 1, 2, recent, 5), ("relayed in all", 1, old, old, 9),
    ]  # fmt: skip
    rows = pa.Table.from_pylist([dict(zip(INCREMENTS.names, row, strict=True)) for row in counts], schema=INCREMENTS)
    none = INCREMENTS.empty_table()
    for batch, here in enumerate((rows, none, none)):
        store_increments(tmp_path, batch, here, now=(recent + 1) * BIN_MS)
    assert read_totals(tmp_path).counts == {row[:4]: row[4] for row in counts if row[1:4] != (1, 2, old)
                                            and row[0] != "accepted"}  # fmt: skip


def counted(trail: Path) -> Totals:
    """What following a trail from its beginning counts, without Spark."""
    stream = TrailStream({"path": str(trail)})
    counts: Counter[tuple[str, int, int, int]] = Counter()
    for part in stream.partitions(stream.initialOffset(), stream.latestOffset()):
        for batch in stream.read(part):
            for row in batch.to_pylist():
                counts[row["about"], row["number"], row["other"], row["bin"]] += row["messages"]
    return Totals(counts)


def pins_of(trail: Path) -> dict[int, Pinned]:
    return {broker: pin(trail, broker) for broker in (1, 2)}


def returned(time: int, reason: str, link: int = 2) -> Shed:
    some = [np.array([number], np.int64) for number in (1, time, 7, 0, link, time + 9)]
    origin, when, publisher, nobody, whom, at = some
    return Shed(origin, when, publisher, np.zeros(1, np.int32), nobody, whom, [reason], at)


def test_journal_that_is_with_redelivery_marks_counts_only_what_is_new(tmp_path: Path) -> None:
    known = [(1, MINUTE + at, 0, [2], [8]) for at in range(10)]
    first, second = (TrailWriter(tmp_path, broker, MINUTE - 60_000) for broker in (1, 2))
    first.write([passages(*known), returned(MINUTE + 10, "returned")], MINUTE + 30_000)
    # Its commit is there, its journal too: both are of the crashed run. Three messages are in the journal alone, and
    # of one more the last hop.
    fresh = [(1, MINUTE + at, 0, [2], [8]) for at in range(20, 23)]
    again = TrailWriter.resume(tmp_path, 1, pin(tmp_path, 1).runs[-1])
    again.write([passages((1, MINUTE, 0, [2, 3], [8]), *known[1:], *fresh), returned(MINUTE + 10, "returned")],
                MINUTE + 31_000)  # fmt: skip
    TrailWriter(tmp_path, 1, MINUTE + 40_000).close(MINUTE + 400_000)
    second.write([passages(*((1, row[1], 1, [], [9]) for row in known + fresh))], MINUTE + 60_000)
    second.close(MINUTE + 400_000)
    totals = counted(tmp_path)
    spot = MINUTE // BIN_MS
    assert totals.of("accepted") == {(1, 0, spot): 13}
    assert totals.of("relayed") == {(1, 2, spot): 13, (1, 3, spot): 1}
    assert totals.of("arrived") == {(1, 2, spot): 13}
    assert totals.of("delivered") == {(1, 0, spot): 13, (2, 0, spot): 13}
    assert totals.of("returned") == {(1, 2, spot): 1}


def test_what_did_not_fit_a_link_was_not_handed_to_it(tmp_path: Path) -> None:
    first, second = (TrailWriter(tmp_path, broker, MINUTE - 60_000) for broker in (1, 2))
    first.write(
        [passages(*((1, MINUTE + at, 0, [2], []) for at in range(5))),
         *(returned(MINUTE + at, "link full") for at in range(5, 8)), returned(MINUTE, "returned")],
        MINUTE + 60_000,
    )  # fmt: skip
    second.write([passages(*((1, MINUTE + at, 1, [], [9]) for at in range(3)))], MINUTE + 60_000)
    for writer in (first, second):
        writer.close(MINUTE + 400_000)
    (alert,) = alerts_of(counted(tmp_path), pins_of(tmp_path), MINUTE + 400_000)
    assert (alert["alert"], alert["neighbour"], alert["messages"]) == ("loss after hop", 2, 1)
    assert "1 of 5 messages from 1 never came to 2, in the minute from 2026-09-21 14:14:00 UTC" in alert["text"]


def test_alerts_are_said_once_and_again_when_they_get_worse(tmp_path: Path) -> None:
    for broker in (1, 2):
        TrailWriter(tmp_path, broker, MINUTE)
    pins, now = pins_of(tmp_path), MINUTE + 300_000
    told: dict[Any, Any] = {}
    quiet = [news(alerts_of(Totals({}), pins, now + later), told) for later in (0, 10_000, 20_000)]
    assert [len(texts) for texts in quiet] == [2, 0, 0]
    assert quiet[0][0] == "broker gone quiet: broker 1 has written nothing since 2026-09-21 14:14:00 UTC"
    loss = {"alert": "loss after hop", "broker": 1, "neighbour": 2, "since": MINUTE, "messages": 1, "text": "one"}
    later = loss | {"since": MINUTE + BIN_MS}
    assert news([loss, later], told) == ["loss after hop: one"] * 2
    assert news([loss, later | {"messages": 3, "text": "three"}], told) == ["loss after hop: three"]


def test_trail_whose_first_manifests_are_deleted_is_followed_from_a_checkpoint(tmp_path: Path) -> None:
    writers = [TrailWriter(tmp_path, broker, MINUTE) for broker in (1, 2)]
    commits = 3 * CHECKPOINT_EVERY
    for minute in range(1, commits + 1):
        at = MINUTE + minute * BIN_MS
        # Of the messages of each minute one is lost, and what came is written a moment later.
        sent: list[Any] = [(1, at - 50_000 + number, 0, [2], []) for number in range(3)]
        writers[0].write([passages(*sent)], at)
        writers[1].write([passages(*((*row[:2], 1, [], [9]) for row in sent[1:]))], at + 500)
        for writer, every in zip(writers, (1, 2), strict=True):
            if minute % every == 0 and writer.ledger.is_due():
                writer.ledger.checkpoint(at)
                sweep_manifests(writer.ledger, at)
    for writer in writers:
        writer.close(MINUTE + 100 * BIN_MS)
    assert not (tmp_path / "manifests" / "broker=1" / change_name(1)).exists()
    totals, pins = counted(tmp_path), pins_of(tmp_path)
    begun = {broker: through for broker, through, _ in totals.of("begun")}
    assert sorted(begun) == [1, 2]
    found = alerts_of(totals, pins, MINUTE + 100 * BIN_MS)
    assert {alert["messages"] for alert in found} == {1}
    since = [alert["since"] for alert in found]
    last = (MINUTE + commits * BIN_MS - 50_000) // BIN_MS * BIN_MS
    assert since == list(range(since[0], last + 1, BIN_MS))
    assert max(begun.values()) < since[0] <= max(begun.values()) + 2 * BIN_MS


def test_filters_of_before_the_beginning_are_no_losses(tmp_path: Path) -> None:
    for broker in (1, 2):
        TrailWriter(tmp_path, broker, MINUTE - 600_000).close(MINUTE + 3_600_000)
    spot = MINUTE // BIN_MS
    counts = {("begun", 1, MINUTE, 0): 1, ("relayed in all", 1, spot - 1, spot + 1): 50,
              ("relayed in all", 1, spot + 2, spot + 3): 40, ("arrived in all", 1, 0, spot + 2): 39}  # fmt: skip
    found = alerts_of(Totals(counts), pins_of(tmp_path), MINUTE + 3_600_000)
    assert [(alert["broker"], alert["messages"]) for alert in found] == [(1, 1)]


def test_manifests_that_are_gone_are_told(tmp_path: Path) -> None:
    write_trail(tmp_path, replace(SCALE, messages=50))
    head = Ledger(tmp_path, 1).head()
    assert added_between(tmp_path, 1, 0, head)
    (tmp_path / "manifests" / "broker=1" / change_name(2)).unlink()
    with pytest.raises(PipelineError, match="begin again with a new --out"):
        added_between(tmp_path, 1, 0, head)
