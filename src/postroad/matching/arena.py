"""Two arenas in flat arrays: words (int32) and text (uint8).

Blocks come in powers of two. A freed block goes to the free list of its size and is used again, so adding and
removing subscriptions for ever does not grow the arrays. An allocation that does not fit returns -1 and changes
nothing: the caller grows the array and asks again, and growing refuses at the ceiling.

Counters and offsets are 64-bit integers here. Rows keep them in 32 bits, so a block must end at `MOST_OFFSET` at the
latest, however large the array is: the allocators check that themselves, beside `ceilings.py`. Sizes are those of
arrays that Python holds, at least 1 and far below 2**31, so `size_class` ends; a head of a free list is -1 or the
start of a block that was in use before, so it lies in the array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, device
from postroad.matching.columns import TEXT_HEADS, TEXT_USED, WORD_HEADS, WORDS_USED

if TYPE_CHECKING:
    from postroad.matching.bundles import Store

# A free text block keeps the offset of the next one in its own bytes: five, so that no array is too large.
LEAST_TEXT_CLASS = 3

# Where the last block may end: offsets are kept in signed 32-bit columns.
MOST_OFFSET = 2**31 - 1


@device
def size_class(size: Int) -> Int:
    """The exponent of the smallest power of two that holds `size`."""
    found = 0
    while (1 << found) < size:
        found += 1
    return found


@device
def take_words(store: Store, size: Int) -> Int:
    """A block of at least `size` words, or -1."""
    kind = size_class(size)
    head = store.counters[WORD_HEADS + kind]
    if head >= 0:
        store.counters[WORD_HEADS + kind] = store.words[head]
        return head
    start = store.counters[WORDS_USED]
    if start + (1 << kind) > min(store.words.size, MOST_OFFSET):
        return -1
    store.counters[WORDS_USED] = start + (1 << kind)
    return start


@device
def free_words(store: Store, start: Int, size: Int) -> None:
    """Give a block of `size` words back."""
    kind = size_class(size)
    store.words[start] = store.counters[WORD_HEADS + kind]
    store.counters[WORD_HEADS + kind] = start


@device
def text_class(size: Int) -> Int:
    """The size class of a text block."""
    return max(size_class(size), LEAST_TEXT_CLASS)


@device
def take_text(store: Store, size: Int) -> Int:
    """A block of at least `size` bytes, or -1."""
    kind = text_class(size)
    head = store.counters[TEXT_HEADS + kind]
    if head >= 0:
        following = np.int64(0)
        for step in range(5):
            following |= np.int64(store.text[head + step]) << (8 * step)
        store.counters[TEXT_HEADS + kind] = following - 1
        return head
    start = store.counters[TEXT_USED]
    if start + (1 << kind) > min(store.text.size, MOST_OFFSET):
        return -1
    store.counters[TEXT_USED] = start + (1 << kind)
    return start


@device
def free_text(store: Store, start: Int, size: Int) -> None:
    """Give a block of `size` bytes back."""
    kind = text_class(size)
    following = store.counters[TEXT_HEADS + kind] + 1
    for step in range(5):
        store.text[start + step] = (following >> (8 * step)) & 255
    store.counters[TEXT_HEADS + kind] = start
