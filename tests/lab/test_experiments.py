"""Trials of experiments, played small: what they measure is there, and makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.lab.experiments import RunRequest, experiment_named
from postroad.lab.raw_events import RawEvents

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    tables = events.tables()
    assert not set(tables["accepted"].column("broker").to_pylist()) & set(killed_of("drp-brokers-3"))
    assert tables["delivered"].num_rows > 100


def killed_of(key: str) -> list[int]:
    trials = {trial.key: trial for trial in experiment_named("failures").trials(RunRequest(scale=0.02))}
    return list(trials[key].parameters["killed"])
