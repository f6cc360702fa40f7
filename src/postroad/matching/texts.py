"""Tests of text: prefix, suffix, substring, LIKE, and topics against patterns, all on UTF-8 bytes.

A code point never begins inside another one in UTF-8, so equality, prefix, suffix and substring of bytes are those of
characters. Only the single-character wildcard of LIKE has to know where characters begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device
from postroad.matching.columns import MAX_LEVELS
from postroad.matching.hashing import hash_bytes, mix, same_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A LIKE pattern as bytes: these two never occur in UTF-8.
ANY_RUN, ANY_ONE = 0xFF, 0xFE

_DOT, _STAR, _REST = ord("."), ord("*"), ord(">")


@device
def has_prefix(text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int) -> Truth:
    """Whether source[start:end] begins with text[at:at+size]."""
    return size <= end - start and same_bytes(text, at, source, start, size)


@device
def has_suffix(text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int) -> Truth:
    """Whether source[start:end] ends with text[at:at+size]."""
    return size <= end - start and same_bytes(text, at, source, end - size, size)


@device
def has_substring(
    text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int
) -> Truth:
    """Whether source[start:end] holds text[at:at+size] anywhere."""
    for here in range(start, end - size + 1):
        if source[here] == text[at] and same_bytes(text, at, source, here, size):
            return True
    return False


@device
def after_character(source: NDArray[np.uint8], at: Int, end: Int) -> Int:
    """Where the character at `at` ends, or -1 if none begins there."""
    if at >= end or source[at] & 0xC0 == 0x80:
        return -1
    at += 1
    while at < end and source[at] & 0xC0 == 0x80:
        at += 1
    return at


@device
def is_like(text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int) -> Truth:
    """Whether source[start:end] has the form of the pattern text[at:at+size].

    On a mismatch only the last ANY_RUN can take more: a longer run for an earlier one could be given to the last as
    well. So the work is bounded by the product of both lengths.
    """
    pattern, stop = at, at + size
    run, retry = np.int64(-1), np.int64(0)
    here = start
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
        if following >= 0:
            pattern += 1
            here = following
        elif run >= 0 and retry < end:
            retry += 1
            pattern, here = run, retry
        else:
            return False


@device
def topic_matches(
    text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int
) -> Truth:
    """Whether the topic source[start:end] fits the pattern text[at:at+size]."""
    pattern, stop, here = at, at + size, start
    while pattern < stop:
        if here > end:
            return False
        if text[pattern] == _REST and pattern + 1 == stop:
            return here < end
        if text[pattern] == _STAR and (pattern + 1 == stop or text[pattern + 1] == _DOT):
            pattern += 1
            while here < end and source[here] != _DOT:
                here += 1
        else:
            while pattern < stop and text[pattern] != _DOT:
                if here >= end or source[here] != text[pattern]:
                    return False
                pattern += 1
                here += 1
            if here < end and source[here] != _DOT:
                return False
        pattern += 1
        here += 1
    return here == end + 1


@device
def split_levels(source: NDArray[np.uint8], start: Int, end: Int, hashes: NDArray[np.uint64]) -> Int:
    """Hash each level of a topic; answers their number, at most MAX_LEVELS (further levels are left out)."""
    count = 0
    level = start
    for at in range(start, end + 1):
        if at == end or source[at] == _DOT:
            if count == MAX_LEVELS:
                break
            hashes[count] = hash_bytes(source, level, at - level)
            count += 1
            level = at + 1
    return count


@device
def shape_content(hashes: NDArray[np.uint64], levels: Int, stars: Int, shape: Int) -> np.uint64:
    """The hash of those levels that a shape of pattern spells out."""
    content = mix(np.uint64(shape + 1))
    for level in range(levels):
        if not (stars >> level) & 1:
            content = mix(content + hashes[level])
    # Never zero, which stands for "no content given" in a request.
    return content | np.uint64(1)
