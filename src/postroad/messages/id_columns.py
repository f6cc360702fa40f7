"""Ids as columns. This module alone knows where the parts of an id are in its two words.

A row of `Batch.ids` is (head, tail): the head holds the publisher above the broker that gave the id, its origin; the
tail holds the time above the counter. `MessageId` is the same for one id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages.columns import Ids

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]
    Fields = tuple[Integers, Integers, Integers, NDArray[np.int32]]

__all__ = [
    "COUNTER",
    "COUNTERS",
    "ORIGIN",
    "PUBLISHER_SHIFT",
    "TIME_SHIFT",
    "WORD_BITS",
    "id_fields",
    "id_order",
    "id_words",
]

# For kernels and columns alike: `head & ORIGIN`, `head >> PUBLISHER_SHIFT`, `tail >> TIME_SHIFT`, `tail & COUNTER`.
ORIGIN = np.uint64(0xFFFFFFFF)
PUBLISHER_SHIFT = np.uint64(32)
TIME_SHIFT = np.uint64(16)
COUNTER = np.uint64(0xFFFF)
# Ids that one publisher may have in one millisecond.
COUNTERS = 1 << 16
# An id as one number, for sets and dictionaries: `head << WORD_BITS | tail`.
WORD_BITS = 64


def id_fields(ids: Ids) -> Fields:
    """Return origin, time, publisher and counter of ids: the columns of the trail's tables."""
    heads, tails = ids[:, 0], ids[:, 1]
    return (
        (heads & ORIGIN).astype(np.int64),
        (tails >> TIME_SHIFT).astype(np.int64),
        (heads >> PUBLISHER_SHIFT).astype(np.int64),
        (tails & COUNTER).astype(np.int32),
    )


def id_words(origin: Integers, time: Integers, publisher: Integers, counter: NDArray[np.integer]) -> Ids:
    """The reverse of `id_fields`."""
    words = np.empty((len(origin), 2), np.uint64)
    words[:, 0] = publisher.astype(np.uint64) << PUBLISHER_SHIFT | origin.astype(np.uint64)
    words[:, 1] = time.astype(np.uint64) << TIME_SHIFT | counter.astype(np.uint64)
    return words


def id_order(heads: Words, tails: Words) -> Integers:
    """Return the row order that sorts ids as the trail does: by origin, time, publisher and counter."""
    sender = heads >> PUBLISHER_SHIFT << TIME_SHIFT | tails & COUNTER
    return np.lexsort((sender, tails >> TIME_SHIFT, heads & ORIGIN)).astype(np.int64, copy=False)
