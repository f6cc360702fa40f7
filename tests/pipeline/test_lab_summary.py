"""Experiments from beginning to end: trials, raw events, Spark's summaries, findings, and the report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyarrow import parquet

from postroad.lab.errors import LabError
from postroad.lab.experiments import EXPERIMENTS, RunRequest, experiment_named
from postroad.lab.experiments.experiment import LOAD_AVERAGE, PROCESSORS
from postroad.lab.raw_events import LinkSample
from postroad.lab.report import html_report, machine_line, write_pages
from postroad.lab.run_folder import RunFolder
from postroad.lab.runs import read_results, run_experiment, summarise_played
from postroad.lab.summary import SUMMARIES, summarise

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.lab.raw_events import RawEvents


def ids_of(numbers: list[int], publisher: int = 7) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array([[publisher << 32 | 1, (1_000 + number) << 16 | 3] for number in numbers], np.uint64).reshape(-1, 2)


def accepted(events: RawEvents, at: list[int], numbers: list[int], wanted: list[int]) -> None:
    counts = np.array(wanted, np.int32)
    events.accepted(np.array(at), 1, np.zeros(len(at), np.int32), ids_of(numbers), counts, np.minimum(counts, 2))


def test_summaries_say_what_the_events_say(spark: SparkSession, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin({"mode": "simulated"}, ["a"])
    with folder.cell("a") as events:
        accepted(events, [0, 100_000, 600_000], [0, 1, 2], [2, 1, 3])
        # Subscriber 0 gets message 1 before message 0, and message 0 twice; nobody gets message 2 but subscriber 1.
        events.delivered(110_000, 1, 0, ids_of([1]))
        events.delivered(120_000, 1, 0, ids_of([0]))
        events.delivered(130_000, 1, 0, ids_of([0]))
        events.delivered(140_000, 2, 1, ids_of([0]))
        events.delivered(900_000, 2, 1, ids_of([2]))
        events.link(250_000, (1, 2), LinkSample(2, 400, 100, 1, 125_000), 60)
        events.link(500_000, (1, 2), LinkSample(3, 600, 100, 1, 150_000), 0)
        events.link(500_000, (2, 1), LinkSample(0, 0, 50, 2, 10), 0)
        events.broker(250_000, 1, 1_000, 4)
        events.broker(500_000, 1, 3_000, 0)
        events.measure("answer", 42, "things")
        # As live runs put them down before and after each cell.
        for load in (0.5, 3.0):
            events.measure(LOAD_AVERAGE, load)
            events.measure(PROCESSORS, 2)
    assert folder.finish() == "complete"
    assert summarise(spark, folder) == list(SUMMARIES)
    results = read_results(folder)
    (complete,) = results.rows("completeness")
    assert {
        name: complete[name] for name in ("accepted", "wanted", "delivered", "missing", "doubled", "disordered")
    } == {
        "accepted": 3,
        "wanted": 6,
        "delivered": 4,
        "missing": 2,
        "doubled": 1,
        "disordered": 2,
    }
    assert [(row["at"], row["accepted"], row["wanted"], row["delivered"]) for row in results.rows("throughput")] == [
        (0, 2, 3, 4),
        (500_000, 1, 3, 0),
        (750_000, 0, 0, 1),
    ]
    assert [(row["at"], row["missing"], row["last_missing_at"]) for row in results.rows("losses")] == [
        (500_000, 2, 600_000)
    ]
    latency = results.row("latency", "a")
    assert (latency["deliveries"], latency["p50_ms"], latency["max_ms"]) == (5, 130.0, 300.0)
    use = {(row["source"], row["target"]): row for row in results.rows("link_use")}
    assert (use[1, 2]["messages"], use[1, 2]["data_bytes"], use[1, 2]["most_held_bytes"]) == (3, 600, 60)
    assert use[1, 2]["busiest_use"] == 0.5
    assert [
        (row["at"], row["bytes"], row["busiest_bytes"], row["busiest_use"]) for row in results.rows("link_time")
    ] == [
        (0, 500, 500, 0.5),
        (250_000, 250, 200, 0.1),
    ]
    copies = {row["copies"]: (row["by_clients"], row["by_brokers"]) for row in results.rows("replication")}
    assert copies == {1: (1, 1), 2: (1, 2), 3: (1, 0)}
    assert results.row("processors", "a")["use"] == 3_000 / 500_000
    assert results.figure("a", "answer") == 42
    assert machine_line(results) == ", on 2 processors with a load average of 0.5 to 3.0"


def test_an_experiment_runs_to_its_report(spark: SparkSession, tmp_path: Path) -> None:
    experiment = experiment_named("bdrp-single")
    request = RunRequest(scale=0.004, seed=2)
    outcome = run_experiment(experiment, request, tmp_path, spark=spark)
    assert (outcome.state, outcome.played, outcome.kept) == ("complete", ["one-broker"], [])
    results = read_results(outcome.folder)
    complete = results.row("completeness", "one-broker")
    raw = outcome.folder.raw / "cell=one-broker"
    delivered = parquet.read_table(raw / "delivered.parquet").to_pylist()
    names = ("origin", "time", "publisher", "counter", "subscriber")
    copies = Counter(tuple(row[name] for name in names) for row in delivered)
    assert complete["delivered"] == len(copies) == complete["wanted"] > 1_000
    assert complete["doubled"] == complete["missing"] == 0
    findings = experiment.findings(results)
    # So few messages scatter: what counts is that the finding says what came out.
    clients = float(findings[0].ours.split()[0])
    assert 20 < clients < 34
    assert findings[0].agrees == (abs(clients - 27) <= 1)
    again = run_experiment(experiment, request, tmp_path, spark=spark)
    assert (again.played, again.kept) == ([], ["one-broker"])
    page = html_report([(experiment, outcome.folder)])
    assert findings[0].ours in page
    assert page.count("<svg") == 1
    assert "Partial" not in page
    pages = write_pages([(experiment, outcome.folder)], tmp_path / "pages")
    assert {path.name for path in pages} == {"README.md", "bdrp-single.md"}
    assert (tmp_path / "pages" / "bdrp-single-throughput.svg").read_text().startswith("<?xml")
    assert "at scale 0.004 with seed 2" in (tmp_path / "pages" / "bdrp-single.md").read_text()


def test_bad_requests_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    single, scale = experiment_named("bdrp-single"), experiment_named("bdrp-scale")
    with pytest.raises(LabError, match="there is no experiment 'nothing'; there are "):
        experiment_named("nothing")
    with pytest.raises(LabError, match="bdrp-scale runs --simulated, not --live"):
        run_experiment(scale, RunRequest(mode="live", scale=0.1), tmp_path, spark=spark)
    with pytest.raises(LabError, match="--scale is above 0 and at most 1"):
        run_experiment(single, RunRequest(scale=2), tmp_path, spark=spark)
    assert list(tmp_path.iterdir()) == []


def test_summaries_that_spark_cannot_make_are_told_and_raw_events_stay(spark: SparkSession, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin({"mode": "simulated"}, ["a"])
    with folder.cell("a") as events:
        accepted(events, [0], [0], [1])
    damaged = folder.raw / "cell=a" / "accepted.parquet"
    damaged.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(LabError, match=r"Spark could not make the summaries: .*raw events are kept") as caught:
        summarise_played(folder, spark=spark)
    assert "\n" not in str(caught.value)
    assert not folder.is_summarised
    assert folder.has("a")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_what_it_is_and_has_trials_with_plain_keys(name: str) -> None:
    one = EXPERIMENTS[name]
    assert one.name == name
    assert one.title
    assert one.source
    assert one.scaled
    assert 0 < one.small <= 1
    keys = [trial.key for trial in one.trials(RunRequest(mode=one.modes[0], scale=one.small))]
    assert len(keys) == len(set(keys)) > 0
    assert all(key.replace("-", "").replace(".", "").isalnum() for key in keys)
