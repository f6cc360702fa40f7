"""A server of batches waits as a simulation shows."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import BatchServer, CapacityError, Moments, SingleServer
from tests.capacity.queues import batch_server_times


@pytest.mark.parametrize(
    ("rate", "fixed", "marginal"),
    [
        (100.0, 1e-3, 5e-4),  # mostly single messages
        (1_000.0, 1e-3, 5e-4),
        (1_000.0, 1e-3, 8e-4),  # close to its capacity
        (20_000.0, 50e-6, 1e-6),  # fixed cost dominates
        (1e6, 50e-6, 0.8e-6),  # batches of hundreds
    ],
)
def test_waits_and_responses_agree_with_a_simulated_server(rate: float, fixed: float, marginal: float) -> None:
    # Batches are long-lived close to capacity: of 600,000 messages the 0.999-quantile is known within some percent.
    waits, responses = batch_server_times(rate, fixed, marginal, 600_000, 3)
    server = BatchServer(rate, fixed, marginal)
    assert server.mean_wait() == pytest.approx(waits.mean(), rel=0.02)
    assert server.mean_response() == pytest.approx(responses.mean(), rel=0.02)
    for p, tolerance in ((0.5, 0.03), (0.99, 0.03), (0.999, 0.08)):
        assert server.wait_quantile(p) == pytest.approx(float(np.quantile(waits, p)), rel=tolerance, abs=1e-12)
        assert server.response_quantile(p) == pytest.approx(float(np.quantile(responses, p)), rel=tolerance)


def test_tails_are_those_of_the_quantiles() -> None:
    server = BatchServer(1_000.0, 1e-3, 5e-4)
    assert server.wait_tail(server.wait_quantile(0.99)) == pytest.approx(0.01, rel=1e-3)
    assert server.response_tail(server.response_quantile(0.99)) == pytest.approx(0.01, rel=1e-3)
    assert server.wait_tail(0.0) == pytest.approx(server.busy(), rel=1e-9)  # Poisson arrivals see time averages


def test_the_mean_batch_grows_with_load() -> None:
    sizes = [BatchServer(rate, 1e-3, 1e-4).mean_batch() for rate in (1.0, 1_000.0, 9_000.0)]
    assert sizes[0] == pytest.approx(1, rel=0.01)
    assert sizes == sorted(sizes)
    assert sizes[2] == pytest.approx(9 / (1 - 0.9), rel=0.05)


def test_huge_batches_are_solved_as_normal_ones() -> None:
    """The chain and its normal limit agree where both can be computed: just below and above the number of states."""
    chain, normal = BatchServer(1e6, 220e-6, 0.9e-6), BatchServer(1e6, 420e-6, 0.9e-6)
    assert chain.mean_batch() == pytest.approx(220 / 0.1, rel=1e-3)
    assert normal.mean_batch() == pytest.approx(420 / 0.1, rel=1e-3)
    assert normal.wait_quantile(0.99) / chain.wait_quantile(0.99) == pytest.approx(420 / 220, rel=0.02)


def test_sharing_the_fixed_cost_beats_one_by_one_service() -> None:
    one_by_one = SingleServer(600, Moments(1.5e-3, 1.5e-3**2, 1.5e-3**3))
    assert one_by_one.utilisation == pytest.approx(0.9)
    assert BatchServer(600, 1e-3, 5e-4).wait_quantile(0.99) < one_by_one.quantile(0.99) / 4


def test_more_than_the_capacity_is_refused_with_the_capacity() -> None:
    with pytest.raises(CapacityError, match="fewer than 1000 messages/s"):
        BatchServer(1_000, 1e-3, 1e-3).mean_wait()
    with pytest.raises(CapacityError, match="positive rate"):
        BatchServer(0, 1e-3, 1e-3).mean_wait()
