"""Sizes from accuracies, and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.filters import (
    TABLE_2,
    Shape,
    best_hashes,
    bits_for,
    capacity_for,
    effective_rate,
    false_positive_rate,
    limit_bits,
    rate_for,
    shape_for,
)

ACCURACIES = {"99.999%": 1e-5, "99%": 1e-2, "95%": 5e-2}
rates = st.floats(1e-9, 0.5)


@pytest.mark.parametrize("name", list(TABLE_2))
def test_rows_of_the_table_keep_their_accuracy(name: str) -> None:
    assert effective_rate(false_positive_rate(*TABLE_2[name])) <= ACCURACIES[name.split()[1]]


@pytest.mark.parametrize(
    ("name", "rate"),
    list(zip(TABLE_2, (3.97e-6, 3.14e-3, 1.45e-2, 4.56e-6, 3.71e-3, 2.16e-2), strict=True)),
)
def test_rows_of_the_table_have_the_rates_known_for_them(name: str, rate: float) -> None:
    assert false_positive_rate(*TABLE_2[name]) == pytest.approx(rate, rel=0.005)


@given(st.floats(1e-9, 0.99), st.integers(1, 10))
def test_rate_for_undoes_effective_rate(effective: float, matching_set: int) -> None:
    rate = rate_for(effective, matching_set)
    assert effective_rate(rate, matching_set) == pytest.approx(effective)
    assert 1 - (1 - rate) ** matching_set == pytest.approx(effective, rel=1e-6)


@given(st.integers(1, 10**6), rates, st.integers(1, 30))
def test_bits_are_the_fewest_that_keep_the_rate(n: int, rate: float, k: int) -> None:
    m = bits_for(n, rate, k)
    assert false_positive_rate(m, k, n) <= rate
    assert m == 64 or false_positive_rate(m - 1, k, n) > rate


@given(st.integers(64, 2**24), rates, st.integers(1, 30))
def test_capacity_is_the_most_that_keeps_the_rate(m: int, rate: float, k: int) -> None:
    n = capacity_for(m, k, rate)
    assert n == 0 or false_positive_rate(m, k, n) <= rate
    assert false_positive_rate(m, k, n + 1) > rate


@given(st.integers(64, 2**20), st.integers(1, 10**5))
def test_best_hashes_are_those_of_the_least_rate(m: int, n: int) -> None:
    rate = false_positive_rate(m, best_hashes(m, n), n)
    assert rate == min(false_positive_rate(m, k, n) for k in range(1, 65))


@given(st.integers(1, 10**5), st.floats(1e-7, 0.3))
def test_shape_is_near_the_smallest_of_all_hashes(n: int, rate: float) -> None:
    shape = shape_for(n, rate)
    assert false_positive_rate(*shape) <= rate
    assert shape.m <= math.ceil(1.002 * min(bits_for(n, rate, k) for k in range(1, 40)))


def test_paper_hashes_cost_half_as_much_again_as_the_limit_and_the_best_less() -> None:
    limit = limit_bits(rate_for(1e-5))
    paper = TABLE_2["135K 99.999%"]
    assert paper.m / paper.n / limit == pytest.approx(1.53, abs=0.005)
    assert shape_for(paper.n, rate_for(1e-5)).m / paper.n / limit <= 1.46
    assert capacity_for(1 << 16, 5, rate_for(0.05)) == 8555


@pytest.mark.parametrize(("effective", "matching_set"), [(0.0, 2), (1.0, 2), (0.1, 0)])
def test_impossible_accuracies_are_refused(effective: float, matching_set: int) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        rate_for(effective, matching_set)


def test_shape_names_its_numbers() -> None:
    assert Shape(1, 2, 3)._asdict() == {"m": 1, "k": 2, "n": 3}
