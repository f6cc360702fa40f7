"""A kernel that packs words computes what it would compute word by word."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding  # type: ignore[import-untyped]

from postroad.kernels import inlined, kernel, put_word
from postroad.kernels.compiler import compiled


@inlined
def mixed(word: np.uint64) -> np.uint64:
    """Arithmetic on one word, which several independent words can do as one vector."""
    word = (word & np.uint64(0xFFFF)) << np.uint64(32) | word >> np.uint64(16)
    return word + np.uint64(0x0606060606060606) ^ word >> np.uint64(4)


@kernel("void(uint64[::1], uint8[::1])", allocates=False, packs_words=True)
def put_packed(words: np.ndarray, out: np.ndarray) -> None:
    for word in range(len(words) // 4):
        put_word(out, 32 * word, mixed(words[4 * word]))
        put_word(out, 32 * word + 8, mixed(words[4 * word + 1]))
        put_word(out, 32 * word + 16, mixed(words[4 * word + 2]))
        put_word(out, 32 * word + 24, mixed(words[4 * word + 3]))


def plainly_mixed(word: int) -> int:
    word = ((word & 0xFFFF) << 32 | word >> 16) & (2**64 - 1)
    return (word + 0x0606060606060606) & (2**64 - 1) ^ word >> 4


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 4), max_size=5))
def test_packed_words_are_those_of_the_plain_arithmetic(rows: list[tuple[int, ...]]) -> None:
    words = np.array(rows, np.uint64).reshape(-1)
    out = np.zeros(8 * len(words), np.uint8)
    put_packed(words, out)
    assert out.view("<u8").tolist() == [plainly_mixed(word) for word in words.tolist()]


def instructions(of: object) -> list[bytes]:
    """The machine code of a kernel, without the names of its functions, which are numbered."""
    files = [binding.ObjectFileRef.from_data(part.code) for part in compiled(cast("Any", of))]
    return [section.data() for file in files for section in file.sections() if section.is_text()]


def test_packing_is_for_one_kernel_alone() -> None:
    plain = kernel("void(uint64[::1], uint8[::1])", allocates=False)(cast("Any", put_packed).function)
    before = instructions(plain)
    assert instructions(put_packed) != before
    assert instructions(plain) == before
