"""Trials of experiments, played small: what they measure is there, and makes sense."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from postroad.lab.experiments import EXPERIMENTS, Plot, PlottedLine, Results, RunRequest, experiment_named
from postroad.lab.experiments.content import has_replication
from postroad.lab.experiments.experiment import LOAD_AVERAGE, PROCESSORS
from postroad.lab.raw_events import RawEvents
from postroad.lab.report import draw
from postroad.lab.scenarios import ContentScenario
from tests.cli.programs import here

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def measured(name: str, key: str, scale: float) -> tuple[RawEvents, Mapping[str, float]]:
    trials = {trial.key: trial for trial in experiment_named(name).trials(RunRequest(scale=scale))}
    events = RawEvents()
    shares: list[float] = []
    trials[key].play(events, shares.append)
    assert shares[-1] == 1.0
    rows = events.tables()["measures"].to_pylist()
    return events, {row["name"]: row["value"] for row in rows}


@pytest.mark.parametrize("kind", ["tree", "cluster"])
def test_subscriptions_are_answered_by_their_broker_and_told_to_the_others_later(kind: str) -> None:
    _, figures = measured("wihidum", f"{kind}-3-subscribe", 0.0005)
    assert figures["subscriptions/s"] > 1_000
    # A SUBSCRIBE takes what its broker takes for it; the others hear of it at the next tick, over a link.
    assert figures["subscriber's latency"] == pytest.approx(100e-6)
    assert 0.002 < figures["network's latency"] < 0.2


def test_a_flood_of_publications_is_delivered_whole() -> None:
    events, figures = measured("wihidum", "cluster-3-flood", 0.002)
    tables = events.tables()
    wanted = sum(tables["accepted"].column("wanted").to_pylist())
    assert tables["delivered"].num_rows == wanted > 20
    assert figures["messages not taken"] == 0
    assert figures["publications/s"] > 100


def test_crossover_measures_what_brokers_tell_each_other() -> None:
    _, drp = measured("crossover", "drp-10", 0.01)
    _, flood = measured("crossover", "flood-10", 0.01)
    assert drp["bytes/s at rest"] > 0 == flood["bytes/s at rest"]
    assert drp["bytes per subscription"] > 0 == flood["bytes per subscription"]
    assert drp["bytes per message"] < flood["bytes per message"]


def test_brokers_that_are_killed_have_no_clients() -> None:
    for trial in experiment_named("failures").trials(RunRequest(scale=0.01)):
        killed = trial.parameters["killed"]
        assert len(killed) + len(trial.parameters["cut"]) == int(trial.key.rsplit("-", 1)[1])
    events, figures = measured("failures", "drp-brokers-3", 0.02)
    assert figures["failure at"] == pytest.approx(0.4)
    # Neighbours notice at once here; news of it crosses a few links of some milliseconds.
    assert 0 < figures["agreed after"] < 1
    tables = events.tables()
    assert not set(tables["accepted"].column("broker").to_pylist()) & set(killed_of("drp-brokers-3"))
    assert tables["delivered"].num_rows > 100


def test_network_that_loses_messages_to_the_end_has_not_recovered(tmp_path: Path) -> None:
    """Losses up to the end of the run are no recovery at its end; losses that stop before are."""
    cells = ["cluster-links-3", "cluster-brokers-1"]
    tables = {
        "figures": {"cell": cells, "name": ["failure at"] * 2, "value": [4.0, 4.0]},
        "completeness": {"cell": cells, "wanted": [9, 9], "missing": [5, 2], "doubled": [0, 0], "disordered": [0, 0]}
        | {"seconds": [11.99, 11.99]},
        "losses": {"cell": cells, "last_missing_at": [11_980_000, 4_600_000]},
        "link_time": {"cell": pa.array([], pa.string()), "at": pa.array([], pa.int64())},
    }
    for name, columns in tables.items():
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table(columns), tmp_path / name / "part.parquet")
    results, experiment = Results(tmp_path, {}, cells), experiment_named("failures")
    recovered = [row["seconds to recover"] for row in experiment.tables(results)["Failures"]]
    assert recovered == [math.inf, 0.6]
    told = next(one.ours for one in experiment.findings(results) if one.ours.startswith("cluster"))
    assert "complete again by the end of the run in 1 of them only" in told


def killed_of(key: str) -> list[int]:
    trials = {trial.key: trial for trial in experiment_named("failures").trials(RunRequest(scale=0.02))}
    return list(trials[key].parameters["killed"])


@pytest.mark.parametrize("seed", range(1, 7))
def test_any_draw_of_the_comparative_runs_wants_as_many_copies_as_the_paper(seed: int) -> None:
    drawn = ContentScenario(8, 80, rates=(25.0, 25.0), seconds=1.0, seed=seed).replication()
    assert has_replication(drawn.clients, drawn.brokers)


def test_comparative_runs_play_the_seed_that_was_asked_for() -> None:
    for trial in experiment_named("bdrp-comparative").trials(RunRequest(scale=0.01, seed=17)):
        assert trial.parameters["workload"]["seed"] == 17


def test_flood_of_publications_comes_faster_than_a_broker_takes_it() -> None:
    _, figures = measured("wihidum", "tree-1-flood", 0.02)
    assert figures["publications/s"] < 0.8 * figures["publications offered/s"]


@pytest.mark.parametrize(("load", "told"), [(1.5, True), (13.0, None)])
def test_latency_on_a_crowded_machine_decides_nothing(tmp_path: Path, load: float, told: bool | None) -> None:
    rows = [
        ("log", LOAD_AVERAGE, load),
        ("log", PROCESSORS, 2.0),
        ("log", "log 10K 1: p50_ratio", 7.5),
        ("log", "none 1: p50_ratio", 1.0),
    ]
    (tmp_path / "figures").mkdir()
    columns = dict(zip(("cell", "name", "value"), zip(*rows, strict=True), strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "figures" / "part.parquet")
    first = experiment_named("tracking-latency").findings(Results(tmp_path, {}, ["log"]))[0]
    assert first.agrees is told
    assert ("a load of 13 on 2 processors" in first.why) == (told is None)


def test_only_dashed_lines_are_drawn_dashed() -> None:
    for dashed in (False, True):
        line = PlottedLine.of("one", [(1.0, 2.0), (2.0, 3.0)], dashed)
        assert ("stroke-dasharray" in draw(Plot("p", "title", "x", "y", [line]))) == dashed


def test_a_mode_that_an_experiment_does_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode, other in (("fiorano-grid", "--simulated", "--live"), ("crossover", "--live", "--simulated")):
        refused = here(monkeypatch, "lab", "run", name, mode, "--out", str(tmp_path))
        assert refused.code == 2
        assert f"{name} runs {other}, not {mode}" in refused.err
    assert not list(tmp_path.iterdir())


def test_finding_is_open_while_a_cell_is_missing_that_it_rests_on(tmp_path: Path) -> None:
    """Every experiment can be reported when nothing but one made-up cell of it was played."""
    for name, columns in {
        "figures": {"cell": ["other"], "name": ["x"], "value": [1.0]},
        "completeness": {"cell": ["other"], "wanted": [1], "accepted": [1], "missing": [0], "undelivered_rate": [0.0]}
        | {"doubled": [0], "disordered": [0], "seconds": [1.0]},
        **{
            name: {"cell": pa.array([], pa.string())}
            for name in ("throughput", "link_use", "link_time", "losses", "latency", "replication", "processors")
        },
    }.items():
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table(columns), tmp_path / name / "part.parquet")
    for experiment in EXPERIMENTS.values():
        findings = experiment.findings(Results(tmp_path, {}, ["other"]))
        # What follows from the paper alone agrees or differs whatever was played.
        open_ones = [one for one in findings if one.agrees is None]
        assert len(open_ones) >= len(findings) - 2, experiment.name
