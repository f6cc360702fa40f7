"""Trials of experiments, played small: what they measure is there, and makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from postroad.lab.experiments import EXPERIMENTS, Results, RunRequest, experiment_named
from postroad.lab.experiments.content import typical_seed
from postroad.lab.raw_events import RawEvents
from postroad.lab.scenarios import ContentScenario

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


def killed_of(key: str) -> list[int]:
    trials = {trial.key: trial for trial in experiment_named("failures").trials(RunRequest(scale=0.02))}
    return list(trials[key].parameters["killed"])


def test_draw_of_the_comparative_runs_wants_as_many_copies_as_the_paper() -> None:
    seeds = {typical_seed(seed) for seed in range(1, 6)}
    for seed in seeds:
        drawn = ContentScenario(8, 80, rates=(5.0, 5.0), seconds=2.0, seed=seed).replication()
        # Other messages than those that the seed was chosen by.
        assert drawn.clients == pytest.approx(4.2, abs=0.45)
        assert drawn.brokers == pytest.approx(3.3, abs=0.35)
    assert all(typical_seed(seed) == seed for seed in seeds)


def test_finding_is_open_while_a_cell_is_missing_that_it_rests_on(tmp_path: Path) -> None:
    """Every experiment can be reported when nothing but one made-up cell of it was played."""
    for name, columns in {
        "figures": {"cell": ["other"], "name": ["x"], "value": [1.0]},
        "completeness": {"cell": ["other"], "wanted": [1], "accepted": [1], "missing": [0], "undelivered_rate": [0.0]}
        | {"doubled": [0], "disordered": [0]},
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
