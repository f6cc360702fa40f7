"""The hash of the index's own tables, keyed.

It never leaves the process (what travels or is stored uses `filters.hashes`), so it may read eight bytes a step, and
each index can have a *secret* of its own: who does not know it cannot choose names or texts that share a place in a
table. With fixed constants, 4,000 names that collide made each message cost milliseconds.

Each step multiplies by the secret and folds the upper half of the product back in (`fold_product`). Without the fold a
difference in the highest bit would pass every multiplication unchanged, and collisions could be built that hold for
every secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, fold_product, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FIXED_SECRET", "constraint_key", "hash_bytes", "mix", "name_key", "proper_secret", "same_bytes"]

# Odd constants from the fractional parts of the square roots of 2, 3 and 5, as hash constants often are.
_FIRST = np.uint64(0x6A09E667F3BCC909)
_SECOND = np.uint64(0xBB67AE8584CAA73B)
_THIRD = np.uint64(0x3C6EF372FE94F82B)

# The secret of an index that is given none: in tests and in the simulation the same in every run.
FIXED_SECRET = 0x9E3779B97F4A7C15


def proper_secret(secret: int) -> int:
    """A secret as a signed word that multiplies well: odd, so not zero, and with its highest bit set."""
    word = secret & (2**64 - 1) | 1 << 63 | 1
    return word - (1 << 64)


@inlined
def mix(secret: np.uint64, word: np.uint64) -> Int:
    """Spread every bit of a word over all bits, by a secret."""
    return fold_product(word ^ _SECOND, secret)


@inlined
def eight_bytes(buffer: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Eight bytes as one word; the compiler turns the eight loads into one."""
    return (
        np.uint64(buffer[at])
        | np.uint64(buffer[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(buffer[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(buffer[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(buffer[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(buffer[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(buffer[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(buffer[at + np.uint64(7)]) << np.uint64(56)
    )


@inlined
def few_bytes(buffer: NDArray[np.uint8], at: np.uint64, size: np.uint64) -> np.uint64:
    """Up to seven bytes as one word. If the buffer is long enough, eight are read and the rest cut off."""
    if size == np.uint64(0):
        return np.uint64(0)
    if at + np.uint64(8) <= np.uint64(buffer.size):
        return eight_bytes(buffer, at) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - (size << np.uint64(3))))
    piece = np.uint64(0)
    for step in range(size):
        piece |= np.uint64(buffer[at + np.uint64(step)]) << (np.uint64(step) << np.uint64(3))
    return piece


@inlined
def hash_bytes(secret: np.uint64, buffer: NDArray[np.uint8], start: Int, size: Int) -> Int:
    """Hash `size` bytes, eight a step."""
    word = np.uint64(size) * _FIRST ^ secret
    at = np.uint64(start)
    end = at + np.uint64(size)
    while at + np.uint64(8) <= end:
        word = fold_product(word ^ eight_bytes(buffer, at), secret)
        at += np.uint64(8)
    return fold_product(word ^ few_bytes(buffer, at, end - at), secret)


@inlined
def name_key(secret: np.uint64, buffer: NDArray[np.uint8], start: Int, size: Int) -> Int:
    """The key of an attribute's name in the table of names."""
    return hash_bytes(secret, buffer, start, size)


@inlined
def constraint_key(secret: np.uint64, kind: Int, attribute: Int, content: np.uint64, first: Int, second: Int) -> Int:
    """The key of a constraint in the one table of all constraints; `content` is the hash of its bytes."""
    word = content + np.uint64(attribute) * _FIRST + np.uint64(kind) * _THIRD
    return mix(secret, word + np.uint64(first) * _SECOND + (np.uint64(second) << np.uint64(7)))


@inlined
def same_bytes(one: NDArray[np.uint8], one_start: Int, other: NDArray[np.uint8], other_start: Int, size: Int) -> Truth:
    """Whether two runs of bytes are equal."""
    first = np.uint64(one_start)
    second = np.uint64(other_start)
    end = first + np.uint64(size)
    while first + np.uint64(8) <= end:
        if eight_bytes(one, first) != eight_bytes(other, second):
            return False
        first += np.uint64(8)
        second += np.uint64(8)
    return few_bytes(one, first, end - first) == few_bytes(other, second, end - first)
