"""The categories of messages, straight from the columns of a batch.

Every occurrence of an attribute counts, also the second one of a name, which selectors do not see: more categories can
only make a message match once too often. Untyped text counts as text and, where it is a number, as a number.

In B-DRP this is the set of categories of a message, the union of those of its attributes: "exists, with this type"
and "equals this value". The sharp scheme adds to each number one category per threshold that it is above or below, and
to each text its prefixes, its suffixes and its grams. What a subscription asks for is in `demands.py`, and the two must
agree word by word: `tests/matching/encoding/test_no_false_negatives.py` compares them over the whole language.

The kernel may run more than once. If `out` is too small it only counts, and runs again with enough room; if a number is
too hard for it, it notes where, and runs again with the value that Python found. The order of numbers is the same in
each run, so a place in `noted` is the same number in `resolved`.

Indices: rows were checked when they were decoded; categories are counted in 64 bits and written only while there is
room.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.filters.hashes import hash_span
from postroad.kernels import device, kernel
from postroad.matching.encoding import families
from postroad.matching.encoding.values import (
    add_boolean,
    add_bytes,
    add_float,
    add_integer,
    add_text,
    add_topic,
)
from postroad.messages.columns import ATTRIBUTES, BUFFER, HEADERS, PRIORITY, TOPIC
from postroad.messages.fields import entry_at, float_at, integer_at, line_at, unescape_into
from postroad.messages.limits import MAX_HEADER_BYTES
from postroad.messages.numbers import FLOAT, HARD, INTEGER, number_of, parse_number
from postroad.messages.values import Tag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.encoding.scheme import Scheme
    from postroad.messages import Batch

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]

__all__ = ["Categories", "message_categories"]

_TEXT, _UNTYPED, _INTEGER = Tag.TEXT, Tag.UNTYPED, Tag.INTEGER
_FLOAT, _BOOLEAN = Tag.FLOAT, Tag.BOOLEAN
_PRIORITY_NAME = np.uint64(families.PRIORITY_NAME)

_ROOM_PER_MESSAGE = 192  # words; ten attributes of the B-DRP workload give 130 to 160


class Categories(NamedTuple):
    """Categories of many messages end to end; those of row i are `words[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]
    words: NDArray[np.uint64]


class _Rule(NamedTuple):
    """What the kernel's pieces share.

    A *hard* number is untyped text whose value only Python's float can tell. A first pass notes where they are in
    `noted` (start, end); a second finds their values in `resolved`, in the order met, NaN for those that are none.
    `scratch` has room for a header line without its escapes.
    """

    thresholds: NDArray[np.float64]
    gram: int
    resolved: NDArray[np.float64]
    noted: NDArray[np.int32]
    scratch: NDArray[np.uint8]


@device
def _add_number_text(
    buffer: Bytes, start: int, end: int, name: np.uint64, rule: _Rule, out: Words, count: int, hard: int
) -> tuple[int, int]:
    kind, integer, real = parse_number(buffer, start, end)
    if kind == INTEGER:
        return add_integer(integer, name, rule.thresholds, out, count), hard
    if kind == FLOAT:
        return add_float(real, name, rule.thresholds, out, count), hard
    if kind == HARD:
        if hard < len(rule.resolved) and not np.isnan(rule.resolved[hard]):
            count = add_float(rule.resolved[hard], name, rule.thresholds, out, count)
        if hard < len(rule.noted):
            rule.noted[hard, 0], rule.noted[hard, 1] = start, end
        hard += 1
    return count, hard


@device
def _add_block(buffer: Bytes, at: int, stop: int, rule: _Rule, out: Words, count: int, hard: int) -> tuple[int, int]:
    """The entries of an attribute block."""
    while at < stop:
        tag, start, value, following = entry_at(buffer, at)
        name = hash_span(buffer, start, value)
        if tag in (_TEXT, _UNTYPED):
            count = add_text(buffer, value, following, name, rule.gram, out, count)
            if tag == _UNTYPED:
                count, hard = _add_number_text(buffer, value, following, name, rule, out, count, hard)
        elif tag == _INTEGER:
            count = add_integer(integer_at(buffer, value), name, rule.thresholds, out, count)
        elif tag == _FLOAT:
            count = add_float(float_at(buffer, value), name, rule.thresholds, out, count)
        elif tag == _BOOLEAN:
            count = add_boolean(buffer[value], name, out, count)
        else:
            count = add_bytes(name, out, count)
        at = following
    return count, hard


@device
def _add_escaped(
    buffer: Bytes, at: int, colon: int, newline: int, rule: _Rule, out: Words, count: int
) -> tuple[np.uint64, int]:
    """A header line with an escape in it, as text: (hash of its plain name, count)."""
    plain = rule.scratch
    middle = unescape_into(buffer, at, colon, plain, 0)
    end = unescape_into(buffer, colon + 1, newline, plain, middle)
    name = hash_span(plain, 0, middle)
    return name, add_text(plain, middle, end, name, rule.gram, out, count)


@device
def _add_headers(buffer: Bytes, at: int, stop: int, rule: _Rule, out: Words, count: int, hard: int) -> tuple[int, int]:
    """Header lines: every one is untyped text."""
    while at < stop:
        colon, newline, escaped = line_at(buffer, at)
        if escaped:
            name, count = _add_escaped(buffer, at, colon, newline, rule, out, count)
        else:
            name = hash_span(buffer, at, colon)
            count = add_text(buffer, colon + 1, newline, name, rule.gram, out, count)
        # An escaped value is not a number, before or after unescaping: numbers have no escaped character or backslash.
        count, hard = _add_number_text(buffer, colon + 1, newline, name, rule, out, count, hard)
        at = newline + 1
    return count, hard


@kernel(
    f"UniTuple(int64, 2)({BUFFER}, int32[:, :], int64[:, :], float64[::1], int64, boolean, boolean, float64[::1],"
    " int32[:, ::1], uint8[::1], int64[::1], uint64[::1])",
    allocates=False,
)
def _categories(
    buffer: Bytes,
    spans: NDArray[np.int32],
    envelopes: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    gram: int,
    topics: bool,
    priority: bool,
    resolved: NDArray[np.float64],
    noted: NDArray[np.int32],
    scratch: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    out: Words,
) -> tuple[int, int]:
    """Write the categories of each row end to end: (how many there are, how many numbers are hard)."""
    rule = _Rule(thresholds, gram, resolved, noted, scratch)
    count = hard = 0
    offsets[0] = 0
    for row in range(len(spans)):
        span = spans[row]
        if topics:
            count = add_topic(buffer, span[TOPIC], span[TOPIC + 1], out, count)
        if priority:
            count = add_integer(envelopes[row, PRIORITY], _PRIORITY_NAME, thresholds, out, count)
        start, end = int(span[ATTRIBUTES]), int(span[ATTRIBUTES + 1])
        count, hard = _add_block(buffer, start, end, rule, out, count, hard)
        start, end = int(span[HEADERS]), int(span[HEADERS + 1])
        count, hard = _add_headers(buffer, start, end, rule, out, count, hard)
        offsets[row + 1] = count
    return count, hard


_NOTHING_RESOLVED = np.empty(0, np.float64)
_NOTHING_NOTED = np.empty((0, 2), np.int32)


@lru_cache(maxsize=16)
def _ladder(thresholds: tuple[float, ...]) -> NDArray[np.float64]:
    """A scheme's thresholds as kernels take them; a broker knows few schemes, and asks for them with each batch."""
    return np.array(thresholds, np.float64)


def message_categories(batch: Batch, scheme: Scheme) -> Categories:
    """The categories of each message of a batch. A category may occur twice."""
    thresholds = _ladder(scheme.thresholds)
    offsets = np.empty(len(batch) + 1, np.int64)
    out = np.empty(_ROOM_PER_MESSAGE * len(batch), np.uint64)
    scratch = np.empty(MAX_HEADER_BYTES, np.uint8)
    resolved, noted = _NOTHING_RESOLVED, _NOTHING_NOTED
    while True:
        count, hard = _categories(
            batch.buffer,
            batch.spans,
            batch.envelopes,
            thresholds,
            scheme.gram,
            scheme.topics,
            scheme.priority,
            resolved,
            noted,
            scratch,
            offsets,
            out,
        )
        if hard > len(noted):
            noted = np.empty((hard, 2), np.int32)
        elif hard > len(resolved):
            resolved = _resolve(batch.buffer, noted)
        elif count > len(out):
            out = np.empty(count, np.uint64)
        else:
            return Categories(offsets, out[:count])


def _resolve(buffer: Bytes, noted: NDArray[np.int32]) -> NDArray[np.float64]:
    numbers = (number_of(buffer[start:end].tobytes().decode()) for start, end in noted.tolist())
    return np.array([np.nan if number is None else number for number in numbers], np.float64)
