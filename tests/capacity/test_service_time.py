"""The fit recovers what batches were made from; quantiles hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import CapacityError, ServiceTime, fit, normal_equations, sketch_quantile

TRUE = ServiceTime(4.1e-6, 1.46e-5, 1.62e-5)  # seconds for a property filter, from the paper's Table 1


def batches(count: int, noise: float, seed: int = 1) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    messages = random.integers(1, 500, count).astype(np.float64)
    subscriptions = random.integers(5, 160, count).astype(np.float64)
    copies = messages * random.integers(1, 40, count)
    seconds = TRUE.receive * messages + TRUE.match * messages * subscriptions + TRUE.send * copies
    return messages, subscriptions, copies, seconds * (1 + noise * random.standard_normal(count))


def test_fit_is_exact_without_noise() -> None:
    found = fit(normal_equations(*batches(50, 0.0)))
    assert found.estimates == pytest.approx(TRUE, rel=1e-6)
    assert found.relative_error < 1e-6


def test_fit_recovers_costs_within_two_percent_at_one_percent_noise() -> None:
    found = fit(normal_equations(*batches(2_000, 0.01)))
    assert found.estimates.match == pytest.approx(TRUE.match, rel=0.02)
    assert found.estimates.send == pytest.approx(TRUE.send, rel=0.02)
    assert found.relative_error == pytest.approx(0.01, rel=0.1)
    assert found.batches == 2_000


def test_standard_errors_are_the_spread_of_estimates() -> None:
    fits = [fit(normal_equations(*batches(300, 0.02, seed))) for seed in range(200)]
    for place in range(3):
        spread = np.std([one.estimates[place] for one in fits])
        assert np.mean([one.errors[place] for one in fits]) == pytest.approx(spread, rel=0.2)


@given(st.integers(1, 99))
def test_sums_of_parts_are_the_sums_of_all(cut: int) -> None:
    columns = batches(100, 0.05)
    whole = normal_equations(*columns)
    parts = normal_equations(*(one[:cut] for one in columns)) + normal_equations(*(one[cut:] for one in columns))
    assert parts.batches == whole.batches
    assert np.allclose(parts.squares, whole.squares)
    assert np.allclose(parts.products, whole.products)


def test_batches_that_cannot_tell_are_refused() -> None:
    columns = batches(100, 0.0)
    with pytest.raises(CapacityError, match="3 batches"):
        fit(normal_equations(*(one[:3] for one in columns)))
    alike = tuple(np.full(50, one[0]) for one in columns)
    with pytest.raises(CapacityError, match="too much alike"):
        fit(normal_equations(*alike))
    with pytest.raises(CapacityError, match="no batch had copies"):
        fit(normal_equations(columns[0], columns[1], np.zeros(100), columns[3]))


def test_capacity_is_what_the_paper_computes() -> None:
    # Twenty milliseconds of service at nine tenths: 45 messages a second.
    assert ServiceTime(0.02, 0, 0).capacity(0, 0, 0.9) == pytest.approx(45)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantile_of_a_sketch_is_the_bucket_of_the_ranked_value(values: list[int], p: float) -> None:
    limits = np.array([0, 1, 2, 4, 8, 16, 32, 64])
    buckets = np.searchsorted(limits, values)
    found = sketch_quantile(np.bincount(buckets, minlength=len(limits)), limits, p)
    ranked = sorted(values)[int(np.ceil(len(values) * p)) - 1]
    assert found.value == limits[np.searchsorted(limits, ranked)]
    assert found.low <= found.value <= found.high
    assert found.total == len(values)


def test_nothing_has_no_quantile() -> None:
    found = sketch_quantile(np.zeros(3, np.int64), np.arange(3), 0.5)
    assert np.isnan(found.value)
    assert found.total == 0
