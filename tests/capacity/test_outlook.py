"""The limit is seen coming where load grows for certain, and not where it merely has its daily rhythm."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest

from postroad.capacity import ROUND_MS, LoadHistory
from postroad.capacity.outlook import HISTORY_HOURS, HOUR_MS

# A Monday.
MONDAY = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1_000)
ROUNDS_OF_A_DAY = 144


def history(days: float, growth: float, top: float, noise: float = 0.0, until: int = MONDAY) -> LoadHistory:
    """So many days until a time: load with a peak at noon, which is `top` on the last day."""
    random = np.random.default_rng(3)
    found = LoadHistory()
    rounds = round(days * ROUNDS_OF_A_DAY)
    for number in range(rounds):
        at = until - (rounds - number) * ROUND_MS
        day = (at - until) / 86_400_000 + 0.5
        rhythm = 0.4 + 0.6 * math.sin(math.pi * (at % 86_400_000) / 86_400_000)
        found.add(at, max(0.0, (top + growth * day) * rhythm * (1 + noise * random.standard_normal())))
    return found


def test_growth_reaches_the_limit_on_thursday() -> None:
    forecast = history(10, 0.08, 0.7).forecast(MONDAY)
    assert forecast is not None
    assert forecast.load == pytest.approx(0.7, rel=0.02)
    assert forecast.low > 0
    assert forecast.is_due
    assert forecast.growth == pytest.approx(0.08, rel=0.05)
    assert forecast.days == pytest.approx(0.3 / 0.08, rel=0.1)
    assert "at this growth the limit is reached on Thursday, on " in forecast.warning(MONDAY)


@pytest.mark.parametrize(("days", "growth"), [(14, 0.0), (14, -0.02), (3, 0.1), (0.5, 0.0)])
def test_a_daily_rhythm_or_a_short_history_is_no_growth(days: float, growth: float) -> None:
    forecast = history(days, growth, 0.8, noise=0.05).forecast(MONDAY)
    assert forecast is not None
    assert not forecast.is_due
    assert forecast.warning(MONDAY) == ""
    assert forecast.days == math.inf


def test_growth_that_chance_explains_is_not_told() -> None:
    false_alarms = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        found = LoadHistory()
        for day in range(14):
            level = 0.7 * (1 + 0.1 * random.standard_normal())  # whole days vary together
            for number in range(ROUNDS_OF_A_DAY):
                found.add(MONDAY - (14 - day) * 86_400_000 + number * ROUND_MS, level)
        forecast = found.forecast(MONDAY)
        assert forecast is not None
        false_alarms += forecast.load < 1 and forecast.is_due
    assert false_alarms <= 3  # 2.5 % of 40 is one


def test_growth_that_takes_longer_than_the_horizon_is_not_told() -> None:
    forecast = history(14, 0.005, 0.4).forecast(MONDAY)
    assert forecast is not None
    assert forecast.days > 30
    assert forecast.warning(MONDAY) == ""
    later = history(14, 0.02, 0.6).forecast(MONDAY)
    assert later is not None
    assert later.is_due
    assert "December 2026" in later.warning(MONDAY)


def test_a_limit_that_is_reached_is_told_from_the_first_ten_minutes_on() -> None:
    found = LoadHistory()
    assert found.forecast(MONDAY) is None
    found.add(MONDAY, 1.2)
    assert found.forecast(MONDAY) is None  # ten minutes are not over
    forecast = found.forecast(MONDAY + ROUND_MS)
    assert forecast is not None
    assert forecast.days == 0
    assert "the limit is reached: the busiest hour of the last day had 120 %" in forecast.warning(MONDAY)


def test_looks_are_averaged_and_a_clock_that_is_set_back_adds_nothing() -> None:
    found = LoadHistory()
    for load in (0.2, 0.4):
        found.add(MONDAY, load)
    found.add(MONDAY - ROUND_MS, 9.0)
    forecast = found.forecast(MONDAY + ROUND_MS)
    assert forecast is not None
    assert forecast.load == pytest.approx(0.3)


def test_a_fortnight_is_kept() -> None:
    found = history(40, 0.0, 0.5)
    found.add(MONDAY, 0.5)
    assert len(found) == HISTORY_HOURS
    found.add(MONDAY + 100 * 24 * HOUR_MS, 0.5)
    found.add(MONDAY + 101 * 24 * HOUR_MS, 0.5)
    assert len(found) == 1
