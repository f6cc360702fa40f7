"""Costs of a loop come out of the times of messages, and the played loop agrees with the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.capacity import (
    CapacityError,
    LoopCosts,
    PauseSeries,
    TimedLoad,
    WakingServer,
    fit_loop,
    loop_ends,
    served_batches,
)
from tests.capacity.queues import WARM_UP, batch_server_times

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def poisson(rate: float, messages: int, seed: int) -> Floats:
    return np.asarray(np.cumsum(np.random.default_rng(seed).exponential(1 / rate, messages)))


def timed(times: Floats, out: Floats) -> TimedLoad:
    return TimedLoad(times, out, np.ones(len(times), np.bool_))


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.9])
def test_one_socket_is_served_in_batches(utilisation: float) -> None:
    costs = LoopCosts(first=120e-6, further=20e-6, wake=0.0)
    rate = utilisation / costs.further
    times = poisson(rate, 20_000, 1)
    _, responses = batch_server_times(rate, costs.first - costs.further, costs.further, len(times), 1)
    assert (loop_ends(costs, times) - times)[WARM_UP:] == pytest.approx(responses, rel=1e-6)


def test_a_socket_for_each_message_is_served_one_by_one_and_pays_for_waking() -> None:
    costs = LoopCosts(first=70e-6, further=1e-6, wake=40e-6)
    rate = 0.6 / costs.first
    times = poisson(rate, 120_000, 2)
    found = loop_ends(costs, times, np.arange(len(times))) - times
    assert found.mean() == pytest.approx(WakingServer(rate, costs.wake, costs.first).mean_response(), rel=0.03)


def test_messages_of_one_socket_share_a_read_and_those_of_others_keep_their_turn() -> None:
    costs = LoopCosts(first=10.0, further=1.0, wake=0.5)
    times, sources = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([7, 8, 9, 8, 7])
    out = loop_ends(costs, times, sources)
    # The second socket holds two messages when its turn comes; the first one gets in line again, behind the others.
    assert out.tolist() == [10.5, 21.5, 31.5, 21.5, 41.5]


def test_a_long_read_is_served_in_parts_and_others_come_between() -> None:
    costs = LoopCosts(first=10.0, further=1.0, wake=0.0, most=3)
    times, sources = np.zeros(6), np.array([7, 7, 7, 7, 7, 8])
    # Three of five, then the other socket, then the rest.
    assert loop_ends(costs, times, sources).tolist() == [12.0, 12.0, 12.0, 33.0, 33.0, 22.0]
    bursts = np.repeat(poisson(0.02, 2_000, 4), 5)
    found = fit_loop([timed(bursts, loop_ends(costs, bursts))])
    assert (found.most, found.first, found.further) == pytest.approx((3, 10.0, 1.0))
    # Batches of five are as long as bursts are, which says as much.
    assert fit_loop([timed(bursts[:50], loop_ends(costs._replace(most=np.inf), bursts[:50]))]).most >= 5


def test_a_pause_delays_what_comes_in_it_and_nothing_else() -> None:
    costs = LoopCosts(1.0, 1.0, 0.0, pauses=[PauseSeries(0.5, 1e3, np.array([500.0]), np.array([5.0]))])
    times = np.arange(0.0, 20_000.0, 2.0)
    plain = loop_ends(costs._replace(pauses=()), times) - times
    found = loop_ends(costs, times) - times
    assert (plain == 1.0).all()
    assert 0.001 < (found > 1.0).mean() < 0.1
    assert found.max() >= 5.0


def test_brokers_on_one_processor_take_turns_and_join_what_came_meanwhile() -> None:
    costs = LoopCosts(first=100e-6, further=10e-6, wake=20e-6)
    # The second message comes while the first broker serves the first one, the third while the second broker has both.
    out = loop_ends(costs, np.array([0.0, 50e-6, 300e-6]), brokers=2)
    # First broker until 120, again until 220; second one reads both until 350; then the third message, through both.
    assert out == pytest.approx([350e-6, 350e-6, 590e-6])


def test_a_broker_that_has_the_processor_for_long_gives_way_to_the_next() -> None:
    costs = LoopCosts(first=1e-3, further=1e-3, wake=0.0)
    # More than the first broker can ever take: without slices nothing would come out of the second one before the end.
    times = np.arange(0.0, 0.05, 0.5e-3)
    out = loop_ends(costs, times, brokers=2)
    assert out[0] < 0.02
    assert (np.diff(out) >= 0).all()


def test_costs_and_pauses_come_out_of_the_times_of_messages() -> None:
    random = np.random.default_rng(5)
    told = LoopCosts(
        150e-6,
        18e-6,
        60e-6,
        random.gamma(400, 1 / 400, 500),
        [PauseSeries(4e4, 1.0, np.array([0.2, 0.7]), np.array([2e-3, 3e-3]))],
    )
    loads = []
    for number, utilisation in enumerate((0.2, 0.4, 0.6, 0.8)):
        times = poisson(utilisation / told.further, 20_000, number)
        loads.append(timed(times, loop_ends(told, times, seed=number)))
    found = fit_loop(loads)
    assert (found.first, found.further, found.wake) == pytest.approx((150e-6, 18e-6, 60e-6), rel=0.04)
    assert found.factors.std() == pytest.approx(0.05, rel=0.3)
    for one, load in zip(found.pauses, loads, strict=True):
        assert one.rate == pytest.approx(len(load.sent) / load.sent[-1], rel=0.05)
        assert one.seconds == pytest.approx(load.sent[-1], rel=0.05)
        assert (np.diff(one.begins) > 0).all()
    lengths = np.concatenate([one.lengths for one in found.pauses])
    assert len(lengths) / sum(one.seconds for one in found.pauses) == pytest.approx(2, rel=0.6)
    assert lengths.mean() == pytest.approx(2.5e-3, rel=0.3)
    # A load that was not fitted: with its pauses, and at the same times.
    times = poisson(0.9 / told.further, 60_000, 9)
    meant, predicted = loop_ends(told, times, seed=1) - times, loop_ends(found, times, seed=2) - times
    assert predicted.mean() == pytest.approx(meant.mean(), rel=0.15)


def test_batches_that_met_a_disturbance_do_not_count() -> None:
    sent, out = np.array([0.0, 0.0, 5.0, 6.0]), np.array([1.0, 1.0, 7.0, 9.0])
    every = served_batches(timed(sent, out))
    assert every.messages.tolist() == [2, 1, 1]
    assert every.seconds.tolist() == [1.0, 2.0, 2.0]
    assert every.rested.tolist() == [True, True, False]
    assert every.ends.tolist() == [1.0, 7.0, 9.0]
    counted = served_batches(TimedLoad(sent, out, np.array([True, False, True, True])))
    assert counted.seconds.tolist() == [2.0, 2.0]
    # The first second, in which nothing counts, is cut out.
    assert counted.ends.tolist() == [6.0, 8.0]


def test_reads_of_one_message_do_not_tell_what_a_further_one_costs() -> None:
    times = poisson(2_000, 5_000, 3)
    costs = LoopCosts(80e-6, 0.0, 30e-6)
    found = fit_loop([timed(times, loop_ends(costs, times, np.arange(len(times))))])
    assert found.further == 0
    assert (found.first, found.wake) == pytest.approx((80e-6, 30e-6), rel=0.01)


def test_batches_of_several_sockets_that_are_seen_at_once_count_as_so_many_reads() -> None:
    times, costs = poisson(8_000, 20_000, 3), LoopCosts(80e-6, 0.0, 30e-6)
    sources = np.arange(len(times)) % 100
    out = loop_ends(costs, times, sources)
    # Who waits for messages looks every 200 microseconds only.
    seen = 200e-6 * np.ceil(out / 200e-6)
    found = fit_loop([TimedLoad(times, seen, np.ones(len(times), np.bool_), sources)])
    assert found.first == pytest.approx(80e-6, rel=0.1)
    blind = fit_loop([timed(times, seen)])
    assert blind.first != pytest.approx(80e-6, rel=0.5)


def test_a_few_batches_are_refused() -> None:
    with pytest.raises(CapacityError, match="4 at least"):
        fit_loop([timed(np.arange(3.0), np.arange(3.0) + 0.5)])
    with pytest.raises(CapacityError, match="without messages"):
        served_batches(timed(np.zeros(0), np.zeros(0)))


def test_a_machine_that_pauses_all_the_time_is_taken_as_it_is() -> None:
    sent = np.arange(40.0)
    out = sent + np.where(np.arange(40) % 4 == 0, 0.001, np.linspace(0.1, 0.9, 40))
    found = fit_loop([timed(sent, out)])
    assert 0.1 < found.first + found.wake < 0.9
    assert sum(len(one.lengths) for one in found.pauses) < 20
