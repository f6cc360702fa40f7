"""Pauses are drawn as they were seen: as often, as long, and in the same runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from postroad.capacity import PauseSeries
from postroad.capacity.pauses import drawn_pauses


def drawn(series: list[PauseSeries], rate: float, seconds: float) -> list[tuple[float, float]]:
    found = itertools.takewhile(lambda one: one[0] < seconds, drawn_pauses(series, rate, np.random.default_rng(1)))
    return [(at, length) for at, length in found if length]


def test_pauses_come_as_often_as_they_were_seen_and_in_order() -> None:
    random = np.random.default_rng(2)
    begins = np.sort(random.uniform(0, 3.0, 30))
    series = [PauseSeries(100.0, 3.0, begins, random.uniform(1e-3, 2e-3, 30))]
    found = drawn(series, 100.0, 200.0)
    assert len(found) / 200 == pytest.approx(10, rel=0.1)
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert {length for _, length in found} == set(series[0].lengths.tolist())


def test_pauses_that_came_in_a_run_come_in_a_run() -> None:
    run = 0.5 + np.array([0.0, 0.003, 0.006, 0.009])
    series = [PauseSeries(100.0, 1.0, run, np.full(4, 1e-3))]
    gaps = np.diff([at for at, _ in drawn(series, 100.0, 100.0)])
    # Three of four pauses follow another one at once; only where a stretch cuts the run, fewer.
    assert 0.65 < (gaps < 0.004).mean() < 0.76


def test_loads_of_about_the_same_rate_count_most() -> None:
    slow = PauseSeries(100.0, 1.0, np.array([0.5]), np.array([1e-3]))
    fast = PauseSeries(200.0, 1.0, np.array([0.5]), np.array([9e-3]))
    for rate, meant in ((90.0, 1e-3), (230.0, 9e-3)):
        lengths = [length for _, length in drawn([slow, fast], rate, 100.0)]
        assert np.mean(np.isclose(lengths, meant)) > 0.95
    between = [length for _, length in drawn([slow, fast], 141.0, 400.0)]
    assert 0.4 < np.mean(np.isclose(between, 1e-3)) < 0.6


def test_a_far_load_without_pauses_does_not_keep_the_player_waiting() -> None:
    quiet = PauseSeries(100.0, 1.0, np.zeros(0), np.zeros(0))
    paused = PauseSeries(1e6, 1.0, np.array([0.5]), np.array([1e-3]))
    assert drawn([quiet, paused], 100.0, 20.0) == []
    assert drawn([quiet], 100.0, 20.0) == []
    assert drawn([], 100.0, 20.0) == []
