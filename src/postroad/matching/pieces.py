"""Pieces of text that conjunctions are reached through: prefixes, suffixes and grams.

Each attribute has a mask of the lengths that are resident. A *sieve* comes before any look-up: a bitmap over
(kind, attribute, two bytes of the piece) that most texts fall through. Masks and sieve may hold bits of pieces that are
gone until they are tidied; a bit too many costs a look-up, never an answer.

A place in the sieve is the upper 18 bits of a product, so a word of it is one of 2**12. Pieces have 1 to 63 bytes, so a
shift by their size stays in the mask. A window that is looked up ends at the end of the text at the latest; two bytes
are read at `at` only where the text has two from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, inlined, kernel
from postroad.matching.bundles import STORE
from postroad.matching.columns import (
    ATTRIBUTE,
    COUNT,
    GRAM,
    GRAM_LENGTHS,
    KIND,
    PREFIX,
    PREFIX_LENGTHS,
    SUFFIX,
    SUFFIX_LENGTHS,
    TEXT,
    TEXT_SIZE,
)
from postroad.matching.store import find_text
from postroad.matching.table_hash import constraint_key, hash_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Reading, Store

# 2**18 bits are 32 KiB, about a first-level cache; a million subscriptions of the B-DRP workload fill a third of them.
SIEVE_WORDS = 4096
_SIEVE_SHIFT = np.uint64(64 - 18)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@inlined
def sieve_place(kind: Int, attribute: Int, first: np.uint8, second: np.uint8) -> np.uint64:
    """The bit of the sieve for two bytes of a piece."""
    word = np.uint64(attribute) << np.uint64(18) | np.uint64(kind & 3) << np.uint64(16)
    return ((word | np.uint64(first) << np.uint64(8) | np.uint64(second)) * _SPREAD) >> _SIEVE_SHIFT


@inlined
def passes(sieve: NDArray[np.uint64], kind: Int, attribute: Int, source: NDArray[np.uint8], at: Int) -> Truth:
    """Whether some resident piece of this kind may begin with the two bytes at `at` (end with them, for a suffix)."""
    place = sieve_place(kind, attribute, source[np.uint64(at)], source[np.uint64(at + 1)])
    return (sieve[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1) != np.uint64(0)


@device
def note_piece(store: Store, constraint: Int) -> None:
    """Note in mask and sieve that conjunctions are reached through a piece; other constraints are left alone."""
    kind, attribute = np.int64(store.constraints[constraint, KIND]), np.int64(store.constraints[constraint, ATTRIBUTE])
    at, size = np.int64(store.constraints[constraint, TEXT]), np.int64(store.constraints[constraint, TEXT_SIZE])
    if kind == PREFIX:
        column = PREFIX_LENGTHS
    elif kind == SUFFIX:
        column = SUFFIX_LENGTHS
    elif kind == GRAM:
        column = GRAM_LENGTHS
    else:
        return
    store.masks[attribute, column] |= np.uint64(1) << np.uint64(size)
    if size > 1:
        pair = at + size - 2 if kind == SUFFIX else at
        place = sieve_place(kind, attribute, store.text[pair], store.text[pair + 1])
        store.sieve[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@inlined
def find_piece(
    secret: np.uint64, store: Store, kind: Int, attribute: Int, source: NDArray[np.uint8], at: Int, size: Int
) -> Int:
    """The piece that equals source[at:at + size] and that conjunctions are reached through, or -1."""
    key = constraint_key(secret, kind, attribute, hash_bytes(secret, source, at, size), 0, 0)
    found = find_text(store, key, kind, attribute, source, at, size)
    return found if found >= 0 and store.constraints[found, COUNT] > 0 else -1


@device
def collect_affixes(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    lengths: np.uint64,
    kind: Int,
    attribute: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
) -> Int:
    """Look up the beginnings (or endings) of a text, one for each resident length."""
    length = end - start
    if length < 2 or not passes(store.sieve, kind, attribute, source, start if kind == PREFIX else end - 2):
        lengths &= np.uint64(2)
    size = np.int64(1)
    lengths >>= np.uint64(1)
    while lengths and size <= length:
        if lengths & np.uint64(1):
            at = start if kind == PREFIX else end - size
            found = find_piece(secret, store, kind, attribute, source, at, size)
            if found >= 0:
                reading.pending[count] = found
                count += 1
        lengths >>= np.uint64(1)
        size += 1
    return count


@device
def collect_grams(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    lengths: np.uint64,
    attribute: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    stamp: Int,
) -> Int:
    """Look up the windows of a text that pass the sieve, for each resident length; a gram that occurs twice is
    collected once. Returns -1 when `pending` is too small.
    """
    for at in range(start, end):
        left = lengths
        if at + 1 == end or not passes(store.sieve, GRAM, attribute, source, at):
            left &= np.uint64(2)
        size = np.int64(1)
        left >>= np.uint64(1)
        while left and at + size <= end:
            if left & np.uint64(1):
                found = find_piece(secret, store, GRAM, attribute, source, at, size)
                # In `memory`, 1 with the stamp of this row says that the gram is collected already.
                if found >= 0 and reading.memory[found] != stamp << 1 | 1:
                    if count == reading.pending.size:
                        return -1
                    reading.memory[found] = stamp << 1 | 1
                    reading.pending[count] = found
                    count += 1
            left >>= np.uint64(1)
            size += 1
    return count


@kernel(f"void({STORE}, int64)")
def tidy_pieces(store: Store, used: int) -> None:
    """Note again which pieces are resident."""
    store.masks[:] = np.uint64(0)
    store.sieve[:] = np.uint64(0)
    for number in range(used):
        if store.constraints[number, COUNT] > 0:
            note_piece(store, number)
