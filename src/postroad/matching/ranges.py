"""Ranges: per attribute, a sorted list of chunks with summaries.

Each conjunction reached by a range is an item (low, high, entry), sorted by (low, high, conjunction) and cut into
chunks of at most CHUNK items; a directory per attribute lists the chunks in order. A chunk's summary holds the least
and most low and high bound. For a value, chunks after its position are out of reach, a chunk whose highest bound is
too low is skipped, a chunk that lies wholly around the value is taken whole, and only the others are read item by item.

Bounds are closed and in float64: `x > 50` is [next float after 50, infinity]. What float64 cannot hold exactly is
widened here and decided by the exact constraint of the entry.

Directories are blocks of `words`; places in them come from binary searches between 0 and their count. The size of a
chunk that is in use is 1 to CHUNK; a free one has a negative size, which links the free list and is read by
`take_chunk` alone. Numbers of chunks stay below 2**22 (`ceilings.py`). NaN cannot come: a bound is a literal of a
selector or an infinity, and a number of a message is finite or compares false everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.kernels import Int, Truth, device, inlined
from postroad.matching.arena import free_words, take_words
from postroad.matching.columns import (
    CHUNK,
    CHUNK_FREE,
    CHUNKS_USED,
    DIRECTORY,
    DIRECTORY_CAPACITY,
    DIRECTORY_COUNT,
    ENTRY_SHIFT,
    ENTRY_WORDS,
    INTRICATE,
    LEAST_HIGH,
    LEAST_LOW,
    MOST_HIGH,
    MOST_LOW,
    MULTIPLE,
)
from postroad.matching.lists import NOTHING

if TYPE_CHECKING:
    from postroad.matching.bundles import Chunks, Store


@device
def item_before(low: float, high: float, conjunction: Int, other_low: float, other_high: float, other: Int) -> Truth:
    """Whether one item sorts before another."""
    if low != other_low:
        return low < other_low
    if high != other_high:
        return high < other_high
    return conjunction < other


@device
def find_chunk(
    chunks: Chunks, store: Store, directory: Int, count: Int, low: float, high: float, conjunction: Int
) -> Int:
    """The place in the directory of the last chunk whose first item is not after the given one (0 if none is)."""
    first, last = 0, count
    while last - first > 1:
        middle = (first + last) // 2
        chunk = store.words[directory + middle]
        if item_before(
            low,
            high,
            conjunction,
            chunks.lows[chunk, 0],
            chunks.highs[chunk, 0],
            chunks.entries[chunk, 0] >> ENTRY_SHIFT,
        ):
            last = middle
        else:
            first = middle
    return first


@device
def find_item(chunks: Chunks, chunk: Int, count: Int, low: float, high: float, conjunction: Int) -> Int:
    """The place in a chunk of the first item that is not before the given one."""
    first, last = 0, count
    while first < last:
        middle = (first + last) // 2
        if item_before(
            chunks.lows[chunk, middle],
            chunks.highs[chunk, middle],
            chunks.entries[chunk, ENTRY_WORDS * middle] >> ENTRY_SHIFT,
            low,
            high,
            conjunction,
        ):
            first = middle + 1
        else:
            last = middle
    return first


@device
def summarise(chunks: Chunks, chunk: Int) -> None:
    """Make a chunk's summary again."""
    count = chunks.sizes[chunk]
    least, most = chunks.highs[chunk, 0], chunks.highs[chunk, 0]
    intricate = 0
    for item in range(count):
        least = min(least, chunks.highs[chunk, item])
        most = max(most, chunks.highs[chunk, item])
        if (
            chunks.entries[chunk, ENTRY_WORDS * item] & MULTIPLE
            or chunks.entries[chunk, ENTRY_WORDS * item + 1] != NOTHING
        ):
            intricate += 1
    # Items are sorted by their low bounds, so these are the first and the last; high bounds come in any order.
    chunks.summaries[chunk, LEAST_LOW] = chunks.lows[chunk, 0]
    chunks.summaries[chunk, MOST_LOW] = chunks.lows[chunk, count - 1]
    chunks.summaries[chunk, LEAST_HIGH] = least
    chunks.summaries[chunk, MOST_HIGH] = most
    chunks.summaries[chunk, INTRICATE] = intricate


@device
def take_chunk(chunks: Chunks, store: Store) -> Int:
    """An empty chunk; the caller has made sure that there is one."""
    chunk = store.counters[CHUNK_FREE]
    if chunk >= 0:
        # The reverse of `free_chunk`: the end of the list, -1, is kept as -1, and chunk n as -n - 2.
        store.counters[CHUNK_FREE] = -chunks.sizes[chunk] - 2
    else:
        chunk = store.counters[CHUNKS_USED]
        store.counters[CHUNKS_USED] += 1
    chunks.sizes[chunk] = 0
    return chunk


@device
def free_chunk(chunks: Chunks, store: Store, chunk: Int) -> None:
    """Give an empty chunk back; its size field links the free list (negative, so that it is never taken for a size)."""
    chunks.sizes[chunk] = -store.counters[CHUNK_FREE] - 2
    store.counters[CHUNK_FREE] = chunk


