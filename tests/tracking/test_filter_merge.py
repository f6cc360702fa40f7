"""Filters joined afterwards still know all that their parts knew."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import Shape, hash_ids
from postroad.messages import Batch
from postroad.tracking import BloomRecorder, FilterSegment, HistorySettings, SealedRecorder, merge_filters, probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE, START = 3, 1_700_000_000_000
CAPACITY = 60


def filters_of(method: str, sizes: list[int], keep_keys: bool = True) -> tuple[list[FilterSegment], NDArray[np.uint64]]:
    """One filter for each size, and all ids; every tenth id is late."""
    chosen = HistorySettings(
        shape=Shape(4096, 5, CAPACITY), tolerance=5, method="ribbon", keep_keys=keep_keys, effective=1e-3
    )
    recorder = (BloomRecorder if method == "bloom" else SealedRecorder)(HERE, chosen, START)
    segments, ids, counter = [], [], 0
    for step, size in enumerate(sizes):
        now = START + 10 * step
        batch = Batch.build([("t",)] * size)
        batch.ids[:, 0] = np.uint64(1 << 32 | HERE)
        for row in range(size):
            counter += 1
            batch.ids[row, 1] = np.uint64((now - (500 if counter % 10 == 0 else 0)) << 16 | counter)
        recorder.accepted(batch, now)
        (job,) = recorder.due(now + 1, force=True)
        segments += [one for one in job.make() if isinstance(one, FilterSegment)]
        ids.append(batch.ids)
    return segments, np.concatenate(ids)


@pytest.mark.parametrize("method", ["bloom", "ribbon"])
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8))
@settings(max_examples=25)
def test_merged_filters_know_what_their_parts_knew(method: str, sizes: list[int]) -> None:
    parts, ids = filters_of(method, sizes)
    hashes, times = hash_ids(ids), (ids[:, 1] >> np.uint64(16)).astype(np.int64)
    merged = merge_filters(parts)
    for identity in range(len(ids)):
        one = slice(identity, identity + 1)
        assert any(probe(part, hashes[one], times[one])[0] for part in merged)
    assert sum(one.entries for one in merged) == len(ids)
    # No two neighbours could have been joined still.
    most = CAPACITY if method == "bloom" else HistorySettings().capacity
    assert all(a.entries + b.entries > most for a, b in pairwise(merged))
    # Where a part says yes, so does what it became a part of.
    others = np.random.default_rng(1).integers(0, 2**64, 3_000, np.uint64)
    at = np.full(len(others), START)
    if method == "bloom":
        before = np.any([probe(part, others, at) for part in parts], axis=0)
        assert not (before & ~np.any([probe(part, others, at) for part in merged], axis=0)).any()


def test_static_filters_without_keys_stay_as_they_are() -> None:
    parts, _ = filters_of("ribbon", [20, 30], keep_keys=False)
    assert merge_filters(parts) == parts


def test_filters_of_other_histories_and_shapes_are_not_joined() -> None:
    (one, two), _ = filters_of("bloom", [5, 6])
    assert len(merge_filters([one, two])) == 1
    assert len(merge_filters([one, two._replace(origin=9)])) == 2
    assert len(merge_filters([one, two._replace(hashes=4)])) == 2
    assert len(merge_filters([one, two._replace(kind=2)])) == 2


def test_states_of_one_filter_count_once() -> None:
    (one,), _ = filters_of("bloom", [7])
    (joined,) = merge_filters([one, one._replace(sealed=one.sealed + 9)])
    assert (joined.entries, joined.data) == (7, one.data)


def test_filters_of_equal_bits_and_other_times_both_count() -> None:
    (one,), ids = filters_of("bloom", [7])
    moved = one._replace(time_from=one.time_from + 50, time_to=one.time_to + 50, sealed=one.sealed + 9)
    (joined,) = merge_filters([one, moved])
    times = np.array([START, START + 50])
    assert probe(joined, hash_ids(ids[[0, 0]]), times).tolist() == [True, True]
