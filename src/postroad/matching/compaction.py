"""Compaction of the texts of an index.

Blocks of text are powers of two, and a free one is used again for its own size only (`arena.py`). Clients that
subscribe with texts of one size after the other would so fill the array with free blocks until it has reached its
ceiling. When the array would have to grow and half of it or more is free, the texts move together into a new one
instead, which costs what growing would.

Texts are referred to by resident constraints and by names of attributes. A free constraint has kind 0, a free
name has no size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.kernels import Int, device, kernel
from postroad.matching.arena import text_class
from postroad.matching.bundles import STORE
from postroad.matching.columns import CONSTRAINTS_USED, KIND, NAME, NAME_SIZE, TEXT, TEXT_HEADS, TEXT_SIZE, TEXT_USED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.matching.bundles import Store

__all__ = ["live_text", "move_text"]

_HEADS = 32


@kernel(f"int64({STORE})", allocates=False)
def live_text(store: Store) -> int:
    """The bytes of all blocks of text that are in use."""
    total = 0
    for number in range(store.counters[CONSTRAINTS_USED]):
        if store.constraints[number, KIND] != 0 and store.constraints[number, TEXT_SIZE] > 0:
            total += 1 << text_class(store.constraints[number, TEXT_SIZE])
    for number in range(store.attributes.shape[0]):
        if store.attributes[number, NAME_SIZE] > 0:
            total += 1 << text_class(store.attributes[number, NAME_SIZE])
    return total


@device
def move_block(store: Store, start: Int, size: Int, text: NDArray[np.uint8], end: Int) -> Int:
    """Copy one text to the end of those that have moved; returns where the next one goes."""
    for step in range(size):
        text[end + step] = store.text[start + step]
    return end + (1 << text_class(size))


@kernel(f"void({STORE}, uint8[::1])", allocates=False)
def move_text(store: Store, text: NDArray[np.uint8]) -> None:
    """Move all texts in use to the beginning of `text`, which has room for them (`live_text`).

    Nothing is free between them then. The store still has the old array, which the caller replaces.
    """
    end = 0
    for number in range(store.counters[CONSTRAINTS_USED]):
        if store.constraints[number, KIND] != 0 and store.constraints[number, TEXT_SIZE] > 0:
            start, size = store.constraints[number, TEXT], store.constraints[number, TEXT_SIZE]
            store.constraints[number, TEXT] = end
            end = move_block(store, start, size, text, end)
    for number in range(store.attributes.shape[0]):
        if store.attributes[number, NAME_SIZE] > 0:
            start, size = store.attributes[number, NAME], store.attributes[number, NAME_SIZE]
            store.attributes[number, NAME] = end
            end = move_block(store, start, size, text, end)
    store.counters[TEXT_USED] = end
    store.counters[TEXT_HEADS : TEXT_HEADS + _HEADS] = -1
