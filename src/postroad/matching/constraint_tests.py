"""Whether a constraint holds for the row just read.

`constraint` is the number of a live constraint, taken from an entry or a list, and never negative; its attribute has a
row in `values`. A value is read only where its stamp is the row's, and then `START` and `END` lie in the buffer that
`IN_SCRATCH` says.

Two truth values are enough here. A selector has three, but its normal form has pushed every NOT down to the
constraints (NOT LIKE, <>, IS NULL are kinds of their own), and above them are only AND and OR. There unknown and false
have the same effect, so a test of a missing attribute, or of one with another type, says False for a kind and for its
opposite.

Columns that a test needs: `constraints` says kind, attribute, and where the operand is in `text` or `words`; `bits` and
`bounds` have numeric operands; `values` and `numbers` have the message's value. `bounds` are closed floats, rounded
outwards where a bound is not a float; only RANGE with a value that is a float exactly is decided by them alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, inlined
from postroad.matching.columns import (
    ALWAYS,
    ATTRIBUTE,
    BITS,
    END,
    EQUAL_BOOLEAN,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXACT_RANGE,
    EXISTS,
    FLAGS,
    FORM,
    GRAM,
    HIGH_INTEGER,
    HIGH_OPEN,
    IN_SCRATCH,
    IN_TEXT,
    IS_FALSE,
    IS_INEXACT,
    IS_INTEGRAL,
    IS_NUMBER,
    IS_TEXT,
    IS_TRUE,
    KIND,
    LIKE,
    LOW_INTEGER,
    LOW_OPEN,
    MISSING,
    NOT_EQUAL_TEXT,
    NOT_IN_TEXT,
    NOT_LIKE,
    NUMBER_HIT,
    PREFIX,
    RANGE,
    STAMP,
    START,
    SUBSTRING,
    SUFFIX,
    TEST,
    TEXT,
    TEXT_HIT,
    TEXT_SIZE,
    TOPIC,
    WORD_COUNT,
    WORDS,
)
from postroad.matching.costs import SUBSTRING_BYTE_COST, like_work
from postroad.matching.numerics import compare_numbers
from postroad.matching.programs import run_program
from postroad.matching.search import has_substring, is_like
from postroad.matching.texts import has_prefix, has_suffix, topic_matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Reading, Store


@device
def in_exact_range(
    bits: NDArray[np.int64], constraint: Int, flags: Int, integral: bool, integer: Int, number: float
) -> Truth:
    """Whether a number lies in a range, by the bounds as they were written."""
    low = bits[constraint, 0]
    order = compare_numbers(integral, integer, number, flags & LOW_INTEGER != 0, low, np.int64(low).view(np.float64))
    if order < 0 or (order == 0 and flags & LOW_OPEN):
        return False
    high = bits[constraint, 1]
    order = compare_numbers(integral, integer, number, flags & HIGH_INTEGER != 0, high, np.int64(high).view(np.float64))
    return order < 0 or (order == 0 and not flags & HIGH_OPEN)


@device
def is_member(words: NDArray[np.int32], start: Int, count: Int, wanted: Int) -> Truth:
    """Whether a constraint is among the sorted members at words[start:start + count]."""
    first, last = np.int64(0), np.int64(count)
    while first < last:
        middle = (first + last) >> 1
        member = words[start + middle]
        if member == wanted:
            return True
        if member < wanted:
            first = middle + 1
        else:
            last = middle
    return False


@inlined
def holds_quickly(store: Store, reading: Reading, constraint: Int, kind: Int, stamp: Int) -> Truth:
    """Decide a constraint of a kind up to LAST_QUICK: by columns of the row alone, without a look at its bytes.

    An attribute is in the row if its stamp is the row's; all other columns of an attribute without the stamp are stale.
    Texts and numbers are interned, so equality is that of numbers of constraints (`TEXT_HIT`, `NUMBER_HIT`).
    """
    row = np.uint64(constraint)
    attribute = np.uint64(store.constraints[row, ATTRIBUTE])
    there = reading.values[attribute, STAMP] == stamp
    if not there:
        return kind in (MISSING, ALWAYS)
    if kind == EQUAL_TEXT:
        return reading.values[attribute, TEXT_HIT] == constraint
    if kind == EQUAL_NUMBER:
        return reading.values[attribute, NUMBER_HIT] == constraint
    form = reading.values[attribute, FORM]
    if kind == RANGE and not form & IS_INEXACT:
        number = reading.numbers[attribute]
        return form & IS_NUMBER != 0 and store.bounds[row, 0] <= number and number <= store.bounds[row, 1]
    if kind in (EXISTS, ALWAYS):
        return True
    if kind == EQUAL_BOOLEAN:
        return form & (IS_TRUE if store.constraints[row, FLAGS] else IS_FALSE) != 0
    if kind in (IN_TEXT, NOT_EQUAL_TEXT, NOT_IN_TEXT):
        if not form & IS_TEXT:
            return False
        hit = reading.values[attribute, TEXT_HIT]
        found = hit >= 0 and is_member(
            store.words, store.constraints[row, WORDS], store.constraints[row, WORD_COUNT], hit
        )
        return found == (kind == IN_TEXT)
    if kind == MISSING or not form & IS_NUMBER:
        return False
    integral = form & IS_INTEGRAL != 0
    integer = reading.values[attribute, BITS]
    if kind in (RANGE, EXACT_RANGE):
        flags = np.int64(store.constraints[row, FLAGS])
        return in_exact_range(store.bits, constraint, flags, integral, integer, reading.numbers[attribute])
    # NOT_EQUAL_NUMBER: canonical numbers are equal exactly when their bits and their form are.
    return integer != store.bits[row, 0] or integral != (store.bits[row, 1] != 0)


@device
def holds_slowly(
    store: Store, reading: Reading, buffer: NDArray[np.uint8], scratch: NDArray[np.uint8], constraint: Int, stamp: Int
) -> Truth:
    """Decide a constraint that walks bytes or runs a program; the result is remembered for the row.

    memory[constraint] is stamp << 1 | result. Stamps only rise, so a result of an earlier row is never taken for one of
    this row, and nothing has to be cleared. Walks that can be long are charged to hard[0, 1].
    """
    if reading.memory[constraint] >> 1 == stamp:
        return reading.memory[constraint] & 1 == 1
    row = store.constraints[constraint]
    kind = row[KIND]
    at, size = np.int64(row[TEXT]), np.int64(row[TEXT_SIZE])
    result = False
    if kind == TEST:
        end = np.int64(row[WORDS]) + np.int64(row[WORD_COUNT])
        result = run_program(
            store.words,
            np.int64(row[WORDS]),
            end,
            store.text,
            at,
            reading.stack,
            reading.floats,
            reading.values,
            reading.numbers,
            buffer,
            scratch,
            reading.hashes,
            reading.hard,
            stamp,
        )
    elif reading.values[row[ATTRIBUTE], STAMP] == stamp and reading.values[row[ATTRIBUTE], FORM] & IS_TEXT:
        source = scratch if reading.values[row[ATTRIBUTE], FORM] & IN_SCRATCH else buffer
        start, end = reading.values[row[ATTRIBUTE], START], reading.values[row[ATTRIBUTE], END]
        if kind == PREFIX:
            result = has_prefix(store.text, at, size, source, start, end)
        elif kind == SUFFIX:
            result = has_suffix(store.text, at, size, source, start, end)
        elif kind in (SUBSTRING, GRAM):
            reading.hard[0, 1] += SUBSTRING_BYTE_COST * (end - start)
            result = has_substring(store.text, at, size, source, start, end, reading.hashes)
        elif kind == TOPIC:
            result = topic_matches(store.text, at, size, source, start, end)
        elif kind in (LIKE, NOT_LIKE):
            reading.hard[0, 1] += like_work(size, end - start)
            result = is_like(store.text, at, size, source, start, end, reading.hashes) == (kind == LIKE)
    reading.memory[constraint] = stamp << 1 | (1 if result else 0)
    return result
