"""The check of the capacity model: its arithmetic on made-up figures, and a short run of all of it on a real broker."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from bench.capacity import is_white, recording_overhead, throughput_errors
from bench.capacity_waits import (
    KINDS,
    Calibrated,
    Kind,
    Seen,
    calibrated,
    measure_waits,
    measured_load,
    with_all_pauses,
)
from bench.measured_brokers import running
from bench.open_loop import MOST_MESSAGES, SLICE_SECONDS, OpenLoop, Passed, arrival_times, quiet_messages
from bench.wait_table import wait_errors

from postroad.capacity import BatchCosts, LoopCosts, loop_ends
from postroad.lab.calibration import Cell, MeasuredCell, Programme, batch_messages, message_bytes

PROGRAMME = Programme((0, 100, 1_000), (0, 1, 4), (100, 1_000), (1, 16, 256))
COSTS = BatchCosts(batch=40e-6, write=8e-6, receive=5e-7, lookup=3e-8, send=3e-7, byte=2e-10, sent_byte=1e-9)


def made_up(cell: Cell) -> MeasuredCell:
    """A load as a broker with these costs would carry it."""
    batch = batch_messages(cell)
    each = COSTS.marginal(cell.subscriptions + cell.copies, cell.copies, message_bytes(cell))
    bursts = 1_000
    seconds = bursts * cell.burst / batch * (COSTS.fixed(cell.copies) + batch * each)
    return MeasuredCell(cell, bursts, seconds, seconds, seconds)


def test_the_half_that_was_not_fitted_is_predicted() -> None:
    measured = [made_up(cell) for number in PROGRAMME.subscriptions for cell in PROGRAMME.cells(number)]
    white = [one for one in measured if is_white(one, PROGRAMME)]
    assert len(white) == pytest.approx(len(measured) / 2, rel=0.1)
    found = throughput_errors(measured, PROGRAMME)
    assert found["throughput_error"] < 0.02
    assert found["linear_throughput_error"] > found["throughput_error"]
    assert (found["saturated_loads"], found["loads_without_saturation"]) == (9, 0)


def test_loads_that_the_generator_could_not_saturate_do_not_count() -> None:
    measured = [made_up(cell) for number in PROGRAMME.subscriptions for cell in PROGRAMME.cells(number)]
    slow = [one._replace(seconds=2 * one.seconds) if one.cell.copies == 4 else one for one in measured]
    found = throughput_errors(slow, PROGRAMME)
    assert found["loads_without_saturation"] > 0
    assert found["throughput_error"] < 0.02


def played(kind: Kind, costs: LoopCosts, rate: float, seed: int, slower: float = 1.0) -> Seen:
    """A run as a loop with these costs would serve it, or one that takes so many times as long."""
    times = arrival_times(rate, 20_000 / rate, kind.burst, seed)
    ends = loop_ends(costs, times, np.arange(len(times)) % kind.publishers, seed)
    out = ends if slower == 1 else times + slower * (ends - times)
    every = np.ones(len(times), np.bool_)
    return Seen(kind.burst, Passed(times, out, np.zeros(len(times)), every), 0.6 * float(times[-1]))


def test_loads_that_a_loop_serves_are_predicted_from_other_loads() -> None:
    costs = LoopCosts(150e-6, 15e-6, 40e-6, pauses=np.array([1e-3]), observed=0.5)
    loads = []
    for kind in KINDS:
        most = 1 / (costs.first if kind.one_by_one else costs.further)
        found = calibrated([played(kind, costs, share * most, 10) for share in (0.2, 0.4, 0.6, 0.8)])
        assert found.capacity(kind) == pytest.approx(most, rel=0.1)
        (with_pauses,) = with_all_pauses([found])
        loads.append(measured_load(kind, [(with_pauses, played(kind, costs, 0.7 * most, 0))]))
    found_errors = wait_errors(loads)
    assert found_errors["mean_wait_error"] < 0.1
    assert found_errors["replayed_mean_wait_error"] < 0.1
    assert found_errors["p99_wait_error"] < 0.2
    assert found_errors["mean_wait_error_many_publishers"] < 0.15
    assert [load.variation for load in loads] == pytest.approx([1.0] * len(loads), rel=0.1)
    json.dumps(found_errors)


def test_errors_of_waits_are_medians_over_rounds_and_endless_queues_are_told() -> None:
    kind, costs = KINDS[0], LoopCosts(150e-6, 15e-6, 40e-6)
    each, rate = 100e-6, 0.5 / 15e-6
    slower = [played(kind, costs, rate, seed, by) for seed, by in ((1, 1.0), (2, 5.0), (3, 1.0))]
    load = measured_load(kind, [(Calibrated(costs, each), seen) for seen in slower])
    assert load.replayed_errors == pytest.approx((0.0, 0.0), abs=1e-9)
    assert load.errors[0] < 0.1
    # More than the paper's form says that a broker carries: by it nobody ever comes out.
    found = wait_errors([load])
    assert (found["linear_mean_wait_error"], found["linear_endless"]) == (None, 1)


def test_bursts_leave_together_at_random_times() -> None:
    times = arrival_times(1_000, 100, 8, 3)
    assert len(times) == 100_000
    assert len(np.unique(times)) == 12_500
    assert times[-1] == pytest.approx(100, rel=0.05)
    assert np.array_equal(times, arrival_times(1_000, 100, 8, 3))
    assert len(arrival_times(1e9, 100, 8, 3)) == MOST_MESSAGES


def test_messages_around_a_stall_of_the_machine_do_not_count() -> None:
    ends = SLICE_SECONDS * np.arange(1, 11)
    waited = np.where(np.arange(10) >= 4, 0.01, 0.0)  # in the fifth slice a broker had no processor
    slices = [(float(end), 1e-5, float(wait)) for end, wait in zip(ends, waited, strict=True)]
    handed = np.asarray(ends - SLICE_SECONDS / 2, np.float64)
    assert quiet_messages(handed, slices).tolist() == [True] * 3 + [False] * 4 + [True] * 3


def test_measuring_costs_a_known_share() -> None:
    assert 0 < recording_overhead(1.0) < recording_overhead(1e-9)


def test_a_short_run_through_a_real_broker_gives_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with running(1, os.sched_getaffinity(0)) as servers:
        # Without costly selectors: this is about all steps of a run, not about its figures.
        kinds = [kind._replace(selectors=3) for kind in KINDS if kind.brokers == 1]
        loads = [load for kind in kinds for load in measure_waits(kind, servers, 0.02, 1)]
        with OpenLoop(servers[0].port, servers[0].port, 3, 2) as line:  # three selectors, two publishers
            line.settle()
            passed = line.run(arrival_times(2_000, 0.1, 1, 7))
    assert len(loads) == 9
    assert len(passed.seconds) == 200
    assert (passed.seconds > 0).all()
    assert (passed.late >= 0).all()
    assert 1 <= len(np.unique(passed.out)) <= 200
    assert set(wait_errors(loads)) >= {"mean_wait_error", "p99_wait_error", "quiet_share"}
    assert "a read takes" in capsys.readouterr().out
