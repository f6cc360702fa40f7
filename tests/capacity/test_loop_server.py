"""A loop that must be woken keeps messages as long as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import CapacityError, Moments, SingleServer, WakingServer, fit_waking


def played(server: WakingServer, messages: int, seed: int) -> tuple[float, float, float]:
    """Mean and 99 % quantile of responses by a queue of events, and processor seconds of a message."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / server.rate, messages))
    free, busy, responses = 0.0, 0.0, np.empty(messages)
    for place, at in enumerate(arrivals):
        work = server.each + (server.wake if at >= free else 0.0)
        free = max(at, free) + work
        busy += work
        responses[place] = free - at
    return float(responses.mean()), float(np.quantile(responses, 0.99)), busy / messages


@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("wake", [5e-6, 150e-6])
def test_responses_agree_with_a_played_loop(utilisation: float, wake: float) -> None:
    server = WakingServer(utilisation / 50e-6, wake, 50e-6)
    mean, p99, cost = played(server, 300_000, 3)
    assert server.mean_response() == pytest.approx(mean, rel=0.02)
    assert server.response_quantile(0.99) == pytest.approx(p99, rel=0.05)
    assert server.cost() == pytest.approx(cost, rel=0.01)


def test_a_loop_that_wakes_for_nothing_is_the_single_server() -> None:
    server, each = WakingServer(8_000, 0.0, 1e-4), 1e-4
    plain = SingleServer(8_000, Moments(each, each**2, each**3))
    assert server.mean_wait() == pytest.approx(plain.mean_wait(), rel=1e-12)


def test_costs_come_out_of_what_messages_cost_at_several_rates() -> None:
    rates = np.array([1_000.0, 3_000.0, 6_000.0, 9_000.0])
    seconds = np.array([WakingServer(float(rate), 120e-6, 60e-6).cost() for rate in rates])
    found = fit_waking(rates, seconds)
    assert (found.wake, found.each) == pytest.approx((120e-6, 60e-6), rel=0.01)


def test_a_cost_that_does_not_fall_with_the_rate_is_all_of_the_messages() -> None:
    found = fit_waking(np.array([1_000.0, 5_000.0, 9_000.0]), np.full(3, 80e-6))
    assert found.each == pytest.approx(80e-6, rel=0.05)
    assert found.wake < 8e-6


def test_one_load_does_not_tell_waking_from_serving() -> None:
    with pytest.raises(CapacityError, match="two different rates"):
        fit_waking(np.array([1_000.0]), np.array([1e-4]))


def test_a_loop_that_gets_more_than_it_carries_is_refused() -> None:
    with pytest.raises(CapacityError, match="fewer than 10000"):
        WakingServer(12_000, 0.0, 1e-4).mean_response()
