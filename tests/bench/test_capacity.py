"""The check of the capacity model: its arithmetic on made-up figures, and a short run of all of it on a real broker."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bench.capacity import is_white, recording_overhead, throughput_errors
from bench.capacity_waits import (
    KINDS,
    Calibrated,
    Kind,
    Round,
    Seen,
    calibrations,
    measure_waits,
    measured_load,
    noise_in,
    predicted_loads,
)
from bench.kept_rounds import keep_rounds, kept_rounds
from bench.measured_brokers import running
from bench.open_loop import MOST_MESSAGES, SLICE_SECONDS, OpenLoop, Passed, arrival_times, quiet_messages
from bench.wait_table import wait_errors

from postroad.capacity import BatchCosts, LoopCosts, PauseSeries, loop_ends
from postroad.lab.calibration import Cell, MeasuredCell, Programme, batch_messages, message_bytes

if TYPE_CHECKING:
    from pathlib import Path

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


def played(kind: Kind, costs: LoopCosts, rate: float, seed: int, slower: float = 1.0, messages: int = 20_000) -> Seen:
    """A run as a loop with these costs would serve it, or one that takes so many times as long."""
    times = arrival_times(rate, messages / rate, kind.burst, seed)
    ends = loop_ends(costs, times, np.arange(len(times)) % kind.publishers, seed, kind.brokers)
    out = ends if slower == 1 else times + slower * (ends - times)
    every = np.ones(len(times), np.bool_)
    return Seen(kind.burst, Passed(times, out, np.zeros(len(times)), every), 0.6 * float(times[-1]))


def made_rounds(kind: Kind, costs: LoopCosts, count: int) -> tuple[float, list[Round]]:
    """What is a utilisation of 1, and so many rounds of loads, each of a second at most."""
    most = 1 / (kind.brokers * costs.first if kind.one_by_one else costs.further)
    messages = 4_000 if kind.brokers > 1 else 20_000

    def between(number: int) -> list[Seen]:
        shares = enumerate((0.2, 0.4, 0.6, 0.8))
        return [played(kind, costs, share * most, 10 * number + place, 1.0, messages) for place, share in shares]

    return most, [
        Round(between(number), [played(kind, costs, 0.7 * most, 100 + number, 1.0, messages)])
        for number in range(1, count + 1)
    ]


def test_loads_that_a_loop_serves_are_predicted_from_other_loads() -> None:
    # Two pauses in a row, eight times a second.
    begins = (0.125 * np.arange(8)[:, None] + np.array([0.05, 0.053])).ravel()
    pauses = [PauseSeries(1e4, 1.0, begins, np.full(len(begins), 2e-3))]
    costs = LoopCosts(150e-6, 15e-6, 40e-6, pauses=pauses)
    loads = []
    for kind in KINDS:
        most, rounds = made_rounds(kind, costs, 3)
        for found in calibrations(kind, rounds):
            # The ends of a line do not tell well what of a read is its waking.
            assert found.capacity(kind) == pytest.approx(most, rel=0.1 if kind.brokers == 1 else 0.3)
            assert sum(len(one.lengths) for one in found.costs.pauses) > 2
        loads += predicted_loads(kind, rounds)
    found_errors = wait_errors(loads)
    assert found_errors["mean_wait_error"] < 0.2
    assert found_errors["replayed_mean_wait_error"] < 0.2
    assert found_errors["p99_wait_error"] < 0.2
    assert found_errors["mean_wait_error_many_publishers"] < 0.15
    assert found_errors["mean_wait_error_three_brokers"] < 0.4
    assert [load.variation for load in loads] == pytest.approx([1.0] * len(loads), rel=0.1)
    json.dumps(found_errors)


def test_waits_are_medians_over_rounds_and_endless_queues_are_told() -> None:
    kind, costs = KINDS[0], LoopCosts(150e-6, 15e-6, 40e-6)
    each, rate = 100e-6, 0.5 / 15e-6
    rounds = [(Calibrated(costs, each), played(kind, costs, rate, seed)) for seed in range(3)]
    load = measured_load(kind, rounds)
    # Each run was played with the seed by which it is predicted.
    assert load.errors(load.replayed) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert load.errors(load.ours)[0] < 0.1
    assert load.noise.p99 < 0.2
    # One round of three that was disturbed does not matter, two do.
    slow = [(one, played(kind, costs, rate, 9, 5.0)) for one, _ in rounds]
    assert measured_load(kind, [slow[0], *rounds[1:]]).measured.mean < 1.2 * load.measured.mean
    assert measured_load(kind, [*slow[:2], rounds[2]]).measured.mean > 3 * load.measured.mean
    # More than the paper's form says that a broker carries: by it nobody ever comes out.
    found = wait_errors([load])
    assert (found["linear_mean_wait_error"], found["linear_endless"]) == (None, 1)


def test_noise_is_how_much_rounds_differ() -> None:
    random = np.random.default_rng(3)
    alike = [random.exponential(1.0, 10_000) for _ in range(9)]
    unlike = [factor * part for factor, part in zip(np.linspace(0.5, 1.5, 9), alike, strict=True)]
    # Means of 10,000 exponential times differ by 0.01; the median distance of these factors from theirs is 0.25.
    assert 0 < noise_in(alike).mean < 2 * 1.25 * 0.01 / 3
    assert noise_in(unlike).mean == pytest.approx(1.25 * 1.48 * 0.25 / 3, rel=0.1)


def test_what_was_measured_is_kept_and_predicted_again(tmp_path: Path) -> None:
    kind = KINDS[1]
    _, rounds = made_rounds(kind, LoopCosts(150e-6, 15e-6, 40e-6), 1)
    keep_rounds(tmp_path / "kept", {kind.name: rounds})
    again = kept_rounds(tmp_path / "kept", [one.name for one in KINDS])
    assert list(again) == [kind.name]
    assert predicted_loads(kind, again[kind.name]) == predicted_loads(kind, rounds)
    with pytest.raises(SystemExit, match="no measurements of poisson"):
        kept_rounds(tmp_path / "kept", ["poisson"])


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
        loads = [load for kind in kinds for load in predicted_loads(kind, measure_waits(kind, servers, 0.02, 1))]
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
