"""Ranges: per attribute, a sorted list of chunks with summaries.

Each conjunction reached by a range is an item (low, high, entry), sorted by (low, high, conjunction) and cut into
chunks of at most CHUNK items; a directory per attribute lists the chunks in order. A chunk's summary holds the least
and most low and high bound. For a value, chunks behind its position are out of reach, a chunk whose highest bound is
too low is skipped, a chunk that lies wholly around the value is taken whole, and only the others are read item by item.

Bounds are closed and in float64: `x > 50` is [next float after 50, infinity]. What float64 cannot hold exactly is
widened here and decided by the exact constraint behind the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.kernels import Int, Truth, device
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
    import numpy as np
    from numpy.typing import NDArray


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
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    words: NDArray[np.int32],
    directory: Int,
    count: Int,
    low: float,
    high: float,
    conjunction: Int,
) -> Int:
    """The place in the directory of the last chunk whose first item is not after the given one (0 if none is)."""
    first, last = 0, count
    while last - first > 1:
        middle = (first + last) // 2
        chunk = words[directory + middle]
        if item_before(low, high, conjunction, lows[chunk, 0], highs[chunk, 0], entries[chunk, 0] >> ENTRY_SHIFT):
            last = middle
        else:
            first = middle
    return first


@device
def find_item(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    chunk: Int,
    count: Int,
    low: float,
    high: float,
    conjunction: Int,
) -> Int:
    """The place in a chunk of the first item that is not before the given one."""
    first, last = 0, count
    while first < last:
        middle = (first + last) // 2
        if item_before(
            lows[chunk, middle],
            highs[chunk, middle],
            entries[chunk, ENTRY_WORDS * middle] >> ENTRY_SHIFT,
            low,
            high,
            conjunction,
        ):
            first = middle + 1
        else:
            last = middle
    return first


@device
def summarise(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    summaries: NDArray[np.float64],
    sizes: NDArray[np.int32],
    chunk: Int,
) -> None:
    """Make a chunk's summary anew."""
    count = sizes[chunk]
    least, most = highs[chunk, 0], highs[chunk, 0]
    intricate = 0
    for item in range(count):
        least = min(least, highs[chunk, item])
        most = max(most, highs[chunk, item])
        if entries[chunk, ENTRY_WORDS * item] & MULTIPLE or entries[chunk, ENTRY_WORDS * item + 1] != NOTHING:
            intricate += 1
    summaries[chunk, LEAST_LOW] = lows[chunk, 0]
    summaries[chunk, MOST_LOW] = lows[chunk, count - 1]
    summaries[chunk, LEAST_HIGH] = least
    summaries[chunk, MOST_HIGH] = most
    summaries[chunk, INTRICATE] = intricate


@device
def take_chunk(sizes: NDArray[np.int32], counters: NDArray[np.int64]) -> Int:
    """An empty chunk; the caller has made sure that there is one."""
    chunk = counters[CHUNK_FREE]
    if chunk >= 0:
        counters[CHUNK_FREE] = -sizes[chunk] - 2
    else:
        chunk = counters[CHUNKS_USED]
        counters[CHUNKS_USED] += 1
    sizes[chunk] = 0
    return chunk


@device
def free_chunk(sizes: NDArray[np.int32], counters: NDArray[np.int64], chunk: Int) -> None:
    """Give an empty chunk back; its size field links the free list (negative, so that it is never taken for a size)."""
    sizes[chunk] = -counters[CHUNK_FREE] - 2
    counters[CHUNK_FREE] = chunk


@device
def enlist_chunk(
    attributes: NDArray[np.int32],
    words: NDArray[np.int32],
    counters: NDArray[np.int64],
    attribute: Int,
    place: Int,
    chunk: Int,
) -> None:
    """Put a chunk at a place of the attribute's directory, for which `words` has room."""
    row = attributes[attribute]
    count = row[DIRECTORY_COUNT]
    if count == row[DIRECTORY_CAPACITY]:
        capacity = max(4, 2 * count)
        block = take_words(words, counters, capacity)
        for at in range(count):
            words[block + at] = words[row[DIRECTORY] + at]
        if count:
            free_words(words, counters, row[DIRECTORY], row[DIRECTORY_CAPACITY])
        row[DIRECTORY] = block
        row[DIRECTORY_CAPACITY] = capacity
    start = row[DIRECTORY]
    for at in range(count, place, -1):
        words[start + at] = words[start + at - 1]
    words[start + place] = chunk
    row[DIRECTORY_COUNT] = count + 1


