"""Bloom filters: m bits, k positions per key, as kernels over arrays of 64-bit words.

Bit i is bit i mod 64 of word i div 64. A filter never says no to a key it got; how often it says yes to another follows
from the share of bits that are set.

Indices: positions are below m (`positions`), or cut to it by a mask. A filter that is read from bytes is refused unless
it has exactly the words that its m needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.errors import FilterError
from postroad.filters.positions import ONE_WORD_POSITIONS, check_shape, start, step
from postroad.filters.sizes import filled_rate
from postroad.kernels import Int, Truth, device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Keys = NDArray[np.uint64]

__all__ = ["BloomFilter", "add_words", "bloom_contains", "count_ones"]

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)
_ZERO = np.uint64(0)
_PIECE = np.uint64(21)
_LARGEST_CUT = np.uint64(ONE_WORD_POSITIONS)

READ = "Array(uint64, 1, 'C', readonly=True)"


@device
def _is_cut(m: Int) -> Truth:
    """Whether m is a power of two of at most 2^21: then what is kept of x, y and z are their low bits, and all sums may
    run over. No division is needed, and nothing is reduced but the position itself."""
    return m & (m - _ONE) == _ZERO and m <= _LARGEST_CUT


@device
def _set(words: Words, position: Int) -> None:
    # A position is below m, and there are ceil(m / 64) words.
    words[position >> _SIX] |= _ONE << (position & _LOW)


@device
def _add_word(words: Words, m: Int, k: Int, key: Int) -> None:
    x, y, z = start(key, m)
    for index in range(k):
        _set(words, x)
        x, y, z = step(x, y, z, np.uint64(index), m)


@device
def _add_pair(words: Words, mask: Int, k: Int, one: Int, other: Int) -> None:
    """Set the positions of two keys in turns: neither waits for the other, which takes a tenth less than one by one."""
    x, y, z = one, one >> _PIECE, one >> (_PIECE + _PIECE)
    u, v, w = other, other >> _PIECE, other >> (_PIECE + _PIECE)
    for index in range(np.uint64(k)):
        _set(words, x & mask)
        _set(words, u & mask)
        x, y, z = x + y, y + z, z + index + _ONE
        u, v, w = u + v, v + w, w + index + _ONE


@device
def add_words(words: Words, m: Int, k: Int, keys: Keys, count: Int) -> None:
    """Set the k positions of each of the first `count` keys; for use inside kernels."""
    if _is_cut(m):
        for row in range(count // 2):
            _add_pair(words, m - _ONE, k, keys[2 * row], keys[2 * row + 1])
        if count % 2:
            _add_word(words, m, k, keys[count - 1])
    else:
        for row in range(count):
            _add_word(words, m, k, keys[row])


@device
def has_word(words: Words, m: Int, k: Int, key: Int) -> Truth:
    """Whether all positions of one key are set; for use inside kernels."""
    if _is_cut(m):
        x, y, z = key, key >> _PIECE, key >> (_PIECE + _PIECE)
        for index in range(np.uint64(k)):
            at = x & (m - _ONE)
            if (words[at >> _SIX] >> (at & _LOW)) & _ONE == _ZERO:
                return False
            x, y, z = x + y, y + z, z + index + _ONE
        return True
    x, y, z = start(key, m)
    for index in range(k):
        if (words[x >> _SIX] >> (x & _LOW)) & _ONE == _ZERO:
            return False
        x, y, z = step(x, y, z, np.uint64(index), m)
    return True


@kernel(f"void(uint64[::1], uint64, int64, {READ})", allocates=False)
def _add(words: Words, m: Int, k: Int, keys: Keys) -> None:
    add_words(words, m, k, keys, len(keys))


@kernel(f"void({READ}, uint64, int64, {READ}, boolean[::1])", allocates=False)
def _contains(words: Words, m: Int, k: Int, keys: Keys, found: NDArray[np.bool_]) -> None:
    for row in range(len(keys)):
        found[row] = has_word(words, m, k, keys[row])


def bloom_contains(words: Words, m: int, k: int, keys: Keys) -> NDArray[np.bool_]:
    """Which keys a filter says yes to."""
    found = np.empty(len(keys), np.bool_)
    _contains(words, np.uint64(m), k, keys, found)
    return found


def count_ones(words: Words) -> int:
    """How many bits are set."""
    return int(np.bitwise_count(words).sum())


class BloomFilter:
    """A Bloom filter of m bits with k positions per key.

    The error rate after n keys is Eq. 1 (`false_positive_rate`) within 2 % up to k = 16; `rate` is the one it really
    has, from its set bits.
    """

    __slots__ = ("k", "m", "words")

    def __init__(self, m: int, k: int, words: Words | None = None) -> None:
        """An empty filter, or one over words that exist (not copied).

        Raises:
            LimitError: m or k is above the limits of `positions`.
            ValueError: m or k is too small.
            FilterError: the words do not fit m, or have bits beyond it.
        """
        check_shape(k, m)
        size = (m + 63) // 64
        if words is None:
            words = np.zeros(size, np.uint64)
        if len(words) != size or (m % 64 and int(words[-1]) >> (m % 64)):
            raise FilterError(f"{len(words)} words do not make a filter of {m} bits: want {size}, none set beyond them")
        self.m = m
        self.k = k
        self.words = words

    def add(self, keys: Keys) -> None:
        """Put keys in."""
        _add(self.words, np.uint64(self.m), self.k, keys)

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Which keys it says yes to: all it ever got, and a few others."""
        return bloom_contains(self.words, self.m, self.k, keys)

    def union(self, other: BloomFilter) -> BloomFilter:
        """A filter that says yes wherever one of the two does.

        Raises:
            FilterError: the two differ in m or k.
        """
        if (self.m, self.k) != (other.m, other.k):
            raise FilterError(
                f"a filter of {self.m} bits and {self.k} positions cannot be joined with one of "
                f"{other.m} bits and {other.k} positions; both must be equal"
            )
        return BloomFilter(self.m, self.k, self.words | other.words)

    @property
    def ones(self) -> int:
        """How many bits are set."""
        return count_ones(self.words)

    @property
    def rate(self) -> float:
        """The rate at which it says yes to a key it never got, from the bits that are set."""
        return filled_rate(self.m, self.k, self.ones)

    def __bytes__(self) -> bytes:
        return self.words.astype("<u8", copy=False).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, m: int, k: int) -> BloomFilter:
        """Read the canonical bytes.

        Raises:
            FilterError: their number does not fit m, bits beyond m are set, or no filter has such a shape.
        """
        if len(data) % 8:
            raise FilterError(f"a filter's bytes come in eights, these are {len(data)}")
        try:
            return cls(m, k, np.frombuffer(data, "<u8").astype(np.uint64, copy=False))
        except (ValueError, LimitError) as error:
            # A reader of the stored bytes treats all of these as damage.
            raise FilterError(str(error)) from None
