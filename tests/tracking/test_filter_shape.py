"""The shape of Bloom filters from what an operator knows, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.filters import TABLE_2, Shape, effective_rate, false_positive_rate
from postroad.tracking import HistorySettings, TrackingError, shape_of


def error(shape: Shape, matching_set: int) -> float:
    return effective_rate(false_positive_rate(*shape), matching_set)


def test_nothing_given_is_the_default_of_recorders() -> None:
    assert shape_of() == HistorySettings().shape == TABLE_2["135K 99.999%"]


@pytest.mark.parametrize("row", TABLE_2)
def test_every_row_of_the_papers_table_can_be_given_and_keeps_to_its_accuracy(row: str) -> None:
    accuracy = float(row.split()[1].removesuffix("%")) / 100
    assert shape_of(*TABLE_2[row], effective=1 - accuracy) == TABLE_2[row]


@given(keys=st.integers(1, 200_000), effective=st.floats(1e-8, 0.4), matching_set=st.integers(1, 8))
def test_keys_and_an_error_rate_give_a_filter_that_passes_the_inverse_check(
    keys: int, effective: float, matching_set: int
) -> None:
    shape = shape_of(keys=keys, effective=effective, matching_set=matching_set)
    assert shape.n == keys
    assert error(shape, matching_set) <= effective
    assert shape_of(*shape, effective=effective, matching_set=matching_set) == shape


@given(bits=st.integers(1 << 10, 1 << 22), hashes=st.integers(1, 24), effective=st.floats(1e-3, 0.4))
def test_bits_and_hashes_give_the_most_keys_that_keep_to_the_error_rate(
    bits: int, hashes: int, effective: float
) -> None:
    try:
        shape = shape_of(bits, hashes, effective=effective)
    except TrackingError:
        assert error(Shape(bits, hashes, 1), 2) > effective
        return
    assert error(shape, 2) <= effective < error(shape._replace(n=shape.n + 1), 2)
    assert shape_of(bits, effective=effective).n >= shape.n, "the best number of hashes holds no fewer"


def test_three_numbers_without_an_error_rate_are_taken_as_they_are() -> None:
    assert shape_of(1024, 3, 5_000) == Shape(1024, 3, 5_000)
    assert shape_of(1024, None, 100).k == 7


@pytest.mark.parametrize(
    ("given_settings", "advice"),
    [
        ({"bits": 65_536, "hashes": 16, "keys": 5_000, "effective": 1e-5}, "at most 2,572 keys, or 127,397 bits"),
        ({"bits": 64, "hashes": 2}, "choose 894 bits, or an error rate of 0.0"),
        ({"keys": 10**9, "effective": 1e-9}, "a filter has 4,294,967,296 at most"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused_with_what_would_do(
    given_settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(TrackingError, match=advice):
        shape_of(**given_settings)


@given(bits=st.integers(64, 1 << 20), hashes=st.integers(1, 30), keys=st.integers(1, 100_000))
def test_the_error_rate_that_a_refusal_advises_is_accepted(bits: int, hashes: int, keys: int) -> None:
    try:
        shape_of(bits, hashes, keys, 1e-6)
    except TrackingError as refused:
        if "an error rate of" in str(refused):
            advised = float(str(refused).rsplit(" ", 1)[1])
            assert shape_of(bits, hashes, keys, advised) == Shape(bits, hashes, keys)