@device
def delist_chunk(
    attributes: NDArray[np.int32],
    words: NDArray[np.int32],
    counters: NDArray[np.int64],
    attribute: Int,
    place: Int,
) -> None:
    """Take the chunk at a place out of the attribute's directory."""
    row = attributes[attribute]
    row[DIRECTORY_COUNT] -= 1
    for at in range(place, row[DIRECTORY_COUNT]):
        words[row[DIRECTORY] + at] = words[row[DIRECTORY] + at + 1]
    if row[DIRECTORY_COUNT] == 0:
        free_words(words, counters, row[DIRECTORY], row[DIRECTORY_CAPACITY])
        row[DIRECTORY_CAPACITY] = 0


@device
def split_chunk(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    summaries: NDArray[np.float64],
    sizes: NDArray[np.int32],
    old: Int,
    new: Int,
) -> None:
    """Move the upper half of a full chunk into an empty one."""
    half = CHUNK // 2
    for item in range(CHUNK - half):
        lows[new, item] = lows[old, half + item]
        highs[new, item] = highs[old, half + item]
    for word in range(ENTRY_WORDS * (CHUNK - half)):
        entries[new, word] = entries[old, ENTRY_WORDS * half + word]
    sizes[new] = CHUNK - half
    sizes[old] = half
    summarise(lows, highs, entries, summaries, sizes, old)
    summarise(lows, highs, entries, summaries, sizes, new)


@device
def insert_range(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    summaries: NDArray[np.float64],
    sizes: NDArray[np.int32],
    attributes: NDArray[np.int32],
    words: NDArray[np.int32],
    counters: NDArray[np.int64],
    attribute: Int,
    low: float,
    high: float,
    marked: Int,
    left: Int,
    guard: Int,
) -> None:
    """Add an item. The caller has made sure of a free chunk and of room in `words` for a larger directory."""
    conjunction = marked >> ENTRY_SHIFT
    if attributes[attribute, DIRECTORY_COUNT] == 0:
        enlist_chunk(attributes, words, counters, attribute, 0, take_chunk(sizes, counters))
    start = attributes[attribute, DIRECTORY]
    place = find_chunk(
        lows, highs, entries, words, start, attributes[attribute, DIRECTORY_COUNT], low, high, conjunction
    )
    chunk = words[start + place]
    if sizes[chunk] == CHUNK:
        new = take_chunk(sizes, counters)
        enlist_chunk(attributes, words, counters, attribute, place + 1, new)
        split_chunk(lows, highs, entries, summaries, sizes, chunk, new)
        if not item_before(low, high, conjunction, lows[new, 0], highs[new, 0], entries[new, 0] >> ENTRY_SHIFT):
            chunk = new
    at = find_item(lows, highs, entries, chunk, sizes[chunk], low, high, conjunction)
    for item in range(sizes[chunk], at, -1):
        lows[chunk, item] = lows[chunk, item - 1]
        highs[chunk, item] = highs[chunk, item - 1]
        for word in range(ENTRY_WORDS * item, ENTRY_WORDS * (item + 1)):
            entries[chunk, word] = entries[chunk, word - ENTRY_WORDS]
    lows[chunk, at], highs[chunk, at] = low, high
    first = ENTRY_WORDS * at
    entries[chunk, first], entries[chunk, first + 1], entries[chunk, first + 2] = marked, left, guard
    sizes[chunk] += 1
    summarise(lows, highs, entries, summaries, sizes, chunk)


@device
def remove_range(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    summaries: NDArray[np.float64],
    sizes: NDArray[np.int32],
    attributes: NDArray[np.int32],
    words: NDArray[np.int32],
    counters: NDArray[np.int64],
    attribute: Int,
    low: float,
    high: float,
    conjunction: Int,
) -> None:
    """Take the item of a conjunction out; it is there."""
    start = attributes[attribute, DIRECTORY]
    place = find_chunk(
        lows, highs, entries, words, start, attributes[attribute, DIRECTORY_COUNT], low, high, conjunction
    )
    chunk = words[start + place]
    at = find_item(lows, highs, entries, chunk, sizes[chunk], low, high, conjunction)
    for item in range(at, sizes[chunk] - 1):
        lows[chunk, item] = lows[chunk, item + 1]
        highs[chunk, item] = highs[chunk, item + 1]
        for word in range(ENTRY_WORDS * item, ENTRY_WORDS * (item + 1)):
            entries[chunk, word] = entries[chunk, word + ENTRY_WORDS]
    sizes[chunk] -= 1
    if sizes[chunk]:
        summarise(lows, highs, entries, summaries, sizes, chunk)
    else:
        delist_chunk(attributes, words, counters, attribute, place)
        free_chunk(sizes, counters, chunk)


@device
def chunks_up_to(
    summaries: NDArray[np.float64], words: NDArray[np.int32], directory: Int, count: Int, value: float
) -> Int:
    """How many chunks of a directory begin at or below a value."""
    first, last = 0, count
    while first < last:
        middle = (first + last) // 2
        if summaries[words[directory + middle], LEAST_LOW] <= value:
            first = middle + 1
        else:
            last = middle
    return first
