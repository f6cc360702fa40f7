from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.filters import MAX_HASHES, MAX_POSITIONS, ONE_WORD_POSITIONS, mix64, positions

words = st.integers(0, 2**64 - 1)
LOW, NEXT = 2**21, 2**42


def slow_positions(word: int, k: int, m: int) -> list[int]:
    """Straight from the rule, with Python's unbounded integers."""
    x, y, z = word % LOW, word // LOW % LOW, word // NEXT
    if m > ONE_WORD_POSITIONS:
        more = mix64(word)
        x, y, z = x + more % LOW * LOW, y + more // LOW % LOW * LOW, z + more // NEXT * 2**22
    found = []
    for index in range(k):
        found.append(x % m)
        x, y, z = x + y, y + z, z + index + 1
    return found


@given(st.lists(words, max_size=4), st.integers(1, MAX_HASHES), st.integers(64, 2**22) | st.integers(64, 2**32))
def test_positions_follow_the_rule(hashes: list[int], k: int, m: int) -> None:
    found = positions(np.array(hashes, np.uint64), k, m)
    assert found.shape == (len(hashes), k)
    assert found.tolist() == [slow_positions(word, k, m) for word in hashes]


@pytest.mark.parametrize("m", [64, 65, 4096, 2**21 - 1, 2**21, 2**21 + 1, 2**32])
@pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**21 - 1, 2**42])
def test_positions_follow_the_rule_at_the_edges(word: int, m: int) -> None:
    assert positions(np.array([word], np.uint64), 64, m).tolist() == [slow_positions(word, 64, m)]


@pytest.mark.parametrize(("k", "m"), [(4, 5_000), (16, 60_000), (7, 2**21 + 12_345)])
def test_false_positives_are_near_the_textbook_rate(k: int, m: int) -> None:
    random = np.random.default_rng(5)
    inside = int(m / k * 1.2)  # fuller than the best filling, so that false positives are many enough to count
    bits = np.zeros(m, np.bool_)
    bits[positions(random.integers(0, 2**64, inside, np.uint64), k, m)] = True
    rate = float(bits[positions(random.integers(0, 2**64, 200_000, np.uint64), k, m)].all(axis=1).mean())
    expected = (1 - math.exp(-k * inside / m)) ** k
    assert rate == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize(("k", "m"), [(0, 64), (1, 63), (-1, 100)])
def test_positions_refuse_a_shape_without_meaning(k: int, m: int) -> None:
    with pytest.raises(ValueError, match="at least 64 bits and 1 position"):
        positions(np.zeros(1, np.uint64), k, m)


@pytest.mark.parametrize(("k", "m"), [(MAX_HASHES + 1, 100), (1, MAX_POSITIONS + 1)])
def test_positions_refuse_a_shape_beyond_the_limit(k: int, m: int) -> None:
    with pytest.raises(LimitError):
        positions(np.zeros(1, np.uint64), k, m)
