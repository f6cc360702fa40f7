"""Two arenas in flat arrays: words (int32) and text (uint8).

Blocks come in powers of two. A freed block goes to the free list of its size and is handed out again, so adding and
removing subscriptions for ever does not grow the arrays. An allocation that does not fit answers -1 and changes
nothing: the caller grows the array and asks again.
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
    if start + (1 << kind) > store.words.size:
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
    if start + (1 << kind) > store.text.size:
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