@device
def enlist_chunk(store: Store, attribute: Int, place: Int, chunk: Int) -> None:
    """Put a chunk at a place of the attribute's directory, for which `words` has room."""
    row = store.attributes[attribute]
    count = row[DIRECTORY_COUNT]
    if count == row[DIRECTORY_CAPACITY]:
        capacity = max(4, 2 * count)
        block = take_words(store, capacity)
        for at in range(count):
            store.words[block + at] = store.words[row[DIRECTORY] + at]
        if count:
            free_words(store, row[DIRECTORY], row[DIRECTORY_CAPACITY])
        row[DIRECTORY] = block
        row[DIRECTORY_CAPACITY] = capacity
    start = row[DIRECTORY]
    for at in range(count, place, -1):
        store.words[start + at] = store.words[start + at - 1]
    store.words[start + place] = chunk
    row[DIRECTORY_COUNT] = count + 1


@device
def delist_chunk(store: Store, attribute: Int, place: Int) -> None:
    """Take the chunk at a place out of the attribute's directory."""
    row = store.attributes[attribute]
    row[DIRECTORY_COUNT] -= 1
    for at in range(place, row[DIRECTORY_COUNT]):
        store.words[row[DIRECTORY] + at] = store.words[row[DIRECTORY] + at + 1]
    if row[DIRECTORY_COUNT] == 0:
        free_words(store, row[DIRECTORY], row[DIRECTORY_CAPACITY])
        row[DIRECTORY_CAPACITY] = 0


@device
def split_chunk(chunks: Chunks, old: Int, new: Int) -> None:
    """Move the upper half of a full chunk into an empty one."""
    half = CHUNK // 2
    for item in range(CHUNK - half):
        chunks.lows[new, item] = chunks.lows[old, half + item]
        chunks.highs[new, item] = chunks.highs[old, half + item]
    for word in range(ENTRY_WORDS * (CHUNK - half)):
        chunks.entries[new, word] = chunks.entries[old, ENTRY_WORDS * half + word]
    chunks.sizes[new] = CHUNK - half
    chunks.sizes[old] = half
    summarise(chunks, old)
    summarise(chunks, new)


@device
def insert_range(
    chunks: Chunks, store: Store, attribute: Int, low: float, high: float, marked: Int, left: Int, guard: Int
) -> None:
    """Add an item. The caller has made sure of a free chunk and of room in `words` for a larger directory.

    A full chunk is split first, so a chunk in use has between 1 and CHUNK items before and after. Items stay sorted
    within a chunk and from chunk to chunk; the summary is computed again from the items.
    """
    conjunction = marked >> ENTRY_SHIFT
    if store.attributes[attribute, DIRECTORY_COUNT] == 0:
        enlist_chunk(store, attribute, 0, take_chunk(chunks, store))
    start = store.attributes[attribute, DIRECTORY]
    place = find_chunk(chunks, store, start, store.attributes[attribute, DIRECTORY_COUNT], low, high, conjunction)
    chunk = store.words[start + place]
    if chunks.sizes[chunk] == CHUNK:
        new = take_chunk(chunks, store)
        enlist_chunk(store, attribute, place + 1, new)
        split_chunk(chunks, chunk, new)
        if not item_before(
            low, high, conjunction, chunks.lows[new, 0], chunks.highs[new, 0], chunks.entries[new, 0] >> ENTRY_SHIFT
        ):
            chunk = new
    at = find_item(chunks, chunk, chunks.sizes[chunk], low, high, conjunction)
    for item in range(chunks.sizes[chunk], at, -1):
        chunks.lows[chunk, item] = chunks.lows[chunk, item - 1]
        chunks.highs[chunk, item] = chunks.highs[chunk, item - 1]
        for word in range(ENTRY_WORDS * item, ENTRY_WORDS * (item + 1)):
            chunks.entries[chunk, word] = chunks.entries[chunk, word - ENTRY_WORDS]
    chunks.lows[chunk, at], chunks.highs[chunk, at] = low, high
    first = ENTRY_WORDS * at
    chunks.entries[chunk, first], chunks.entries[chunk, first + 1], chunks.entries[chunk, first + 2] = (
        marked,
        left,
        guard,
    )
    chunks.sizes[chunk] += 1
    summarise(chunks, chunk)


@device
def remove_range(chunks: Chunks, store: Store, attribute: Int, low: float, high: float, conjunction: Int) -> None:
    """Take the item of a conjunction out; it is there.

    Items are sorted by conjunction too where bounds are equal, so the searches that found its place find it again.
    Chunks are not joined: one that is almost empty is filled by later ranges, and goes with its last item.
    """
    start = store.attributes[attribute, DIRECTORY]
    place = find_chunk(chunks, store, start, store.attributes[attribute, DIRECTORY_COUNT], low, high, conjunction)
    chunk = store.words[start + place]
    at = find_item(chunks, chunk, chunks.sizes[chunk], low, high, conjunction)
    for item in range(at, chunks.sizes[chunk] - 1):
        chunks.lows[chunk, item] = chunks.lows[chunk, item + 1]
        chunks.highs[chunk, item] = chunks.highs[chunk, item + 1]
        for word in range(ENTRY_WORDS * item, ENTRY_WORDS * (item + 1)):
            chunks.entries[chunk, word] = chunks.entries[chunk, word + ENTRY_WORDS]
    chunks.sizes[chunk] -= 1
    if chunks.sizes[chunk]:
        summarise(chunks, chunk)
    else:
        delist_chunk(store, attribute, place)
        free_chunk(chunks, store, chunk)


@inlined
def chunks_up_to(chunks: Chunks, store: Store, directory: Int, count: Int, value: float) -> Int:
    """How many chunks of a directory begin at or below a value."""
    first, last = 0, count
    while first < last:
        middle = (first + last) // 2
        if chunks.summaries[store.words[directory + middle], LEAST_LOW] <= value:
            first = middle + 1
        else:
            last = middle
    return first
