"""The one hash: 64-bit xxHash with seed 42, as kernels over arrays.

Seed 42 is the seed of Spark's `xxhash64`, so a broker's filter can be probed inside Spark by a built-in function.

`mix64` turns one 64-bit word into another. It is the same hash of the word's eight little-endian bytes, which is what
Spark's `xxhash64` gives for a `bigint`: derived keys need no user-defined function there, and no arithmetic that could
overflow. For inputs of one word every step of xxHash is invertible, so distinct words stay distinct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from postroad.kernels import device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SEED",
    "derived_key",
    "derived_keys",
    "derived_pairs",
    "derived_sets",
    "derived_word",
    "hash_bytes",
    "hash_ids",
    "hash_span",
    "id_word",
    "mix64",
    "mix_word",
]

SEED = 42

# The five primes of xxHash's specification (XXH64).
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(SEED)

_ONE, _FOUR, _EIGHT, _SIXTEEN = np.uint64(1), np.uint64(4), np.uint64(8), np.uint64(16)
_STRIPE = np.uint64(32)
_BITS = np.uint64(64)


@device
def _rotate(word: np.uint64, count: int) -> np.uint64:
    left = np.uint64(count)
    return (word << left) | (word >> (_BITS - left))


@device
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(lane + word * _P2, 31) * _P1


@device
def _merge(total: np.uint64, lane: np.uint64) -> np.uint64:
    return (total ^ _round(np.uint64(0), lane)) * _P1 + _P4


@device
def _absorb(total: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(total ^ _round(np.uint64(0), word), 27) * _P1 + _P4


@device
def _avalanche(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(33))) * _P2
    word = (word ^ (word >> np.uint64(29))) * _P3
    return word ^ (word >> np.uint64(32))


@device
def _read4(buffer: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    word = np.uint64(0)
    for index in range(4):
        word |= np.uint64(buffer[at + np.uint64(index)]) << np.uint64(8 * index)
    return word


@device
def _read8(buffer: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    return _read4(buffer, at) | (_read4(buffer, at + _FOUR) << np.uint64(32))


@device
def _stripes(buffer: NDArray[np.uint8], at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Absorb whole 32-byte stripes in four lanes; return the merged lanes and where the rest begins."""
    one, two, three, four = _SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1
    while at + _STRIPE <= end:
        one = _round(one, _read8(buffer, at))
        two = _round(two, _read8(buffer, at + _EIGHT))
        three = _round(three, _read8(buffer, at + _SIXTEEN))
        four = _round(four, _read8(buffer, at + _EIGHT + _SIXTEEN))
        at += _STRIPE
    total = _rotate(one, 1) + _rotate(two, 7) + _rotate(three, 12) + _rotate(four, 18)
    return _merge(_merge(_merge(_merge(total, one), two), three), four), at


@device
def hash_span(buffer: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """Hash the bytes of a span; for use inside kernels."""
    at, end = np.uint64(start), np.uint64(stop)
    length = end - at
    total = _SEED + _P5
    if length >= _STRIPE:
        total, at = _stripes(buffer, at, end)
    total += length
    while at + _EIGHT <= end:
        total = _absorb(total, _read8(buffer, at))
        at += _EIGHT
    if at + _FOUR <= end:
        total = _rotate(total ^ (_read4(buffer, at) * _P1), 23) * _P2 + _P3
        at += _FOUR
    while at < end:
        total = _rotate(total ^ (np.uint64(buffer[at]) * _P5), 11) * _P1
        at += _ONE
    return _avalanche(total)


@device
def mix_word(word: np.uint64) -> np.uint64:
    """`mix64` inside kernels."""
    return _avalanche(_absorb(_SEED + _P5 + _EIGHT, word))


@device
def derived_word(word: np.uint64, number: np.uint64) -> np.uint64:
    """`derived_key` inside kernels."""
    return mix_word(word ^ mix_word(number))


@device
def _swapped(word: np.uint64) -> np.uint64:
    """The word whose little-endian bytes are the big-endian bytes of the given one."""
    swapped = np.uint64(0)
    for index in range(8):
        swapped = (swapped << _EIGHT) | ((word >> np.uint64(8 * index)) & np.uint64(0xFF))
    return swapped


@device
def id_word(head: np.uint64, tail: np.uint64) -> np.uint64:
    """The hash of an id inside kernels, from the two halves that `Batch.ids` holds."""
    total = _absorb(_SEED + _P5 + _SIXTEEN, _swapped(head))
    return _avalanche(_absorb(total, _swapped(tail)))


@kernel("void(uint64[:, ::1], uint64[::1])", allocates=False)
def _hash_ids(ids: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    for row in range(len(ids)):
        hashes[row] = id_word(ids[row, 0], ids[row, 1])


@kernel("void(uint64[::1], uint64, uint64[::1])", allocates=False)
def _derived_keys(hashes: NDArray[np.uint64], mixed: np.uint64, keys: NDArray[np.uint64]) -> None:
    for row in range(len(hashes)):
        keys[row] = mix_word(hashes[row] ^ mixed)


def hash_ids(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash message ids, as they are in `Batch.ids`: the hash of the sixteen big-endian bytes of each."""
    hashes = np.empty(len(ids), np.uint64)
    _hash_ids(np.ascontiguousarray(ids), hashes)
    return hashes


def hash_bytes(data: bytes) -> int:
    """Hash one byte string."""
    return xxhash.xxh64_intdigest(data, SEED)


def mix64(word: int) -> int:
    """Mix one 64-bit word: the hash of its eight little-endian bytes. A bijection."""
    return xxhash.xxh64_intdigest(word.to_bytes(8, "little"), SEED)


def derived_key(word: int, number: int) -> int:
    """The key of a pair, such as (id, neighbour): mix64(hash xor mix64(number))."""
    return mix64(word ^ mix64(number))


def derived_keys(hashes: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """`derived_key` of many hashes with one number."""
    keys = np.empty(len(hashes), np.uint64)
    _derived_keys(hashes, np.uint64(mix64(number)), keys)
    return keys


def derived_pairs(word: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`derived_key` of one hash with many numbers."""
    mixed, keys = np.empty(len(numbers), np.uint64), np.empty(len(numbers), np.uint64)
    _derived_keys(numbers, np.uint64(0), mixed)
    _derived_keys(mixed, np.uint64(word), keys)
    return keys


def derived_sets(word: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys of one hash with every set of numbers: mix64(hash xor mix64(a) xor mix64(b) ...).

    Entry i is of the numbers whose places are the bits of i; entry 0, of the empty set, is mix64(hash). A set of one
    number has that number's `derived_key`.
    """
    joined = np.zeros(1, np.uint64)
    for number in numbers.tolist():
        joined = np.concatenate([joined, joined ^ np.uint64(mix64(number))])
    keys = np.empty(len(joined), np.uint64)
    _derived_keys(joined, np.uint64(word), keys)
    return keys
