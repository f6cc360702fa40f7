"""Costs of brokers in a line come out of the times at its two ends."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import CapacityError, LoopCosts, PauseSeries, TimedLoad, fit_line, loop_ends

COSTS = LoopCosts(100e-6, 20e-6, 30e-6)
BROKERS = 3


def load(costs: LoopCosts, rate: float, messages: int, seed: int) -> TimedLoad:
    times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, messages))
    return TimedLoad(times, loop_ends(costs, times, seed=seed, brokers=BROKERS), np.ones(messages, np.bool_))


def test_a_load_that_was_not_fitted_takes_what_the_fitted_line_says() -> None:
    loads = [load(COSTS, rate, 1_500, seed) for seed, rate in enumerate((700.0, 1_400.0, 2_000.0, 2_700.0))]
    found = fit_line(loads, BROKERS)
    meant = load(COSTS, 3_000.0, 20_000, 9)
    took, said = meant.out - meant.sent, loop_ends(found, meant.sent, brokers=BROKERS) - meant.sent
    assert said.mean() == pytest.approx(took.mean(), rel=0.05)
    assert np.quantile(said, 0.99) == pytest.approx(np.quantile(took, 0.99), rel=0.1)
    # Of three costs one can stand for a part of another: a read after a rest is what the times show best.
    assert found.first + found.wake == pytest.approx(COSTS.first + COSTS.wake, rel=0.05)
    assert not any(len(one.lengths) for one in found.pauses)


def test_pauses_are_found_by_the_first_message_that_meets_them() -> None:
    begins = np.arange(0.1, 1.0, 0.2)
    paused = COSTS._replace(pauses=[PauseSeries(1_500.0, 1.0, begins, np.full(len(begins), 4e-3))])
    loads = [load(paused, 1_500.0, 6_000, seed) for seed in range(2)]
    found = fit_line(loads, BROKERS)
    lengths = np.concatenate([one.lengths for one in found.pauses])
    seconds = sum(one.seconds for one in found.pauses)
    assert len(lengths) / seconds == pytest.approx(5, rel=0.5)
    # A pause begins some time before the first message that meets it.
    assert 2e-3 < np.median(lengths) < 4.5e-3
    meant = load(paused, 2_000.0, 20_000, 9)
    said = loop_ends(found, meant.sent, seed=3, brokers=BROKERS) - meant.sent
    assert np.quantile(said, 0.99) == pytest.approx(np.quantile(meant.out - meant.sent, 0.99), rel=0.3)


def test_a_line_without_messages_is_refused() -> None:
    with pytest.raises(CapacityError, match="enough messages"):
        fit_line([TimedLoad(np.arange(9.0), np.arange(9.0) + 1, np.zeros(9, np.bool_))], BROKERS)
