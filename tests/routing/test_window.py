"""The window of ids against a dictionary, within its promise: the last `window` ids are known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.routing import RoutingError, SeenIds
from postroad.routing import window as module

ids = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), max_size=40)


def as_array(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array([(9 << 32 | origin, tail) for origin, tail in pairs], np.uint64).reshape(-1, 2)


@given(st.lists(ids, max_size=6))
def test_window_admits_each_id_once(batches: list[list[tuple[int, int]]]) -> None:
    seen = SeenIds(64)
    known: set[tuple[int, int]] = set()
    for batch in batches:
        expected = []
        for one in batch:
            expected.append(one not in known)
            known.add(one)
        assert seen.admit(as_array(batch), np.arange(len(batch))).tolist() == expected


@settings(max_examples=30)
@given(st.integers(64, 300), st.integers(1, 2_000), st.integers(1, 500))
def test_window_remembers_the_last_ids_and_not_many_more(window: int, total: int, step: int) -> None:
    seen = SeenIds(window)
    everything = as_array([(1, tail) for tail in range(total)])
    for start in range(0, total, step):
        assert seen.admit(everything, np.arange(start, min(total, start + step))).all()
    assert seen.statistics().places <= 2 * window
    recent = np.arange(max(0, total - window), total)
    assert not seen.admit(everything, recent).any()
    assert seen.statistics().refused == len(recent)
    if total > 2 * window:
        assert seen.admit(everything, np.array([0])).all()


def test_busy_origin_does_not_push_out_a_quiet_one() -> None:
    seen = SeenIds(64)
    quiet = as_array([(2, 1)])
    seen.admit(quiet, np.array([0]))
    busy = as_array([(1, tail) for tail in range(1_000)])
    seen.admit(busy, np.arange(1_000))
    assert not seen.admit(quiet, np.array([0])).any()
    assert seen.statistics().origins == 2


def test_tables_stop_growing_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 128)
    seen = SeenIds(1_024)
    seen.admit(as_array([(1, tail) for tail in range(5_000)]), np.arange(5_000))
    assert seen.statistics().places == 128
    assert seen.statistics().forgotten >= 5_000 - 128


def test_window_of_nothing_is_refused() -> None:
    with pytest.raises(RoutingError, match="64 ids or more"):
        SeenIds(3)


def test_more_origins_than_fit_push_out_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 4 * 64)
    seen = SeenIds(64)
    for origin in range(1, 7):
        assert seen.admit(as_array([(origin, 1)]), np.arange(1)).all()
    assert seen.statistics().places <= 4 * 64
    assert seen.admit(as_array([(1, 1), (6, 1)]), np.arange(2)).tolist() == [True, False]
