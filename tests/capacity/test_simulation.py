"""Formulas against simulated queues: means within 1 % where theory gives them, quantiles within 5 %."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.capacity import (
    BatchServer,
    CapacityError,
    Constant,
    Grade,
    ScaledBernoulli,
    ServiceTime,
    SeveralServers,
    SimulatedWaits,
    SingleServer,
    erlang_c,
    simulate_waits,
    waiting_quantile,
)
from tests.capacity.queues import several_servers_waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A fixed part and a part per copy of equal size: variation comes from the grade alone. It is 0, 0.67 and 1.33.
HALVES = ServiceTime(1.0, 0.0, 1.0)
GRADES = [Constant(1), ScaledBernoulli(4, 0.5), ScaledBernoulli(10, 0.2)]
# Waits at 0.9 are long-lived: so many messages that chance leaves less than what is tolerated.
MESSAGES = {0.5: 12_000_000, 0.7: 16_000_000, 0.9: 80_000_000}


def simulated(servers: int, utilisation: float, grade: Grade, seed: int = 1) -> SimulatedWaits:
    values, probabilities = grade.probabilities()

    def services(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
        drawn = np.searchsorted(np.cumsum(probabilities), random.random(shape)).clip(max=len(values) - 1)
        return np.asarray(1 + values[drawn])

    rate = servers * utilisation / HALVES.moments(0, grade).first
    return simulate_waits(servers, rate, services, MESSAGES[utilisation] // servers, seed)


@pytest.mark.parametrize("grade", GRADES, ids=str)
@pytest.mark.parametrize("utilisation", [0.5, 0.7, 0.9])
def test_a_single_server_waits_as_the_formulas_say(utilisation: float, grade: Grade) -> None:
    moments = HALVES.moments(0, grade)
    rate = utilisation / moments.first
    waits, queue = simulated(1, utilisation, grade), SingleServer(rate, moments)
    assert queue.mean_wait() == pytest.approx(waits.mean, rel=0.01)
    for p in (0.99, 0.9999):
        exact = waiting_quantile(rate, HALVES.transform(0, grade), utilisation, p, moments.first)
        assert exact == pytest.approx(waits.quantile(p), rel=0.05)
        # The Gamma approximation has its own error on top.
        assert queue.quantile(p) == pytest.approx(exact, rel=0.07)


@pytest.mark.parametrize("grade", GRADES, ids=str)
@pytest.mark.parametrize(("servers", "utilisation"), [(2, 0.5), (2, 0.9), (5, 0.7)])
def test_several_servers_wait_as_the_approximation_says(servers: int, utilisation: float, grade: Grade) -> None:
    moments = HALVES.moments(0, grade)
    waits = simulated(servers, utilisation, grade)
    queue = SeveralServers(servers, servers * utilisation / moments.first, moments)
    # Two moments do not decide the mean of several servers, so that no formula of them can be exact.
    assert queue.mean_wait() == pytest.approx(waits.mean, rel=0.02 if moments.variation <= 1 else 0.03)
    assert queue.quantile(0.99) == pytest.approx(waits.quantile(0.99), rel=0.05)
    assert queue.quantile(0.9999) == pytest.approx(waits.quantile(0.9999), rel=0.05 if utilisation < 0.9 else 0.08)


def test_simulated_memoryless_servers_wait_as_the_exact_formula_says() -> None:
    servers, rate = 4, 2.8
    waits = simulate_waits(servers, rate, lambda random, shape: random.exponential(1.0, shape), 12_000_000, 5)
    waiting = erlang_c(servers, rate)
    assert waits.waiting == pytest.approx(waiting, rel=0.01)
    assert waits.mean == pytest.approx(waiting / (servers - rate), rel=0.01)
    assert waits.error < 0.005 * waits.mean
    for p in (0.99, 0.9999):
        assert waits.quantile(p) == pytest.approx(np.log(waiting / (1 - p)) / (servers - rate), rel=0.05)
    assert waits.quantile(0.5) == 0


def test_simulation_is_that_of_a_queue_served_message_by_message() -> None:
    services = np.random.default_rng(3).uniform(0.5, 1.5, 400_000)
    slow = several_servers_waits(3, 2.4, services, 4)
    quick = simulate_waits(3, 2.4, lambda random, shape: random.uniform(0.5, 1.5, shape), 8_000_000)
    assert quick.mean == pytest.approx(slow.mean(), rel=0.03)
    assert quick.quantile(0.99) == pytest.approx(float(np.quantile(slow, 0.99)), rel=0.05)


def test_servers_that_cannot_carry_the_rate_are_refused() -> None:
    with pytest.raises(CapacityError, match="2 servers would be busy 150 %"):
        simulate_waits(2, 3.0, lambda random, shape: np.ones(shape))


@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("fixed", [0.2, 2.0, 30.0])
def test_a_server_of_batches_waits_as_its_simulated_batches(utilisation: float, fixed: float) -> None:
    """Two thousand servers side by side; what arrives during a batch waits a uniform part of it."""
    random = np.random.default_rng(7)
    server = BatchServer(utilisation, fixed, 1.0)
    sizes = np.ones(2_000)
    weights, waits = [], []
    for number in range(1_500):
        seconds = server.seconds(sizes)
        came = random.poisson(utilisation * seconds)
        if number >= 500:
            weights.append(np.maximum(came, 1))
            # One of those that came stands for all; whoever finds the server idle does not wait.
            waits.append(np.where(came > 0, seconds * random.random(len(sizes)), 0.0))
        sizes = np.maximum(came, 1.0)
    weight, wait = np.concatenate(weights), np.concatenate(waits)
    order = np.argsort(wait)
    shares = np.cumsum(weight[order]) / weight.sum()
    assert server.mean_wait() == pytest.approx(float(np.average(wait, weights=weight)), rel=0.01)
    for p in (0.99, 0.9999):
        expected = float(wait[order][np.searchsorted(shares, p)])
        assert server.wait_quantile(p) == pytest.approx(expected, rel=0.05)
