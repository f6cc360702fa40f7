"""Packed lists of numbers, as they are stored and as damage leaves them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.tracking import Lists
from postroad.trail import TrailDamageError, pack_lists, pack_words, unpack, unpack_lists, unpack_words

numbers = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(sorted)


@given(st.lists(numbers, max_size=6), st.integers(0, 3))
def test_lists_come_back_one_by_one_and_all_together(rows: list[list[int]], skipped: int) -> None:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    flat = np.array([number for row in rows for number in row], np.int64)
    column = pack_lists(Lists(offsets, flat))
    assert [list(unpack(value)) for value in column.to_pylist()] == rows
    assert together(column) == together(pa.chunked_array([column])) == rows
    # A slice begins in the middle of the column's own arrays.
    assert together(column.slice(min(skipped, len(rows)))) == rows[skipped:]


def together(column: Any) -> list[list[int]]:
    offsets, found = unpack_lists(column)
    return [found[first:last].tolist() for first, last in pairwise(offsets)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 4_097])
def test_list_whose_bytes_are_no_whole_numbers_is_damage(size: int) -> None:
    with pytest.raises(TrailDamageError, match=f"has {size} bytes"):
        unpack(bytes(size))
    good = (1).to_bytes(4, "big")
    # Two odd ones together have as many bytes as whole numbers would.
    for column in ([bytes(size)], [good, bytes(size), None], [bytes(size), good, bytes(4 - size % 4)]):
        with pytest.raises(TrailDamageError, match=f"has {size} bytes"):
            unpack_lists(pa.array(column, pa.binary()))


def test_words_come_back_and_half_words_are_damage() -> None:
    words = [np.array([-1, 2**62], np.int64), None]
    assert [unpack_words(row).tolist() for row in pack_words(words).to_pylist()] == [[-1, 2**62], []]
    with pytest.raises(TrailDamageError, match="has 15 bytes"):
        unpack_words(bytes(15))
