"""Substrings and LIKE patterns in a text, in time linear in the text, whatever text and pattern are.

A plain search goes first: it is the fastest on texts and patterns that people write. It counts its steps, and beyond
a small multiple of the lengths it hands over, at the place it has come to, to an algorithm that cannot be made to
walk the same bytes again:

- a part without holes is searched by its borders (Knuth, Morris and Pratt, 1977): two steps a byte at most;
- a part with holes, which a border search cannot take, by one bit for each byte of the part (Baeza-Yates and Gonnet,
  1992, as shift-and): one step a byte for each 64 bytes of the part.

`room` is where both keep their tables, from word `ROOM_START` on. It holds a part of `MAX_PATTERN_BYTES`, and no longer
pattern comes into the index (`compiling.like_bytes`, `lowering`).

Texts are UTF-8. A hole stands for one character: a byte that begins one, and the continuation bytes after it.

Every index here is a 64-bit integer between the ends that its caller gives, 0 <= start <= end <= source.size and
0 <= at <= at + size <= text.size; none is ever decremented below the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device
from postroad.matching.columns import MAX_LEVELS
from postroad.matching.table_hash import same_bytes
from postroad.selectors.limits import MAX_LIKE_LENGTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ANY_ONE", "ANY_RUN", "MAX_PATTERN_BYTES", "ROOM_WORDS", "find_plain", "has_substring", "is_like"]

# A LIKE pattern as bytes: these two never occur in UTF-8.
ANY_RUN, ANY_ONE = 0xFF, 0xFE

# A pattern of MAX_LIKE_LENGTH characters of four bytes each.
MAX_PATTERN_BYTES = 4 * MAX_LIKE_LENGTH

_PATTERN_WORDS = MAX_PATTERN_BYTES // 64
_BYTES = 256

# The hashes of a topic's levels come first. A search by bits needs one row of words for each value of a byte, one
# for its state and one for the holes; a search by borders one word for each byte of the part, which is less.
ROOM_START = MAX_LEVELS
ROOM_WORDS = ROOM_START + (_BYTES + 2) * _PATTERN_WORDS

# Steps that the plain search may take for each byte of text and pattern before it hands over, and some for short ones.
_PLAIN_STEPS = 2
_FREE_STEPS = 256


@device
def is_continuation(byte: Int) -> Truth:
    """Whether a byte of UTF-8 continues a character."""
    return byte & 0xC0 == 0x80


@device
def after_character(source: NDArray[np.uint8], at: Int, end: Int) -> Int:
    """Where the character at `at` ends, or -1 if none begins there."""
    if at >= end or is_continuation(source[at]):
        return -1
    at += 1
    while at < end and is_continuation(source[at]):
        at += 1
    return at


@device
def find_by_borders(
    text: NDArray[np.uint8],
    at: Int,
    size: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Int:
    """Where text[at:at+size], not empty, first occurs in source[start:end], or -1.

    room[ROOM_START + i] is the length of the longest proper border of the first i + 1 bytes, always at most i: so every
    index of `room` lies between ROOM_START and ROOM_START + size - 1.
    """
    room[ROOM_START] = np.uint64(0)
    length = np.int64(0)
    for place in range(np.int64(1), size):
        while length > 0 and text[at + place] != text[at + length]:
            length = np.int64(room[ROOM_START + length - 1])
        if text[at + place] == text[at + length]:
            length += 1
        room[ROOM_START + place] = np.uint64(length)
    length = np.int64(0)
    for here in range(start, end):
        while length > 0 and source[here] != text[at + length]:
            length = np.int64(room[ROOM_START + length - 1])
        if source[here] == text[at + length]:
            length += 1
        if length == size:
            return here - size + 1
    return np.int64(-1)


@device
def find_with_holes(
    text: NDArray[np.uint8],
    at: Int,
    size: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Int:
    """The end of the first place in source[start:end] that fits text[at:at+size], which has holes; or -1.

    Bit i of the state says that the first i + 1 bytes of the part fit what was read last. A hole that is filled stays
    filled over the continuation bytes of its character, and no other byte of the part fits one of those there.
    """
    words = (size + 63) >> 6
    state = ROOM_START + _BYTES * words
    holes = state + words
    for place in range(ROOM_START, holes + words):
        room[place] = np.uint64(0)
    for place in range(size):
        byte = np.int64(text[at + place])
        row = holes if byte == ANY_ONE else ROOM_START + byte * words
        room[row + (place >> 6)] |= np.uint64(1) << np.uint64(place & 63)
    last_word, last_bit = (size - 1) >> 6, np.uint64((size - 1) & 63)
    ends_in_hole = text[at + size - 1] == ANY_ONE
    for here in range(start, end):
        byte = np.int64(source[here])
        continues = is_continuation(byte)
        row = ROOM_START + byte * words
        carry = np.uint64(1)
        for word in range(words):
            before, open_ = room[state + word], room[holes + word]
            after = (before << np.uint64(1) | carry) & (room[row + word] if continues else room[row + word] | open_)
            carry = before >> np.uint64(63)
            room[state + word] = after | (before & open_ if continues else np.uint64(0))
        fits = (room[state + last_word] >> last_bit) & np.uint64(1) != np.uint64(0)
        if fits and (not ends_in_hole or here + 1 == end or not is_continuation(source[here + 1])):
            return here + 1
    return np.int64(-1)


@device
def find_plain(
    text: NDArray[np.uint8],
    at: Int,
    size: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Int:
    """Where text[at:at+size], not empty, first occurs in source[start:end], or -1."""
    most = _PLAIN_STEPS * (end - start) + _FREE_STEPS
    steps = np.int64(0)
    first = text[at]
    for here in range(start, end - size + 1):
        if source[here] == first:
            if same_bytes(text, at, source, here, size):
                return here
            steps += 1 + (size >> 3)
            if steps > most:
                return find_by_borders(text, at, size, source, here + 1, end, room)
    return np.int64(-1)


@device
def has_substring(
    text: NDArray[np.uint8],
    at: Int,
    size: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Truth:
    """Whether source[start:end] holds text[at:at+size] anywhere."""
    return size == 0 or find_plain(text, at, size, source, start, end, room) >= 0


@device
def before_suffix(text: NDArray[np.uint8], at: Int, stop: Int, source: NDArray[np.uint8], start: Int, end: Int) -> Int:
    """Where the end of source[start:end] begins that fits the part text[at:stop], or -1."""
    here = end
    for place in range(stop - 1, at - 1, -1):
        if here == start:
            return np.int64(-1)
        here -= 1
        if text[place] == ANY_ONE:
            while here > start and is_continuation(source[here]):
                here -= 1
            if is_continuation(source[here]):
                return np.int64(-1)
        elif source[here] != text[place]:
            return np.int64(-1)
    return here


@device
def finish_like(
    text: NDArray[np.uint8],
    pattern: Int,
    stop: Int,
    source: NDArray[np.uint8],
    here: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Truth:
    """Whether source[here:end] fits a run of any length and then text[pattern:stop], by the linear searches.

    Each part is taken at its first place, since a later one would only leave less for the parts after it; the last
    part is at the end.
    """
    last = stop
    while last > pattern and text[last - 1] != ANY_RUN:
        last -= 1
    end = before_suffix(text, last, stop, source, here, end)
    if end < 0:
        return False
    while pattern < last:
        close = pattern
        has_holes = False
        while text[close] != ANY_RUN:
            has_holes = has_holes or text[close] == ANY_ONE
            close += 1
        size = close - pattern
        if size > 0:
            if has_holes:
                here = find_with_holes(text, pattern, size, source, here, end, room)
            else:
                found = find_by_borders(text, pattern, size, source, here, end, room)
                here = found + size if found >= 0 else np.int64(-1)
            if here < 0:
                return False
        pattern = close + 1
    return True


@device
def is_like(
    text: NDArray[np.uint8],
    at: Int,
    size: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
    room: NDArray[np.uint64],
) -> Truth:
    """Whether source[start:end] has the form of the pattern text[at:at+size].

    On a mismatch only the last ANY_RUN can take more: a longer run for an earlier one could be given to the last as
    well. `run` and `retry` are where its next part begins in the pattern and is tried in the text; no place before
    `retry` fits that part, so the linear searches can continue from there.
    """
    pattern, stop = at, at + size
    run, retry = np.int64(-1), np.int64(0)
    here = start
    steps, most = np.int64(0), _PLAIN_STEPS * (size + end - start) + _FREE_STEPS
    while True:
        if pattern < stop and text[pattern] == ANY_RUN:
            pattern += 1
            run, retry = pattern, here
            continue
        if pattern == stop and here == end:
            return True
        following = np.int64(-1)
        if pattern < stop and here < end:
            if text[pattern] == ANY_ONE:
                following = after_character(source, here, end)
            elif text[pattern] == source[here]:
                following = here + 1
        steps += 1
        if following >= 0:
            pattern += 1
            here = following
        elif run >= 0 and retry < end:
            retry += 1
            if steps > most:
                return finish_like(text, run, stop, source, retry, end, room)
            pattern, here = run, retry
        else:
            return False
