"""What brokers use of their limits, from the timed reads of a trail; and the warning before it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from postroad.capacity import LIMIT_UTILISATION, ROUND_MS
from postroad.lab.trails import Scale, write_trail
from postroad.pipeline.alerts import Totals, alerts_of, news, refresh, store_increments
from postroad.pipeline.counts import BIN_MS, INCREMENTS, counts_of_file
from postroad.pipeline.loads import LOADS_KEPT_MS, loads_of
from postroad.tracking import BATCHES_PER_SAMPLE
from postroad.trail import Trail

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_794_787_200_000
READ_NS, MESSAGE_NS = 40_000, 100_000


def counts(days: int, rate: float, growth: float, sources: int = 1) -> dict[tuple[str, int, int, int], int]:
    """Broker 7 at a rate that grows by the day, with larger reads in the second half of each hour."""
    found = {}
    for number in range(days * 144):
        at = NOW - (days * 144 - number) * ROUND_MS
        now = rate + growth * (number // 144)
        messages = round(now * 600 / BATCHES_PER_SAMPLE)
        reads = messages // (2 if number % 6 < 3 else 4)
        sums = {
            "timed reads": reads,
            "timed messages": messages,
            "timed nanoseconds": reads * READ_NS + messages * MESSAGE_NS,
            "accepted squares": messages**2,
            "publisher squares": messages**2 // sources,
        }
        found.update({(about, 7, 0, at // BIN_MS): amount for about, amount in sums.items()})
    return found


def test_growth_is_told_before_the_limit_is_reached_and_once_a_day() -> None:
    totals = Totals(counts(10, 3_000, 400))
    (load,) = loads_of(totals.counts, NOW)
    # 100 microseconds a message: 10,000 a second are all it could carry.
    assert load.load[-1] == pytest.approx(6_600 / 10_000 / LIMIT_UTILISATION, rel=0.01)
    assert load.forecast is not None
    assert load.forecast.days == pytest.approx((8_000 - 6_600) / 400, rel=0.1)
    (alert,) = alerts_of(totals, {}, NOW)
    assert alert["alert"] == "capacity limit"
    assert "broker 7: at this growth the limit is reached on Thursday" in alert["text"]
    told: dict[tuple[object, ...], int] = {}
    sunday = NOW - 2 * ROUND_MS
    assert len(news(alerts_of(totals, {}, sunday), told)) == 1
    assert news(alerts_of(totals, {}, sunday + 60_000), told) == []
    assert len(news([alert], told)) == 1


def test_steady_load_is_not_told() -> None:
    assert alerts_of(Totals(counts(14, 5_000, 0)), {}, NOW) == []


def test_a_limit_that_is_reached_is_told_at_once() -> None:
    (alert,) = alerts_of(Totals(counts(1, 9_000, 0)), {}, NOW)
    assert "the limit is reached" in alert["text"]


def test_many_publishers_leave_less_room_than_one() -> None:
    (one,) = loads_of(counts(2, 3_000, 0), NOW)
    (many,) = loads_of(counts(2, 3_000, 0, sources=20_000), NOW)
    assert one.sources == 1
    assert many.sources == pytest.approx(20_000, rel=0.01)
    assert many.load[0] > 1.05 * one.load[0]


def test_a_handful_of_reads_says_nothing() -> None:
    few = {(about, 7, 0, (NOW - 2 * ROUND_MS) // BIN_MS): 5 for about in ("timed reads", "timed messages")}
    assert loads_of({**few, ("timed nanoseconds", 7, 0, (NOW - 2 * ROUND_MS) // BIN_MS): 900}, NOW) == []


def test_sums_of_loads_outlive_those_of_links(tmp_path: Path) -> None:
    import pyarrow as pa

    from postroad.pipeline import alerts

    def rows(at: int) -> pa.Table:
        whole = {"number": 7, "other": 0, "bin": at // BIN_MS, "messages": 9}
        return pa.Table.from_pylist([{"about": about, **whole} for about in ("timed reads", "accepted")], INCREMENTS)

    store_increments(tmp_path, 0, rows(NOW - 2 * LOADS_KEPT_MS), NOW)
    store_increments(tmp_path, 1, rows(NOW - LOADS_KEPT_MS // 2), NOW)
    for batch in range(2, alerts.MAX_BATCHES + 3):
        store_increments(tmp_path, batch, INCREMENTS.empty_table(), NOW)
    kept = alerts.read_totals(tmp_path).counts
    assert [(about, spot) for about, _, _, spot in kept] == [("timed reads", (NOW - LOADS_KEPT_MS // 2) // BIN_MS)]


def test_a_trail_gives_its_reads_and_publishers(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    scale = Scale(brokers=2, messages=300, publishers=4, subscriptions=2, interests=10, seconds=120, seal_seconds=20)
    write_trail(trail, scale)
    whole = Trail(trail)
    entries = [entry for table in ("timings", "passages") for entry in whole.files(table, 1)[0]]
    sums: dict[tuple[str, int, int, int], int] = {}
    for entry in entries:
        for row in counts_of_file(trail, 1, entry).to_pylist():
            key = (row["about"], row["number"], row["other"], row["bin"])
            sums[key] = sums.get(key, 0) + row["messages"]
    (load,) = loads_of(sums, scale.end + ROUND_MS)
    assert sum(amount for (about, *_), amount in sums.items() if about == "timed reads") >= 32
    assert 1 <= load.sources <= 4
    assert all(one > 0 for one in load.load)


def test_the_table_of_capacity_is_written(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "trail" / "manifests").mkdir(parents=True)
    found = counts(1, 3_000, 0)
    rows = [dict(zip(INCREMENTS.names, (*key, amount), strict=True)) for key, amount in found.items()]
    store_increments(tmp_path / "out", 0, pa.Table.from_pylist(rows, INCREMENTS), NOW)
    refresh(tmp_path / "trail", tmp_path / "out", NOW)
    table = pq.read_table(tmp_path / "out" / "capacity")
    assert table.num_rows == 144
    assert table["load"][0].as_py() == pytest.approx(3_000 / 8_000, rel=0.01)
