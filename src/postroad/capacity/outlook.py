"""When a broker will reach its limit if it keeps growing.

The load is a share of the limit: 1 is as much as a broker may carry (`monitor.limit_rate`). It is averaged over ten
minutes, the highest average of each hour is kept, and hours are kept for a fortnight. Load has a daily rhythm, so hours
are compared with the same hour of other days: the growth is the median of all such slopes (the seasonal estimator of
Hirsch, Slack and Smith, after Theil and Sen), which single odd days do not move.

Its interval comes from the ranks of the slopes (Kendall's statistic). Hours of one day are alike, so only days count as
independent: with fewer than four of them there is no interval and no forecast. A limit is ahead only if the whole
interval is above zero.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

__all__ = ["HORIZON_DAYS", "ROUND_MS", "Forecast", "LoadHistory"]

# Hours are judged by averages over this time: shorter peaks are bursts, which queues absorb.
ROUND_MS = 600_000
HOUR_MS = 3_600_000
DAY_HOURS = 24
# A fortnight: two of each weekday, and at most 24 · 14 · 13 / 2 slopes.
HISTORY_HOURS = 14 * DAY_HOURS
# Beyond this, a warning is not useful: growth does not last that long.
HORIZON_DAYS = 30.0
# The 0.975-quantile of the normal distribution: two-sided 95 %.
_Z_95 = 1.959964


class Forecast(NamedTuple):
    """The load and its trend, as shares of the limit.

    Attributes:
        load: the highest hour of the last day.
        growth: per day; NaN while too few days are known.
        low: the lower end of its 95 % interval; NaN while too few days are known.
        high: the upper end.
        days: until the limit is reached at this growth; 0 if it is reached, infinite if it is not ahead.
        latest_days: the same at the lower end of the interval.
    """

    load: float
    growth: float
    low: float
    high: float
    days: float
    latest_days: float

    @property
    def is_due(self) -> bool:
        """Return whether the limit is reached, or will be within the horizon even at the lower end of the growth."""
        return self.latest_days <= HORIZON_DAYS

    def warning(self, now_ms: int) -> str:
        """Return a warning for people; empty if there is none."""
        if not self.is_due:
            return ""
        if self.days <= 0:
            return f"the limit is reached: the busiest hour of the last day had {100 * self.load:.0f} % of it"
        return (
            f"at this growth the limit is reached on {_day(now_ms, self.days)}, on {_day(now_ms, self.latest_days)} at "
            f"the latest: the busiest hour of the last day had {100 * self.load:.0f} % of it, and "
            f"{100 * self.growth:.2g} points are added each day"
        )


class LoadHistory:
    """The busiest ten minutes of each hour of a fortnight. Times only rise; an observation from the past is ignored."""

    def __init__(self) -> None:
        self._hours: dict[int, float] = {}
        self._round = 0
        self._sum = 0.0
        self._looks = 0

    def __len__(self) -> int:
        return len(self._hours)

    def add(self, at_ms: int, load: float) -> None:
        """Add an observation of the load; those within ten minutes are averaged."""
        current = at_ms // ROUND_MS
        if current < self._round:
            return
        if current > self._round:
            self._close()
            self._round, self._sum, self._looks = current, 0.0, 0
        self._sum += load
        self._looks += 1

    def _close(self) -> None:
        """Close the current ten minutes."""
        if not self._looks:
            return
        hour = self._round * ROUND_MS // HOUR_MS
        self._hours[hour] = max(self._hours.get(hour, 0.0), self._sum / self._looks)
        for old in [one for one in self._hours if one <= hour - HISTORY_HOURS]:
            del self._hours[old]

    def forecast(self, now_ms: int) -> Forecast | None:
        """Return the trend of the load; None before the first ten minutes are over."""
        this_hour = now_ms // HOUR_MS
        if self._round < now_ms // ROUND_MS:
            self._close()
            self._looks = 0
        recent = [load for hour, load in self._hours.items() if this_hour - DAY_HOURS < hour <= this_hour]
        if not recent:
            return None
        load = max(recent)
        # The current hour may still become busier.
        growth, low, high = _growth({hour: one for hour, one in self._hours.items() if hour < this_hour})
        if load >= 1:
            return Forecast(load, growth, low, high, 0.0, 0.0)
        # Comparisons with NaN are false.
        days = (1 - load) / growth if low > 0 else math.inf
        return Forecast(load, growth, low, high, days, (1 - load) / low if low > 0 else math.inf)


def _growth(hours: dict[int, float]) -> tuple[float, float, float]:
    """Return the median slope per day, and its interval; NaN for what too few days leave open."""
    if not hours:
        return math.nan, math.nan, math.nan
    first = min(hours) // DAY_HOURS
    days = max(hours) // DAY_HOURS - first + 1
    table = np.full((days, DAY_HOURS), np.nan)
    for hour, load in hours.items():
        table[hour // DAY_HOURS - first, hour % DAY_HOURS] = load
    # A day with only a few known hours does not count as a day; its hours still give slopes.
    known = ~np.isnan(table)
    whole = int(np.sum(known.sum(axis=1) >= DAY_HOURS / 2))
    # Busy hours grow more than quiet ones: each counts in units of its own mean, and the result in those of the
    # busiest. An hour without any load says nothing.
    means = np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    table = np.divide(table, means, out=np.full_like(table, np.nan), where=means > 0)
    slopes = np.concatenate([(table[gap:] - table[:-gap]).ravel() / gap for gap in range(1, days)] or [np.empty(0)])
    slopes = np.sort(slopes[~np.isnan(slopes)])
    pairs = whole * (whole - 1) / 2
    reach = _Z_95 * math.sqrt(whole * (whole - 1) * (2 * whole + 5) / 18)
    if not len(slopes) or reach >= pairs:
        return math.nan, math.nan, math.nan
    shares = (0.5, 0.5 - reach / (2 * pairs), 0.5 + reach / (2 * pairs))
    middle, low, high = (float(means.max() * np.quantile(slopes, share)) for share in shares)
    return middle, low, high


def _day(now_ms: int, days: float) -> str:
    """Return a weekday within a week, a date beyond."""
    when = datetime.fromtimestamp(now_ms / 1_000, UTC) + timedelta(days=days)
    return f"{when:%A}" if days < 7 else f"{when.day} {when:%B %Y}"
