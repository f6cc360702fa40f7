"""Quantiles of sketches hold what they promise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import sketch_quantile


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantile_of_a_sketch_is_the_bucket_of_the_ranked_value(values: list[int], p: float) -> None:
    limits = np.array([0, 1, 2, 4, 8, 16, 32, 64])
    buckets = np.searchsorted(limits, values)
    found = sketch_quantile(np.bincount(buckets, minlength=len(limits)), limits, p)
    ranked = sorted(values)[int(np.ceil(len(values) * p)) - 1]
    assert found.value == limits[np.searchsorted(limits, ranked)]
    assert found.low <= found.value <= found.high
    assert found.total == len(values)


def test_nothing_has_no_quantile() -> None:
    found = sketch_quantile(np.zeros(3, np.int64), np.arange(3), 0.5)
    assert np.isnan(found.value)
    assert found.total == 0
