"""Many bytes in one step: the same as one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.kernels import WINDOW, bytes_equal, copy_bytes, kernel, lowest_bit, put_word, word_at

_READ_ONLY = "Array(uint8, 1, 'C', readonly=True)"


@kernel(f"uint64({_READ_ONLY}, int64, int64)", allocates=False)
def equal(data: np.ndarray, at: int, byte: int) -> int:
    return int(bytes_equal(data, at, byte))


@kernel("int64(uint64)", allocates=False)
def lowest(word: int) -> int:
    return int(lowest_bit(word))


@kernel(f"int64({_READ_ONLY}, int64, int64, uint8[::1], int64)", allocates=False)
def copied(data: np.ndarray, start: int, end: int, out: np.ndarray, at: int) -> int:
    return int(copy_bytes(data, start, end, out, at))


@kernel(f"uint64({_READ_ONLY}, int64)", allocates=False)
def word(data: np.ndarray, at: int) -> int:
    return int(word_at(data, at))


@kernel("void(uint8[::1], int64, uint64)", allocates=False)
def put(out: np.ndarray, at: int, value: int) -> None:
    put_word(out, at, value)


@given(st.binary(min_size=WINDOW, max_size=3 * WINDOW), st.data())
def test_window_shows_where_a_byte_stands(data: bytes, drawn: st.DataObject) -> None:
    at = drawn.draw(st.integers(0, len(data) - WINDOW))
    wanted = drawn.draw(st.sampled_from(sorted(set(data))))
    found = int(equal(np.frombuffer(data, np.uint8), at, wanted))
    assert [place for place in range(WINDOW) if found >> place & 1] == [
        place for place in range(WINDOW) if data[at + place] == wanted
    ]


@given(st.integers(1, 2**64 - 1))
def test_lowest_bit_is_the_number_of_zeros_below_it(value: int) -> None:
    assert int(lowest(value)) == (value & -value).bit_length() - 1


@given(st.binary(max_size=300), st.integers(0, 50), st.data())
def test_copy_moves_a_part_and_touches_nothing_else(data: bytes, at: int, drawn: st.DataObject) -> None:
    start = drawn.draw(st.integers(0, len(data)))
    end = drawn.draw(st.integers(start, len(data)))
    out = np.full(at + end - start + 9, 0xAA, np.uint8)
    assert int(copied(np.frombuffer(data, np.uint8), start, end, out, at)) == at + end - start
    assert out.tobytes() == b"\xaa" * at + data[start:end] + b"\xaa" * 9


@given(st.binary(min_size=8, max_size=40), st.integers(0, 2**64 - 1), st.data())
def test_words_are_eight_little_endian_bytes(data: bytes, value: int, drawn: st.DataObject) -> None:
    at = drawn.draw(st.integers(0, len(data) - 8))
    assert int(word(np.frombuffer(data, np.uint8), at)) == int.from_bytes(data[at : at + 8], "little")
    out = np.frombuffer(data, np.uint8).copy()
    put(out, at, value)
    assert out.tobytes() == data[:at] + value.to_bytes(8, "little") + data[at + 8 :]
