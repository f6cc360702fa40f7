"""Tests of text: prefix, suffix, and topics against patterns, all on UTF-8 bytes (`search.py` looks inside texts).

A code point never begins inside another one in UTF-8, so equality, prefix and suffix of bytes are those of characters.

Every offset is a 64-bit integer. `at` and `size` come from a constraint's row and lie in `text`, which ends below 2**30
(`ceilings.py`); `start` and `end` are those of a value in the batch or in the scratch buffer, 0 <= start <= end <= its
size, because the decoder of the message checked them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device
from postroad.matching.columns import MAX_LEVELS
from postroad.matching.table_hash import hash_bytes, mix, same_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
def topic_matches(
    text: NDArray[np.uint8], at: Int, size: Int, source: NDArray[np.uint8], start: Int, end: Int
) -> Truth:
    """Whether the topic source[start:end] fits the pattern text[at:at+size]."""
    # Both sides step over a level and the dot after it. The last level has no dot, so a topic that is used up leaves
    # `here` one beyond its end; `here > end` is a topic with fewer levels than the pattern.
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
def split_levels(secret: np.uint64, source: NDArray[np.uint8], start: Int, end: Int, hashes: NDArray[np.uint64]) -> Int:
    """Hash each level of a topic; returns their number, at most MAX_LEVELS (further levels are left out)."""
    count = 0
    level = start
    for at in range(start, end + 1):
        if at == end or source[at] == _DOT:
            if count == MAX_LEVELS:
                break
            hashes[count] = hash_bytes(secret, source, level, at - level)
            count += 1
            level = at + 1
    return count


@device
def shape_content(secret: np.uint64, hashes: NDArray[np.uint64], levels: Int, stars: Int, shape: Int) -> Int:
    """The hash of those levels that a shape of pattern spells out."""
    content = mix(secret, np.uint64(shape + 1))
    for level in range(levels):
        if not (stars >> level) & 1:
            content = mix(secret, content + hashes[level])
    # Never zero, which stands for "no content given" in a request.
    return content | np.uint64(1)
