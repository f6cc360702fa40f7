"""From constraints of the selector language to rows of the index.

Each constraint becomes one interned row to test, and, where it can be looked up, one or more rows to reach the
conjunction through (hints): the beginning of a LIKE pattern, a gram of a substring, the existence of an attribute.

    constraint                  tested by               reached through
    text =, number =            itself                  itself
    boolean =, IS NOT NULL      itself                  itself
    IN of few texts             each text, in a conjunction of its own (`fan_out`)
    range                       RANGE, or EXACT_RANGE   RANGE
    prefix, suffix              itself                  itself; above MAX_AFFIX bytes its first or last bytes
    substring                   itself                  itself, if grams of its length are kept; else grams of it
    LIKE                        itself                  its beginning, its end, or grams of its longest run
    <>, NOT IN, NOT LIKE        itself                  the existence of the attribute
    IS NULL, programs           itself                  nothing: only as a filter

A hint holds wherever its constraint does. It may let through too many candidates, never too few; the exact row is then
tested on each. So a hint that is wrong by being too wide costs time, and one that is too narrow would lose messages:
that is why an inexact bound is widened outwards, and a cut-off affix is a prefix of the prefix.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.matching import columns
from postroad.matching.columns import MAX_AFFIX, TOPIC_ATTRIBUTE
from postroad.matching.compiler import compile_condition, like_bytes
from postroad.matching.conjunctions import EITHER, FILTER, HINT
from postroad.matching.costs import like_cost, substring_cost
from postroad.matching.search import MAX_PATTERN_BYTES
from postroad.selectors.normal_form import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.matching.interner import Interner
    from postroad.selectors import TopicPattern
    from postroad.selectors.like import LikePattern
    from postroad.selectors.normal_form import Conjunction, Constraint, Range

# An IN of at most this many texts is reached through each of them; a longer one through the attribute's existence.
# Every text costs one entry, and an IN of more is seldom what makes a selector selective.
MAX_FAN_OUT = 16

# Lengths of the grams that substrings are looked up by: each resident length costs a walk over the text.
GRAM_SIZES = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)

Member = tuple[int, int]  # an interned constraint and its role


def lower_topic(interner: Interner, topic: TopicPattern | None) -> list[Member]:
    """The constraint that a topic pattern puts on a message; none when it fits every topic."""
    if topic is None or topic.text == ">":
        return []
    if topic.is_exact:
        return [(interner.text(columns.EQUAL_TEXT, TOPIC_ATTRIBUTE, topic.text.encode()), EITHER)]
    number, looked_up = interner.topic(topic)
    return [(number, EITHER if looked_up else FILTER)]


def fan_out(conjunction: Conjunction) -> Constraint | None:
    """The IN to reach a conjunction through, when it has no equality to do it better."""
    if any(part.operator in (Operator.EQUAL_TEXT, Operator.EQUAL_NUMBER) for part in conjunction):
        return None
    lists = [part for part in conjunction if part.operator is Operator.IN_TEXT and len(part.operand) <= MAX_FAN_OUT]
    return min(lists, key=lambda part: len(part.operand), default=None)


def lower(interner: Interner, constraint: Constraint) -> Iterator[Member]:
    """The rows of one constraint."""
    operator, operand = constraint.operator, constraint.operand
    if operator is Operator.TEST:
        yield interner.program(compile_condition(operand, interner.attribute)), FILTER
        return
    attribute = interner.attribute(constraint.attribute)
    if operator is Operator.EQUAL_TEXT:
        yield interner.text(columns.EQUAL_TEXT, attribute, operand.encode()), EITHER
    elif operator is Operator.EQUAL_NUMBER or operator is Operator.NOT_EQUAL_NUMBER:
        equal = operator is Operator.EQUAL_NUMBER
        kind = columns.EQUAL_NUMBER if equal else columns.NOT_EQUAL_NUMBER
        yield interner.number(kind, attribute, *canonical(operand)), EITHER if equal else FILTER
        if not equal:
            yield interner.plain(columns.EXISTS, attribute), HINT
    elif operator is Operator.RANGE:
        yield from _lower_range(interner, attribute, operand)
    elif operator is Operator.EQUAL_BOOLEAN:
        yield interner.plain(columns.EQUAL_BOOLEAN, attribute, int(operand)), EITHER
    elif operator is Operator.EXISTS:
        yield interner.plain(columns.EXISTS, attribute), EITHER
    elif operator is Operator.MISSING:
        yield interner.plain(columns.MISSING, attribute), FILTER
    else:
        yield from _lower_text(interner, attribute, operator, operand)


def _lower_text(interner: Interner, attribute: int, operator: Operator, operand: object) -> Iterator[Member]:
    if operator is Operator.PREFIX:
        yield from _lower_affix(interner, attribute, columns.PREFIX, str(operand).encode())
    elif operator is Operator.SUFFIX:
        yield from _lower_affix(interner, attribute, columns.SUFFIX, str(operand).encode())
    elif operator is Operator.SUBSTRING:
        yield from _lower_substring(interner, attribute, str(operand).encode())
    elif operator is Operator.LIKE:
        yield from _lower_like(interner, attribute, operand)  # type: ignore[arg-type]
    else:
        # <>, NOT IN, NOT LIKE and a long IN: any text may do, so only the attribute itself can be looked up.
        yield interner.plain(columns.EXISTS, attribute), HINT
        if operator is Operator.NOT_LIKE:
            pattern = like_bytes(operand)  # type: ignore[arg-type]
            yield interner.searched(columns.NOT_LIKE, attribute, pattern, like_cost(pattern)), FILTER
        else:
            kind, texts = _LISTS[operator], (operand,) if isinstance(operand, str) else operand
            yield interner.listed(kind, attribute, [text.encode() for text in texts]), FILTER  # type: ignore[attr-defined]


_LISTS = {
    Operator.IN_TEXT: columns.IN_TEXT,
    Operator.NOT_IN_TEXT: columns.NOT_IN_TEXT,
    Operator.NOT_EQUAL_TEXT: columns.NOT_EQUAL_TEXT,
}


def _lower_affix(interner: Interner, attribute: int, kind: int, data: bytes) -> Iterator[Member]:
    if len(data) <= MAX_AFFIX:
        yield interner.text(kind, attribute, data), EITHER
        return
    yield interner.text(kind, attribute, data), FILTER
    short = data[:MAX_AFFIX] if kind == columns.PREFIX else data[-MAX_AFFIX:]
    yield interner.text(kind, attribute, short), HINT


def _lower_substring(interner: Interner, attribute: int, data: bytes) -> Iterator[Member]:
    if len(data) in GRAM_SIZES:
        yield interner.text(columns.GRAM, attribute, data), EITHER
        return
    if len(data) > MAX_PATTERN_BYTES:
        raise LimitError("a LIKE pattern", len(data), MAX_PATTERN_BYTES, "bytes of UTF-8, MAX_PATTERN_BYTES")
    yield interner.searched(columns.SUBSTRING, attribute, data, substring_cost()), FILTER
    yield from _grams(interner, attribute, data)


def _grams(interner: Interner, attribute: int, data: bytes) -> Iterator[Member]:
    """A few grams of a text, of which the index takes the one that fewest others are reached through."""
    size = next(size for size in GRAM_SIZES if size <= len(data))
    for start in sorted({0, (len(data) - size) // 2, len(data) - size}):
        yield interner.text(columns.GRAM, attribute, data[start : start + size]), HINT


def _lower_like(interner: Interner, attribute: int, pattern: LikePattern) -> Iterator[Member]:
    """A pattern is reached through the plain text it begins or ends with, or the longest in its middle."""
    data = like_bytes(pattern)
    yield interner.searched(columns.LIKE, attribute, data, like_cost(data)), FILTER
    runs = [
        part[start:end].encode()
        for part, holes in zip(pattern.parts, pattern.holes, strict=True)
        for start, end in zip((0, *(hole + 1 for hole in holes)), (*holes, len(part)), strict=True)
    ]
    hinted = False
    if runs[0]:
        yield interner.text(columns.PREFIX, attribute, runs[0][:MAX_AFFIX]), HINT
        hinted = True
    if runs[-1]:
        yield interner.text(columns.SUFFIX, attribute, runs[-1][-MAX_AFFIX:]), HINT
        hinted = True
    longest = max(runs, key=len)
    if longest and not hinted:
        yield from _grams(interner, attribute, longest)
    elif not hinted:
        yield interner.plain(columns.EXISTS, attribute), HINT


def canonical(number: int | float) -> tuple[int, int]:
    """A number as (bits, integral): as an integer wherever it is one, so that equal numbers are equal bits."""
    if isinstance(number, int):
        return number, 1
    if number.is_integer() and -(2.0**63) <= number < 2.0**63:
        return int(number), 1
    return _float_bits(number), 0


def _float_bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _lower_range(interner: Interner, attribute: int, wanted: Range) -> Iterator[Member]:
    low, low_bits, low_flags, low_exact = _bound(wanted.low, wanted.low_open, -math.inf)
    high, high_bits, high_flags, high_exact = _bound(wanted.high, wanted.high_open, math.inf)
    # The flags of a high bound are one bit above those of a low one.
    flags = low_flags | high_flags << 1
    if low_exact and high_exact:
        yield interner.range(columns.RANGE, attribute, flags, low, high, low_bits, high_bits), EITHER
        return
    yield interner.range(columns.EXACT_RANGE, attribute, flags, low, high, low_bits, high_bits), FILTER
    yield interner.range(columns.RANGE, attribute, flags, low, high, low_bits, high_bits), HINT


def _bound(number: int | float | None, is_open: bool, outward: float) -> tuple[float, int, int, bool]:
    """A bound as (closed float, bits as written, flags, exact); `outward` is the infinity on its side."""
    if number is None:
        return outward, _float_bits(outward), 0, True
    flags = columns.LOW_OPEN if is_open else 0
    nearest = float(number)
    if nearest == number:
        closed = float(np.nextafter(nearest, -outward)) if is_open else nearest
        return closed, _float_bits(nearest), flags, True
    # An integer that float64 cannot hold: widen to the next float outward, and let the exact row decide.
    assert isinstance(number, int)
    beyond = nearest < number if outward < 0 else nearest > number
    widened = nearest if beyond else float(np.nextafter(nearest, outward))
    return widened, number, flags | columns.LOW_INTEGER, False
