"""Ids into keys: whatever the rows and the origins, as if each id were looked at by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.filters import BloomFilter, derived_key, hash_bytes, mix64
from postroad.tracking.history_kernels import EARLIEST, LATES, LATEST, PIECE, REPORT, TAKEN, take_bits, take_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOW, TOLERANCE = 1_700_000_000_000, 500
# Times in and out of tolerance, and on both of its edges.
times = st.sampled_from([NOW, NOW + 1, NOW - TOLERANCE, NOW + TOLERANCE, NOW - TOLERANCE - 1, NOW + TOLERANCE + 1, NOW])
stretches = st.lists(st.tuples(st.integers(1, 3), times, st.integers(1, 2 * PIECE)), min_size=1, max_size=4)


def ids_of(parts: list[tuple[int, int, int]]) -> np.ndarray:
    """Ids in stretches of (origin, time, count)."""
    ids = [(7 << 32 | origin, time << 16 | index) for origin, time, count in parts for index in range(count)]
    return np.array(ids, np.uint64)


def expected(ids: np.ndarray, rows: list[int], most: int, number: int | None) -> tuple[list[int], list[int], list[int]]:
    """Keys, times within tolerance, and times beyond it (repeats in a row left out)."""
    keys: list[int] = []
    near: list[int] = []
    late: list[int] = []
    for row in rows[:most]:
        head, tail = (int(word) for word in ids[row])
        if head & 0xFFFFFFFF != int(ids[rows[0], 0]) & 0xFFFFFFFF:
            break
        word = hash_bytes(head.to_bytes(8, "big") + tail.to_bytes(8, "big"))
        keys.append(word if number is None else derived_key(word, number))
        time = tail >> 16
        if abs(NOW - time) <= TOLERANCE:
            near.append(time)
        elif not late or late[-1] != time:
            late.append(time)
    return keys, near, late


def check_report(report: np.ndarray, late: np.ndarray, keys: list[int], near: list[int], lates: list[int]) -> None:
    assert report[TAKEN] == len(keys)
    if near:
        assert report[[EARLIEST, LATEST]].tolist() == [min(near), max(near)]
    else:
        assert report[EARLIEST] > report[LATEST]
    assert late[: report[LATES]].tolist() == lates


@given(stretches, st.data(), st.sampled_from([None, 9]), st.sampled_from([np.int32, np.int64]))
def test_keys_and_times_are_those_of_each_id_by_itself(
    parts: list[tuple[int, int, int]], data: st.DataObject, number: int | None, kind: type
) -> None:
    ids = ids_of(parts)
    order = data.draw(st.sampled_from(["all", "every other", "backwards", "a gap"]))
    every: NDArray[Any] = np.arange(len(ids), dtype=kind)
    rows = {"all": every, "every other": every[::2], "backwards": every[::-1], "a gap": np.delete(every, len(ids) // 2)}
    chosen = np.ascontiguousarray(rows[order]) if len(ids) > 1 else every
    first = data.draw(st.integers(0, len(chosen) - 1))
    room = data.draw(st.integers(1, len(chosen)))
    wanted = expected(ids, chosen[first:].tolist(), room, number)
    mixed = np.uint64(0 if number is None else mix64(number))
    keys, report, late = np.zeros(room, np.uint64), np.zeros(REPORT, np.int64), np.zeros(len(ids), np.int64)
    take_keys(ids, chosen, first, number is not None, mixed, NOW, TOLERANCE, keys, report, late)
    assert keys[: report[TAKEN]].tolist() == wanted[0]
    check_report(report, late, *wanted)


@pytest.mark.parametrize("m", [1 << 16, 100_000])
@pytest.mark.parametrize("room", [1, 2, PIECE + 1, 1_000])
def test_bits_are_those_of_a_filter_that_got_the_keys(m: int, room: int) -> None:
    ids = ids_of([(1, NOW, 300), (1, NOW + 9_000, 301), (2, NOW, 5)])
    wanted = expected(ids, list(range(len(ids))), room, None)
    made = BloomFilter(m, 7)
    made.add(np.array(wanted[0], np.uint64))
    words, report, late = np.zeros_like(made.words), np.zeros(REPORT, np.int64), np.zeros(len(ids), np.int64)
    rows, scratch, nothing = np.arange(len(ids)), np.zeros(PIECE, np.uint64), np.uint64(0)
    take_bits(ids, rows, 0, False, nothing, NOW, TOLERANCE, words, np.uint64(m), 7, room, scratch, report, late)
    assert words.tolist() == made.words.tolist()
    check_report(report, late, *wanted)
