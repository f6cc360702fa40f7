"""A loop that must be woken keeps messages as long as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import CapacityError, Moments, SingleServer, WakingServer


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


def test_a_loop_that_gets_more_than_it_carries_is_refused() -> None:
    with pytest.raises(CapacityError, match="fewer than 10000"):
        WakingServer(12_000, 0.0, 1e-4).mean_response()
