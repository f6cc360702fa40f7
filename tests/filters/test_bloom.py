"""Bloom filters: never a false no, and as many false yeses as Eq. 1 says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.filters import TABLE_2, BloomFilter, FilterError, Shape, false_positive_rate, filled_rate, positions

words = st.integers(0, 2**64 - 1)
key_lists = st.lists(words, max_size=50).map(lambda keys: np.array(keys, np.uint64))
# Powers of two go another way than other sizes, and so do sizes above 2^21.
sizes = st.sampled_from([64, 4096, 2**21, 2**22]) | st.integers(64, 2**22)

FILTERS = 8
PROBES_PER_FILTER = 500_000


@pytest.mark.parametrize("shape", TABLE_2.values(), ids=TABLE_2)
def test_error_rate_is_within_three_standard_errors_of_the_equation(shape: Shape) -> None:
    random = np.random.default_rng(2024)
    wrong = 0
    for _ in range(FILTERS):
        made = BloomFilter(shape.m, shape.k)
        made.add(random.integers(0, 2**64, shape.n, np.uint64))
        wrong += int(made.contains(random.integers(0, 2**64, PROBES_PER_FILTER, np.uint64)).sum())
    probes = FILTERS * PROBES_PER_FILTER
    rate = false_positive_rate(*shape)
    assert abs(wrong / probes - rate) <= 3 * math.sqrt(rate * (1 - rate) / probes)


@given(key_lists, key_lists, sizes, st.integers(1, 64))
def test_filter_says_yes_to_exactly_the_keys_whose_positions_are_set(
    inside: np.ndarray, probes: np.ndarray, m: int, k: int
) -> None:
    made = BloomFilter(m, k)
    made.add(inside)
    bits = np.zeros(m, np.bool_)
    bits[positions(inside, k, m)] = True
    assert made.contains(inside).all()
    assert made.contains(probes).tolist() == bits[positions(probes, k, m)].all(axis=1).tolist()
    assert made.ones == bits.sum()
    assert made.rate == filled_rate(m, k, int(bits.sum()))


@given(key_lists, key_lists, sizes, st.integers(1, 20))
def test_union_equals_a_filter_of_both(one: np.ndarray, two: np.ndarray, m: int, k: int) -> None:
    filters = [BloomFilter(m, k) for _ in range(3)]
    filters[0].add(one)
    filters[1].add(two)
    filters[2].add(np.concatenate([one, two]))
    assert bytes(filters[0].union(filters[1])) == bytes(filters[2])


def test_union_of_unlike_filters_is_refused() -> None:
    with pytest.raises(FilterError, match="128 bits and 3 positions"):
        BloomFilter(128, 3).union(BloomFilter(128, 4))


@given(key_lists, sizes, st.integers(1, 20))
def test_bytes_round_trip(keys: np.ndarray, m: int, k: int) -> None:
    made = BloomFilter(m, k)
    made.add(keys)
    data = bytes(made)
    assert len(data) == 8 * math.ceil(m / 64)
    back = BloomFilter.from_bytes(data, m, k)
    assert back.contains(keys).all()
    assert bytes(back) == data


def test_bytes_say_bits_from_the_lowest() -> None:
    made = BloomFilter(128, 1)
    made.add(np.array([70], np.uint64))  # x = 70: bit 6 of the second word
    assert bytes(made) == bytes(8) + bytes([1 << 6]) + bytes(7)


@pytest.mark.parametrize(
    ("data", "m"),
    [(bytes(8), 65), (bytes(24), 128), (bytes(15), 128), (bytes(15) + b"\x80", 127)],
    ids=["too short", "too long", "not words", "bits beyond the size"],
)
def test_damaged_bytes_are_refused(data: bytes, m: int) -> None:
    with pytest.raises(FilterError):
        BloomFilter.from_bytes(data, m, 3)


def test_shapes_beyond_the_limits_are_refused() -> None:
    with pytest.raises(LimitError):
        BloomFilter(2**33, 3)
    with pytest.raises(ValueError, match="at least 64 bits"):
        BloomFilter(32, 3)


@pytest.mark.parametrize(("m", "k"), [(0, 3), (63, 3), (64, 0), (2**33, 3), (64, 2**31)])
def test_stored_bytes_of_a_shape_that_no_filter_has_are_no_filter(m: int, k: int) -> None:
    with pytest.raises(FilterError):
        BloomFilter.from_bytes(bytes(8), m, k)
