"""Medians, ratios and losses of the broker benchmark."""

from __future__ import annotations

import pytest
from bench.load import Outcome
from bench.scores import BEFORE, TARGETS, Scores

ONE_TO_ONE = next(target for target in TARGETS if target.name == "vs_nats_1_1")


def outcome(rate: float, cpu: float = 1.0, lost: int = 0) -> Outcome:
    return Outcome(rate, rate, cpu, cpu, generator_busy=0.1, others_busy=0.2, sent=10, lost=lost)


def scores(ours: list[Outcome], theirs: list[Outcome]) -> Scores:
    kept = Scores()
    for name, outcomes in (("postroad", ours), ("nats", theirs)):
        for each in outcomes:
            kept.add("1_1", name, each)
    return kept


def test_ratio_is_of_medians_and_not_moved_by_one_disturbed_round() -> None:
    kept = scores([outcome(1.0), outcome(20.0), outcome(22.0)], [outcome(10.0), outcome(10.0), outcome(90.0)])
    assert kept.ratio(ONE_TO_ONE) == 2.0
    assert kept.best_ratio(ONE_TO_ONE) == pytest.approx(22 / 90)


def test_thrift_is_higher_for_the_broker_that_takes_less_processor_time() -> None:
    kept = scores([outcome(1.0, cpu=0.5)], [outcome(1.0, cpu=2.0)])
    assert kept.thrift(ONE_TO_ONE) == 4.0


def test_target_without_its_rival_is_not_run() -> None:
    kept = scores([outcome(1.0)], [])
    assert kept.ratio(ONE_TO_ONE) is None
    assert kept.summary()["vs_nats_1_1"] is None
    assert any("vs_nats_1_1" in line and "not run" in line for line in kept.verdicts())


def test_verdict_names_a_target_that_was_missed() -> None:
    missed = [line for line in scores([outcome(1.0)], [outcome(2.0)]).verdicts() if "vs_nats_1_1 " in line]
    reached = [line for line in scores([outcome(2.0)], [outcome(2.0)]).verdicts() if "vs_nats_1_1 " in line]
    assert missed[0].endswith("missed")
    assert not reached[0].endswith("missed")


def test_losses_and_doubles_do_not_cancel_out() -> None:
    assert scores([outcome(1.0, lost=3)], [outcome(1.0, lost=-3)]).lost == 6


def test_an_earlier_version_is_compared_round_by_round() -> None:
    found = Scores()
    # The machine was half as fast in the second round, for both.
    for rate, cpu in ((100.0, 1.0), (50.0, 2.0), (100.0, 1.0)):
        found.add("1_1", "postroad", outcome(1.1 * rate, 0.9 * cpu))
        found.add("1_1", BEFORE, outcome(rate, cpu))
    ratios = found.against_before()["1_1"]
    assert (ratios["messages"], ratios["processor_time"]) == pytest.approx((1.1, 0.9))
    assert "against the earlier version" in next(found.verdicts())
    assert found.summary()["against_before"] == found.against_before()


def test_rounds_without_a_tick_of_processor_time_are_left_out() -> None:
    found = Scores()
    for cpu in (1.0, 0.0):
        found.add("latency", "postroad", outcome(1.0, 0.5))
        found.add("latency", BEFORE, outcome(1.0, cpu))
    assert found.against_before()["latency"] == {"messages": 1.0, "processor_time": 0.5, "user_time": 0.5}
