"""Bit vectors: each category sets k of M bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters.positions import start, step
from postroad.kernels import device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.encoding.content import Categories
    from postroad.matching.encoding.scheme import Scheme

__all__ = ["mark", "message_vectors", "subsets"]

_WORD_SHIFT, _BIT_MASK, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)


@device
def mark(words: NDArray[np.uint64], word: np.uint64, k: int, m: np.uint64) -> None:
    """Set the bits of one category in a vector."""
    x, y, z = start(word, m)
    for index in range(k):
        words[x >> _WORD_SHIFT] |= _ONE << (x & _BIT_MASK)
        x, y, z = step(x, y, z, np.uint64(index), m)


@kernel("void(int64[::1], uint64[::1], int64, uint64, uint64[:, ::1])", allocates=False)
def _mark_all(
    offsets: NDArray[np.int64], words: NDArray[np.uint64], k: int, m: np.uint64, vectors: NDArray[np.uint64]
) -> None:
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            mark(vectors[row], words[place], k, m)


@kernel("void(uint64[:, ::1], uint64[:, ::1], boolean[:, ::1])", allocates=False)
def _subsets(inner: NDArray[np.uint64], outer: NDArray[np.uint64], found: NDArray[np.bool_]) -> None:
    for row in range(len(outer)):
        for candidate in range(len(inner)):
            inside = True
            for place in range(inner.shape[1]):
                if inner[candidate, place] & ~outer[row, place]:
                    inside = False
                    break
            found[row, candidate] = inside


def message_vectors(categories: Categories, scheme: Scheme) -> NDArray[np.uint64]:
    """The vector of each message: uint64[n, M / 64], bit b of word w for position 64 w + b."""
    vectors = np.zeros((len(categories.offsets) - 1, scheme.words), np.uint64)
    _mark_all(categories.offsets, categories.words, scheme.hashes, np.uint64(scheme.bits), vectors)
    return vectors


def subsets(inner: NDArray[np.uint64], outer: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which rows of `inner` have no bit outside which rows of `outer`: bool[outer, inner].

    This is the definition, one pair after the other. `PredicateMatrix` finds the same faster for many messages.
    """
    found = np.empty((len(outer), len(inner)), np.bool_)
    _subsets(inner, outer, found)
    return found
