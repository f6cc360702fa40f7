"""A live broker's observations become costs, a predicted wait and a measured one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from postroad.capacity import (
    LIMIT_UTILISATION,
    LIMIT_WAIT_SECONDS,
    PROBE_RESOLUTION_SECONDS,
    BatchServer,
    CapacityMonitor,
    Observations,
    ReadCosts,
    assess,
    fit_reads,
    limit_rate,
)
from postroad.capacity.monitor import FEWEST_READS, PROBE_WINDOW_SECONDS, READS_KEPT

FIXED, MARGINAL = 40e-6, 2e-6


def observed(monitor: CapacityMonitor, messages: int, seconds: float) -> Observations:
    monitor.look(0, 100.0)
    seen = monitor.look(messages, 100.0 + seconds)
    assert seen is not None
    return seen


def fed(monitor: CapacityMonitor, reads: int, sources: int = 1) -> None:
    random = np.random.default_rng(5)
    for number in range(reads):
        size = int(random.integers(1, 50))
        took = (FIXED + MARGINAL * size) * random.uniform(0.9, 1.1)
        monitor.timed(size, took, number % sources)


def test_costs_of_reads_and_messages_are_told_apart() -> None:
    monitor = CapacityMonitor()
    fed(monitor, 3 * READS_KEPT)
    found = assess(observed(monitor, 600_000, 60.0))
    assert found.costs is not None
    assert found.costs.identified
    assert found.costs.fixed == pytest.approx(FIXED, rel=0.03)
    assert found.costs.marginal == pytest.approx(MARGINAL, rel=0.03)
    assert (found.rate, found.sources) == (10_000, 1)
    assert found.utilisation == pytest.approx(10_000 * MARGINAL, rel=0.03)
    assert found.predicted_p99 == pytest.approx(BatchServer(10_000, FIXED, MARGINAL).wait_quantile(0.99), rel=0.05)
    assert found.load == pytest.approx(found.utilisation / LIMIT_UTILISATION)


def test_reads_of_one_size_are_charged_to_their_messages() -> None:
    ones = np.ones(50)
    found = fit_reads(ones, ones, FIXED * ones)
    assert found.marginal == pytest.approx(FIXED)
    assert found == (0.0, found.marginal, False)
    # A cost of reads that least squares would make negative is 0, and one of messages is never 0.
    assert fit_reads(np.ones(2), np.array([1.0, 10.0]), np.array([1.0, 20.0])).fixed == 0
    assert fit_reads(np.ones(2), np.array([1.0, 10.0]), np.array([2.0, 1.0])).marginal > 0


def test_too_few_reads_say_nothing_but_what_probes_measured() -> None:
    monitor = CapacityMonitor()
    fed(monitor, FEWEST_READS - 1)
    monitor.probed(0.02, 100.0)
    found = assess(observed(monitor, 600, 60.0))
    assert found.costs is None
    assert math.isnan(found.predicted_p99)
    assert math.isnan(found.load)
    assert found.measured_p99 == pytest.approx(0.02, rel=0.1)
    assert found.probes == 1


def test_measured_quantile_is_that_of_recent_probes() -> None:
    monitor = CapacityMonitor()
    for _ in range(1_000):
        monitor.probed(5.0, 0.0)
    late = np.random.default_rng(2).exponential(0.01, 5_000)
    for turn in (1, 2):
        for one in late:
            monitor.probed(float(one), turn * 2 * PROBE_WINDOW_SECONDS)
    found = assess(observed(monitor, 1, 1.0))
    assert found.probes == 10_000  # what was before the window and the one before it is gone
    assert found.measured_p99 == pytest.approx(float(np.quantile(late, 0.99)), rel=0.1)
    monitor.probed(1e9, 4 * PROBE_WINDOW_SECONDS)  # a machine that slept is no reason to fail


def test_waits_below_the_resolution_of_timers_are_given_as_the_resolution() -> None:
    monitor = CapacityMonitor()
    monitor.probed(0.0, 0.0)
    assert assess(observed(monitor, 1, 1.0)).measured_p99 == PROBE_RESOLUTION_SECONDS


def test_sources_count_by_their_part_of_the_messages() -> None:
    monitor = CapacityMonitor()
    fed(monitor, READS_KEPT, sources=16)
    assert observed(monitor, 1, 1.0).sources == pytest.approx(16, rel=0.1)
    skewed = CapacityMonitor()
    for number in range(100):
        skewed.timed(1_000 if number % 2 else 1, 1e-3, 7 if number % 2 else number)
    assert observed(skewed, 1, 1.0).sources == pytest.approx(1, rel=0.01)


def test_more_than_a_broker_carries_waits_without_end() -> None:
    monitor = CapacityMonitor()
    fed(monitor, READS_KEPT)
    found = assess(observed(monitor, 60_000_000, 60.0))
    assert found.predicted_p99 == math.inf
    assert found.load > 1 / LIMIT_UTILISATION
    assert assess(observed(monitor, 0, 60.0)).predicted_p99 == 0


def test_many_sources_reach_the_limit_by_their_waits() -> None:
    costs = ReadCosts(50e-6, 1e-6, True)
    assert limit_rate(costs, 1) == pytest.approx(LIMIT_UTILISATION / 1e-6)
    many = limit_rate(costs, 10_000)
    assert many < 0.1 * limit_rate(costs, 1)
    assert BatchServer(many, 50e-6, 1e-6, 10_000).turn_seconds() == pytest.approx(LIMIT_WAIT_SECONDS, rel=0.05)


def test_the_first_look_only_remembers() -> None:
    monitor = CapacityMonitor()
    assert monitor.look(10, 5.0) is None
    assert monitor.look(10, 5.0) is None
    seen = monitor.look(30, 15.0)
    assert seen is not None
    assert seen.rate == 2
