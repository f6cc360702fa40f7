"""Fits recover what batches were made from, and say what they cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import (
    BATCHED,
    FORMS,
    LINEAR,
    BatchCosts,
    BatchSamples,
    CapacityError,
    CostFit,
    NormalEquations,
    compare,
    fit_costs,
    fit_every_form,
    normal_equations,
)

# Seconds for a property filter, from the paper's Table I; and an indexed broker that serves batches.
FILTERS = BatchCosts(receive=4.1e-6, match=1.46e-5, send=1.62e-5)
INDEXED = BatchCosts(batch=35e-6, write=12e-6, receive=2e-7, lookup=3e-8, send=1.5e-7, byte=2e-10, sent_byte=8e-10)
GROUPS = 20


def batches(costs: BatchCosts, count: int, noise: float, seed: int = 1) -> BatchSamples:
    random = np.random.default_rng(seed)
    messages = random.integers(1, 500, count).astype(np.float64)
    subscriptions = np.round(2 ** random.uniform(2, 14, count))
    copies = messages * random.integers(0, 40, count)
    sizes = messages * random.choice([100.0, 1_000.0, 10_000.0], count)
    destinations = np.minimum(copies, random.integers(1, 60, count))
    samples = BatchSamples(messages, subscriptions, copies, destinations, sizes, np.ones(count))
    seconds = costs.seconds(samples) * (1 + noise * random.standard_normal(count))
    return samples._replace(seconds=seconds)


def fitted(samples: BatchSamples) -> dict[str, CostFit]:
    groups = np.arange(len(samples.seconds)) % GROUPS
    return {fit.form.name: fit for fit in fit_every_form(samples, groups)}


@pytest.mark.parametrize(("costs", "form"), [(FILTERS, "linear"), (INDEXED, "batched")])
def test_fit_is_exact_without_noise(costs: BatchCosts, form: str) -> None:
    fit = fitted(batches(costs, 400, 0.0))[form]
    assert fit.costs() == pytest.approx(costs, rel=1e-5, abs=1e-15)
    assert fit.relative_error < 1e-5
    assert fit.unidentified == {}


def test_fit_recovers_filter_and_copy_costs_within_two_percent_at_one_percent_noise() -> None:
    fit = fitted(batches(FILTERS, 2_000, 0.01))["linear"]
    assert fit.estimates["match"] == pytest.approx(FILTERS.match, rel=0.02)
    assert fit.estimates["send"] == pytest.approx(FILTERS.send, rel=0.02)
    assert fit.relative_error == pytest.approx(0.01, rel=0.1)
    assert fit.batches == 2_000


@pytest.mark.parametrize(("costs", "supported"), [(FILTERS, "linear"), (INDEXED, "batched")])
def test_the_form_that_made_the_data_is_the_one_they_support(costs: BatchCosts, supported: str) -> None:
    fits = fitted(batches(costs, 2_000, 0.05))
    assert compare(list(fits.values())).form.name == supported


def test_costs_without_a_term_for_batches_miss_an_indexed_broker() -> None:
    fits = fitted(batches(INDEXED, 2_000, 0.05))
    assert fits["batched"].predicted_error == pytest.approx(0.05, rel=0.1)
    assert fits["linear"].predicted_error > 4 * fits["batched"].predicted_error


def test_standard_errors_are_the_spread_of_estimates() -> None:
    fits = [fitted(batches(FILTERS, 300, 0.02, seed))["linear"] for seed in range(60)]
    for term in ("match", "send"):
        spread = np.std([fit.estimates[term] for fit in fits])
        assert np.mean([fit.errors[term] for fit in fits]) == pytest.approx(spread, rel=0.35)


def test_intervals_hold_the_truth_nearly_always() -> None:
    fits = [fitted(batches(INDEXED, 400, 0.05, seed))["batched"] for seed in range(60)]
    held = [fit.low["batch"] <= INDEXED.batch <= fit.high["batch"] for fit in fits]
    assert sum(held) >= 50  # of 60; an interval of 95 % from 20 groups is a little narrow


@given(st.integers(1, 99))
def test_sums_of_parts_are_the_sums_of_all(cut: int) -> None:
    samples = batches(INDEXED, 100, 0.05)
    for one in FORMS:
        whole = normal_equations(samples, one)
        parts = normal_equations(samples.rows(np.arange(cut)), one) + normal_equations(
            samples.rows(np.arange(cut, 100)), one
        )
        assert parts.batches == whole.batches
        assert np.allclose(parts.squares, whole.squares)
        assert np.allclose(parts.products, whole.products)


def test_squared_error_is_that_of_the_batches() -> None:
    samples = batches(FILTERS, 200, 0.1)
    sums = normal_equations(samples, LINEAR)
    costs = np.array([4e-6, 1.5e-5, 1.6e-5])
    left = 1 - costs @ LINEAR.regressors(samples) / samples.seconds
    assert sums.squared_error(costs) == pytest.approx(float(left @ left), rel=1e-6)


@pytest.mark.parametrize("copies", [0, 1, 5])
def test_a_message_more_costs_a_batch_what_the_costs_say(copies: int) -> None:
    costs = INDEXED._replace(rendered_byte=3e-10)
    sizes = np.array([10.0, 11.0])
    rows = (sizes, np.full(2, 64.0), copies * sizes, np.full(2, float(copies)), 500 * sizes, np.ones(2))
    ten, eleven = costs.seconds(BatchSamples(*rows))
    assert eleven - ten == pytest.approx(costs.marginal(64, copies, 500), rel=1e-9)
    # Rendered once: the first copy costs that, further ones do not.
    dear = costs.marginal(64, 1, 500) - costs.marginal(64, 0, 500)
    assert dear - (costs.marginal(64, 2, 500) - costs.marginal(64, 1, 500)) == pytest.approx(500 * 3e-10, rel=1e-6)


def test_no_cost_is_negative() -> None:
    # Bytes cost nothing here: plain least squares would make the cost of one negative in half of all samples.
    free = INDEXED._replace(byte=0.0)
    for seed in range(10):
        fit = fitted(batches(free, 200, 0.1, seed))["batched"]
        assert min(fit.estimates.values()) >= 0


def test_costs_that_the_data_do_not_tell_are_named() -> None:
    samples = batches(INDEXED, 500, 0.05)
    silent = samples._replace(copies=np.zeros(500))
    fit = fitted(silent._replace(seconds=INDEXED.seconds(silent)))["batched"]
    assert fit.unidentified["send"] == "no batch had any of it"
    alike = samples._replace(subscriptions=np.full(500, 64.0))
    noise = 1 + 0.05 * np.random.default_rng(7).standard_normal(500)
    fit = fitted(alike._replace(seconds=INDEXED.seconds(alike) * noise))["batched"]
    assert set(fit.unidentified) & {"lookup", "receive"}


def test_too_few_batches_are_refused_with_how_many() -> None:
    sums = normal_equations(batches(INDEXED, 5, 0.0), BATCHED)
    with pytest.raises(CapacityError, match="5 batches cannot tell the 8 costs of the form 'batched'"):
        fit_costs([sums], BATCHED)
    with pytest.raises(CapacityError, match="0 batches"):
        fit_costs([NormalEquations.empty(3)], LINEAR)


def test_costs_give_the_queue_of_a_broker() -> None:
    marginal = INDEXED.marginal(subscriptions=1_023, copies=2, size=100)
    assert marginal == pytest.approx(2e-7 + 10 * 3e-8 + 2 * 1.5e-7 + 100 * 2e-10 + 2 * 100 * 8e-10)
    assert INDEXED.capacity(1_023, 2, 100) == pytest.approx(0.9 / marginal)
    server = INDEXED.server(100_000, 1_023, 2, 100)
    assert server.fixed == pytest.approx(35e-6 + 2 * 12e-6)
    assert server.marginal == pytest.approx(marginal)
    with pytest.raises(CapacityError, match="costs nothing"):
        BatchCosts().capacity(1, 1, 1)
