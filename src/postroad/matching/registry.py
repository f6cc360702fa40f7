"""The registries beside the constraints: attribute names, and shapes of topic patterns.

An attribute has a row of `attributes`, with the place and the size of its name in `text`. `names` finds the row from
the bytes of a name: an open hash table of 2^n words with linear probing. A word is 0 if it is free; otherwise its upper
half is that of the name's hash, under the secret of this index, and its lower half is the attribute's number plus one.
The upper half spares a look at the bytes of most other names.

The table of names is at most half full when a name is added, so that probes end, and the mask keeps every probe inside.
Names are not removed one by one, which would break the chains of others: the table is emptied and filled again. A
pattern has at most MAX_LEVELS levels, and `split_levels` leaves further ones out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, device, kernel
from postroad.matching.arena import free_text, take_text
from postroad.matching.bundles import STORE
from postroad.matching.columns import (
    MAX_LEVELS,
    NAME,
    NAME_SIZE,
    SECRET,
)
from postroad.matching.table_hash import name_key
from postroad.matching.texts import shape_content, split_levels
from postroad.messages.columns import BUFFER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Store


@device
def enter_name(store: Store, number: Int) -> None:
    """Put an attribute into the table of names, which always has room."""
    secret = np.uint64(store.counters[SECRET])
    key = name_key(
        secret, store.text, np.int64(store.attributes[number, NAME]), np.int64(store.attributes[number, NAME_SIZE])
    )
    mask = np.uint64(store.names.size - 1)
    at = key & mask
    while store.names[at] != np.uint64(0):
        at = (at + np.uint64(1)) & mask
    store.names[at] = (key & np.uint64(0xFFFFFFFF00000000)) | np.uint64(number + 1)


@kernel(f"int64({STORE}, {BUFFER}, int64)", allocates=False)
def put_name(store: Store, name: NDArray[np.uint8], number: int) -> int:
    """Give an attribute its name; -1 if `text` is full and nothing was done."""
    block = take_text(store, name.size)
    if block < 0:
        return -1
    for step in range(name.size):
        store.text[block + step] = name[step]
    store.attributes[number, NAME], store.attributes[number, NAME_SIZE] = block, name.size
    enter_name(store, number)
    return 0


@kernel(f"void({STORE}, int64)", allocates=False)
def drop_name(store: Store, number: int) -> None:
    """Give the bytes of a name back; the table of names is rebuilt afterwards."""
    free_text(store, np.int64(store.attributes[number, NAME]), np.int64(store.attributes[number, NAME_SIZE]))
    store.attributes[number, NAME_SIZE] = 0


@kernel(f"void({STORE}, int32[::1])", allocates=False)
def rebuild_names(store: Store, live: NDArray[np.int32]) -> None:
    """Fill an empty table of names with the given attributes."""
    for number in live:
        enter_name(store, np.int64(number))


@kernel(f"int64({BUFFER}, int64, int64, int64, int64)")
def shape_key(pattern: NDArray[np.uint8], levels: int, stars: int, shape: int, secret: int) -> Int:
    """The hash of the levels that a topic pattern spells out, as a signed word."""
    hashes = np.empty(MAX_LEVELS, np.uint64)
    split_levels(np.uint64(secret), pattern, np.int64(0), np.int64(pattern.size), hashes)
    return np.int64(shape_content(np.uint64(secret), hashes, levels, stars, shape))
