"""Theorem 1 and Corollary 2: how many filters of one history can cover one id time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import Shape
from postroad.messages import Batch
from postroad.tracking import BloomRecorder, FilterSegment, HistoryKind, HistorySettings, SealedRecorder, covers

if TYPE_CHECKING:
    from numpy.typing import NDArray

START, HERE = 1_700_000_000_000, 3
EVER = 1 << 30
RECORDERS = {"bloom": BloomRecorder, "sealed": SealedRecorder}


def batch_at(times: NDArray[np.int64], origin: int) -> Batch:
    batch = Batch.build([("t",)] * len(times))
    batch.ids[:, 0] = np.uint64(1 << 32 | origin)
    batch.ids[:, 1] = times.astype(np.uint64) << np.uint64(16)
    return batch


def largest_matching_set(
    name: str,
    chosen: HistorySettings,
    lags: NDArray[np.int64],
    kind: int = HistoryKind.ACCEPTED,
    tick: int = 0,
) -> int:
    """Feed one id each ms, whose time is `lags` before the broker's clock; the most filters that cover one id time."""
    recorder = RECORDERS[name](HERE, chosen, START)
    segments = []
    for step in range(len(lags)):
        now = START + step
        segments += recorder.due(now, force=bool(tick) and step % tick == 0)
        batch = batch_at(np.array([now - lags[step]]), HERE if kind == HistoryKind.ACCEPTED else 9)
        if kind == HistoryKind.ACCEPTED:
            recorder.accepted(batch, now)
        else:
            recorder.arrived(batch, 4, now)
    segments += recorder.due(START + len(lags), force=True)
    made = [one for job in segments for one in job.make() if isinstance(one, FilterSegment) and one.kind == kind]
    times = START + np.arange(-400, len(lags) + 400)
    return int(np.sum([covers(segment, times) for segment in made], axis=0).max())


def settings_of(tolerance: int, interval: int, capacity: int, jitter: int = 0) -> HistorySettings:
    shape = Shape(4096, 3, capacity)
    return HistorySettings(
        tolerance=tolerance, jitter=jitter, interval=interval, linger=0, capacity=capacity, shape=shape, method="bloom"
    )


def lags_within(seed: int, low: int, high: int, count: int) -> NDArray[np.int64]:
    """Random lags that reach both ends often."""
    random = np.random.default_rng(seed)
    lags = random.integers(low, high + 1, count)
    ends = random.random(count)
    return np.where(ends < 0.2, low, np.where(ends > 0.8, high, lags))


@pytest.mark.parametrize("name", list(RECORDERS))
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(10, 60), st.booleans())
@settings(max_examples=15)
def test_matching_set_is_at_most_one_more_than_tolerance_allows(
    name: str, seed: int, w: int, least_open: int, by_size: bool
) -> None:
    tolerance = w * least_open // 2
    chosen = settings_of(tolerance, EVER if by_size else least_open, least_open if by_size else EVER)
    assert largest_matching_set(name, chosen, lags_within(seed, -tolerance, tolerance, 400)) <= w + 1


def test_matching_set_grows_beyond_when_tolerance_is_larger() -> None:
    chosen = settings_of(45, 30, EVER)
    assert largest_matching_set("sealed", chosen, lags_within(1, -45, 45, 400)) > 2


def test_ticks_of_a_wall_clock_break_the_bound() -> None:
    # Full after 95 ms, and at each tick of 100 ms: filters of 5 ms come between, and three cover one time.
    lags = lags_within(1, -47, 47, 800)
    assert largest_matching_set("bloom", settings_of(47, 100, 95), lags) <= 2
    assert largest_matching_set("bloom", settings_of(47, 100, 95), lags, tick=100) > 2


def test_late_ids_in_the_range_break_the_bound_and_as_single_times_do_not() -> None:
    lags = lags_within(2, -20, 20, 800)
    lags[::200] = 300
    late = set((START + np.arange(0, 800, 200) - 300).tolist())
    assert largest_matching_set("sealed", settings_of(EVER, 40, EVER), lags) > 2
    # A late id's own time may be covered once more, by the filter that has it as a single time.
    assert len(late) == 4
    assert largest_matching_set("sealed", settings_of(20, 40, EVER), lags) <= 2 + 1


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 20), st.integers(30, 60))
@settings(max_examples=15)
def test_jitter_on_the_way_widens_the_bound_as_the_corollary_says(
    seed: int, w: int, jitter: int, interval: int
) -> None:
    tolerance = max(0, (w * interval - jitter) // 2)
    lags = lags_within(seed, -tolerance, tolerance + jitter, 400)
    chosen = settings_of(tolerance, interval, EVER, jitter)
    assert largest_matching_set("sealed", chosen, lags, HistoryKind.ARRIVED) <= w + 1


def test_jitter_beyond_the_corollary_breaks_the_bound() -> None:
    chosen = settings_of(15, 30, EVER, jitter=30)
    assert largest_matching_set("sealed", chosen, lags_within(3, -15, 45, 400), HistoryKind.ARRIVED) > 2
