"""Following a growing trail: everything counts once, whatever happens in between; and alerts say what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import Faults, Scale, growing_trail, read_truth, write_trail
from postroad.pipeline import Options, PipelineError, run_job
from postroad.pipeline import alerts as alerting
from postroad.pipeline.alerts import read_totals, refresh, store_increments
from postroad.pipeline.counting import BIN_MS, INCREMENTS
from postroad.pipeline.jobs import compact, follow
from postroad.pipeline.stream import added_between
from postroad.trail import Ledger
from postroad.trail.manifest import change_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCALE = Scale(
    brokers=5,
    messages=800,
    seed=31,
    publishers=10,
    subscribers=4,
    interests=60,
    seconds=240,
    seal_seconds=40,
    faults=Faults(lost=0.02),
)
LATER = SCALE.end + 10_000_000


def followed(spark: SparkSession, trail: Path, out: Path) -> None:
    run_job("follow", follow.run, Options(trail, out, more={"once": True, "seconds": 0.1}), spark=spark)


def expected(trail: Path) -> dict[str, Counter[tuple[int, int, int]]]:
    """What the truth says was handed and what arrived, by link and minute."""
    handed: Counter[tuple[int, int, int]] = Counter()
    arrived: Counter[tuple[int, int, int]] = Counter()
    published: Counter[tuple[int, int, int]] = Counter()
    for row in read_truth(trail).to_pylist():
        spot = row["time"] // BIN_MS
        published[row["origin"], 0, spot] += 1
        for hop in row["path"]:
            arrived[hop >> 32, hop & 0xFFFFFFFF, spot] += 1
    return {"published": published, "arrived": arrived, "handed": handed}


def check(trail: Path, out: Path) -> None:
    truth, totals = expected(trail), read_totals(out)
    assert totals.of("published") == truth["published"]
    assert totals.of("arrived") == truth["arrived"]
    lost = sum(row["lost"] > 0 for row in read_truth(trail).to_pylist())
    assert sum(totals.of("handed").values()) - sum(totals.of("arrived").values()) == lost > 0


def test_growing_trail_is_counted_once_across_stops_and_compaction(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    for part, _ in growing_trail(trail, SCALE):
        if part == 2:
            followed(spark, trail, out)
        elif part == 4:
            # A batch that stored its counts and died before Spark knew: it is done again.
            real = alerting.store_increments

            def dies(*given: Any, real: Any = real) -> None:
                real(*given)
                raise RuntimeError("killed")

            with monkeypatch.context() as patched:
                patched.setattr(follow, "store_increments", dies)
                with pytest.raises(PipelineError, match="Spark gave up"):
                    followed(spark, trail, out)
            options = Options(trail, tmp_path / "compacted", more={"now": SCALE.end, "sample": 20})
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
    now = SCALE.start + 80_000 + alerting.QUIET_MS
    assert refresh(tmp_path / "trail", tmp_path / "out", now) == []
    found = refresh(tmp_path / "trail", tmp_path / "out", now + 1_000)
    assert [alert["broker"] for alert in found] == [1, 2, 3, 4, 5]
    assert {alert["alert"] for alert in found} == {"broker gone quiet"}
    steps.close()


def test_counts_are_summed_up_and_nothing_is_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "MAX_BATCHES", 3)
    rows = pa.Table.from_pylist(
        [{"about": "handed", "number": 1, "other": 2, "bin": 7, "messages": 5}], schema=INCREMENTS
    )
    for batch in range(10):
        store_increments(tmp_path, batch, rows)
        store_increments(tmp_path, batch, rows)
        assert read_totals(tmp_path).of("handed") == {(1, 2, 7): 5 * (batch + 1)}
    assert len(list((tmp_path / "increments").iterdir())) <= 5


def test_manifests_that_are_gone_are_told(tmp_path: Path) -> None:
    write_trail(tmp_path, replace(SCALE, messages=50))
    head = Ledger(tmp_path, 1).head()
    assert added_between(tmp_path, 1, 0, head)
    (tmp_path / "manifests" / "broker=1" / change_name(2)).unlink()
    with pytest.raises(PipelineError, match="begin again with a new --out"):
        added_between(tmp_path, 1, 0, head)
