from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from postroad.filters import (
    SEED,
    derived_key,
    derived_keys,
    derived_pairs,
    derived_sets,
    hash_bytes,
    hash_ids,
    mix64,
)
from postroad.filters.hashes import hash_span
from postroad.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

words = st.integers(0, 2**64 - 1)


@kernel("void(Array(uint8, 1, 'C', readonly=True), int32[::1], int32[::1], uint64[::1])", allocates=False)
def _hash_spans(
    buffer: NDArray[np.uint8], starts: NDArray[np.int32], ends: NDArray[np.int32], hashes: NDArray[np.uint64]
) -> None:
    for row in range(len(starts)):
        hashes[row] = hash_span(buffer, starts[row], ends[row])


def hash_spans(buffer: NDArray[np.uint8], starts: list[int], ends: list[int]) -> list[int]:
    """The hashes of spans, by the device function that kernels use."""
    hashes = np.empty(len(starts), np.uint64)
    _hash_spans(buffer, np.array(starts, np.int32), np.array(ends, np.int32), hashes)
    return hashes.tolist()


def as_signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


@given(st.lists(st.tuples(words, words), max_size=5))
def test_hash_of_ids_is_the_hash_of_their_big_endian_bytes(pairs: list[tuple[int, int]]) -> None:
    ids = np.array(pairs, np.uint64).reshape(-1, 2)
    assert hash_ids(ids).tolist() == [xxhash.xxh64_intdigest(struct.pack(">QQ", *pair), 42) for pair in pairs]


def test_hash_of_ids_takes_every_other_row() -> None:
    ids = np.arange(20, dtype=np.uint64).reshape(-1, 2)
    assert hash_ids(ids[::2]).tolist() == hash_ids(ids)[::2].tolist()


@given(st.binary(max_size=150), st.binary(max_size=150), st.binary(max_size=9))
def test_hash_of_spans_equals_the_library(first: bytes, second: bytes, after: bytes) -> None:
    buffer = np.frombuffer(first + second + after, np.uint8)
    starts, ends = [0, len(first), 0], [len(first), len(first) + len(second), 0]
    hashes = hash_spans(buffer, starts, ends)
    assert hashes == [xxhash.xxh64_intdigest(data, 42) for data in (first, second, b"")]


@pytest.mark.parametrize("length", range(0, 70))
def test_hash_of_spans_equals_the_library_at_every_length(length: int) -> None:
    data = bytes(range(100, 100 + length))
    buffer = np.frombuffer(b"?" + data + b"?", np.uint8)
    hashes = hash_spans(buffer, [1], [1 + length])
    assert hashes == [hash_bytes(data)] == [xxhash.xxh64_intdigest(data, 42)]


def test_hash_equals_the_example_in_the_documentation_of_spark() -> None:
    # SELECT xxhash64('Spark', array(123), 2) gives 5602566077635097486: each value is hashed with the hash of what
    # came before as its seed, integers as four little-endian bytes.
    word = hash_bytes(b"Spark")
    for number in (123, 2):
        word = xxhash.xxh64_intdigest(struct.pack("<i", number), word)
    assert as_signed(word) == 5602566077635097486
    assert SEED == 42


@given(words, words)
def test_mixing_is_the_hash_of_eight_little_endian_bytes(word: int, other: int) -> None:
    assert mix64(word) == xxhash.xxh64_intdigest(struct.pack("<Q", word), 42)
    assert (mix64(word) == mix64(other)) == (word == other)


@given(st.lists(words, max_size=5), words)
def test_derived_keys_of_many_equal_those_of_one(hashes: list[int], number: int) -> None:
    expected = [mix64(word ^ mix64(number)) for word in hashes]
    assert derived_keys(np.array(hashes, np.uint64), number).tolist() == expected
    assert [derived_key(word, number) for word in hashes] == expected


@given(words, st.lists(words, max_size=5))
def test_derived_pairs_are_one_hash_with_many_numbers(word: int, numbers: list[int]) -> None:
    assert derived_pairs(word, np.array(numbers, np.uint64)).tolist() == [derived_key(word, one) for one in numbers]


@given(words, st.lists(words, max_size=4))
def test_derived_sets_are_one_hash_with_every_set_of_numbers(word: int, numbers: list[int]) -> None:
    expected = []
    for index in range(2 ** len(numbers)):
        joined = word
        for place, number in enumerate(numbers):
            joined ^= mix64(number) if index >> place & 1 else 0
        expected.append(mix64(joined))
    assert derived_sets(word, np.array(numbers, np.uint64)).tolist() == expected
