"""Waiting times: formulas against simulations, and every number that the paper prints."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import (
    Binomial,
    CapacityError,
    Moments,
    ScaledBernoulli,
    ServiceTime,
    SeveralServers,
    SingleServer,
    admitted_share,
    erlang_c,
    highest_rate,
    waiting_quantile,
    waiting_tail,
)

# The paper's Table I.
CORRELATION = ServiceTime(8.52e-7, 7.02e-6, 1.70e-5)
PROPERTY = ServiceTime(4.10e-6, 1.46e-5, 1.62e-5)
# A fixed part and a part per copy of equal size: variation comes from the grade alone.
HALVES = ServiceTime(1.0, 0.0, 1.0)


def service_with(mean: float, variation: float) -> Moments:
    """A service time of two values, as a scaled Bernoulli grade makes: nothing or twice the mean and more."""
    second = mean**2 * (1 + variation**2)
    return Moments(mean, second, second**2 / mean) if variation else Moments(mean, mean**2, mean**3)


@pytest.mark.parametrize("utilisation", [0.3, 0.9])
def test_memoryless_services_wait_exponentially(utilisation: float) -> None:
    queue = SingleServer(utilisation, Moments(1, 2, 6))
    gamma = queue.wait()
    assert gamma.shape == pytest.approx(1)
    for seconds in (0.5, 5.0, 40.0):
        wanted = utilisation * np.exp(-(1 - utilisation) * seconds)
        assert 1 - gamma.at_most(seconds) == pytest.approx(wanted, rel=1e-9)
        assert waiting_tail(utilisation, lambda s: 1 / (1 + s), utilisation, seconds) == pytest.approx(wanted, abs=1e-8)


def test_constant_services_wait_as_the_closed_form_says() -> None:
    # P(W <= t) of M/D/1 for t below one service: (1 - rho) exp(rate t).
    for seconds in (0.1, 0.4):
        wanted = 1 - 0.3 * np.exp(0.7 * seconds)
        assert waiting_tail(0.7, lambda s: np.exp(-s), 0.7, seconds) == pytest.approx(wanted, abs=1e-3)


def test_quantiles_at_or_below_the_share_that_does_not_wait_are_zero() -> None:
    queue = SingleServer(0.4, Moments(1, 1, 1))
    assert queue.quantile(0.6) == 0
    assert queue.quantile(0.61) > 0
    assert waiting_quantile(0.4, lambda s: np.exp(-s), 0.4, 0.6, 1.0) == 0


def test_filters_pay_as_the_paper_says() -> None:
    assert [CORRELATION.paying_probability(n) for n in (1, 2, 3)] == pytest.approx([0.587, 0.174, 0.0], abs=5e-4)
    assert PROPERTY.paying_probability(1) == pytest.approx(0.099, abs=5e-4)
    assert CORRELATION.filters_pay(1, 0.58)
    assert not CORRELATION.filters_pay(1, 0.59)


def test_copies_cost_as_many_filters_as_the_paper_says() -> None:
    # Unfiltered copies R - 1 that cost as much as n filters: 22 and 240 for 10 and 100 copies.
    assert [(copies - 1) * CORRELATION.send / CORRELATION.match for copies in (10, 100)] == pytest.approx(
        [21.8, 239.7], abs=0.05
    )


def test_variation_of_the_service_time_is_bounded() -> None:
    assert CORRELATION.greatest_variation() == pytest.approx(0.6546, abs=5e-5)
    assert PROPERTY.greatest_variation() == pytest.approx(0.382, abs=5e-4)
    reached = max(CORRELATION.moments(10**7, ScaledBernoulli(10**7, p)).variation for p in np.linspace(0.01, 0.99, 981))
    assert reached == pytest.approx(CORRELATION.greatest_variation(), rel=1e-4)


def test_variation_of_binomial_grades_vanishes_with_many_filters() -> None:
    variations = [CORRELATION.moments(n, Binomial(n, 0.1)).variation for n in (83, 8300)]
    assert variations[0] == pytest.approx(0.064, abs=2e-3)  # the paper calls this a limit
    assert variations[0] / variations[1] == pytest.approx(10, rel=0.02)


def test_throughput_anchors_follow_from_table_1() -> None:
    def overall(costs: ServiceTime, extra: int, copies: int) -> float:
        return (copies + 1) * costs.capacity(extra + copies, copies, utilisation=1)

    assert [overall(CORRELATION, n, r) for r in (1, 40) for n in (5, 160)] == pytest.approx(
        [33_349, 1_742, 41_134, 19_666], rel=2e-3
    )
    assert [overall(PROPERTY, n, r) for r in (1, 40) for n in (5, 160)] == pytest.approx(
        [18_536, 844, 31_319, 11_478], rel=2e-3
    )


def test_waits_at_ninety_percent_are_those_of_figures_10_and_12() -> None:
    for variation, mean, most in ((0.0, 4.50, 43.4), (0.2, 4.68, 46.0), (0.4, 5.22, 59.0)):
        queue = SingleServer(0.9, service_with(1.0, variation))
        assert queue.mean_wait() == pytest.approx(mean, abs=0.005)
        assert queue.quantile(0.9999) == pytest.approx(most, rel=0.15)
    assert SingleServer(0.9, service_with(1.0, 0.0)).quantile(0.9999) == pytest.approx(43.4, abs=0.1)
    assert SingleServer(0.9, service_with(1.0, 0.0)).quantile(0.99) == pytest.approx(21.8, abs=0.1)


def test_a_service_of_20_ms_carries_45_messages_a_second() -> None:
    assert ServiceTime(0.020, 0, 0).capacity(0, 0, utilisation=0.9) == pytest.approx(45)
    filters = [(0.020 - costs.receive - costs.send) / costs.match for costs in (PROPERTY, CORRELATION)]
    assert [round(one) for one in filters] == [1368, 2846]  # the paper prints 1369 and 2845
    queue = SingleServer(45, service_with(0.020, 0.0))
    assert queue.quantile(0.9999) < 1.0


def test_an_overloaded_server_is_refused_with_what_it_carries() -> None:
    with pytest.raises(CapacityError, match=r"busy 110 % .* fewer than 1000 messages/s"):
        SingleServer(1100, Moments(1e-3, 1e-6, 1e-9)).mean_wait()
    with pytest.raises(CapacityError, match="is not the probability"):
        SingleServer(1, Moments(1e-3, 1e-6, 1e-9)).quantile(1.0)


def test_erlang_c_has_known_values() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)
    with pytest.raises(CapacityError, match="2 servers cannot carry"):
        erlang_c(2, 2.0)


def test_one_of_several_servers_is_the_single_server() -> None:
    moments = HALVES.moments(0, ScaledBernoulli(4, 0.5))
    assert SeveralServers(1, 0.25, moments).wait() == SingleServer(0.25, moments).wait()
    assert SeveralServers(1, 0.25, moments).mean_wait() == pytest.approx(SingleServer(0.25, moments).mean_wait())


def test_the_highest_rate_keeps_the_promise_and_no_higher_one_does() -> None:
    service = Moments(1e-3, 1e-6, 1e-9)

    def wait(rate: float) -> float:
        return SingleServer(rate, service).quantile(0.99)

    highest = highest_rate(wait, 0.010, 1 / service.first)
    assert wait(highest) <= 0.010 < wait(highest + 1)


def test_admission_follows_the_model_or_else_the_measurement() -> None:
    assert admitted_share(1000, measured=0.04, promise=0.05, highest=500) == 1
    assert admitted_share(1000, measured=0.06, promise=0.05, highest=500) == 0.5
    assert admitted_share(400, measured=0.10, promise=0.05, highest=500) == 0.5
