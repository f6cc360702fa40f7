"""Read a row of a batch: the values of those attributes that some resident constraint mentions, and nothing else.

Each value is put into its canonical form once: a number as integer or float bits, so that 50 and 50.0 are one, and,
where a resident equality asks for exactly this text or number, the number of that constraint. Tests of equality are
then comparisons of two integers.

Indices: rows were checked when they were decoded (`messages.checks`), so entries and lines end inside their spans,
which are 0 or more and at most the buffer's size; they are widened to 64 bits before anything is added. An
attribute's number comes from the table of names and has a row in every array. `present` has room for each attribute
once, and a stamp keeps a name that a message has twice from being noted twice. Unescaped text is never longer than
what it is made from, for which `scratch` must have room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, inlined, rare
from postroad.matching.columns import (
    BITS,
    END,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    FORM,
    IN_SCRATCH,
    IS_FALSE,
    IS_FLOAT,
    IS_INEXACT,
    IS_INTEGRAL,
    IS_NUMBER,
    IS_TEXT,
    IS_TRUE,
    IS_UNTYPED,
    MENTIONS,
    MESSAGE_ID_ATTRIBUTE,
    NAME,
    NAME_SIZE,
    NAMES_LIVE,
    NUMBER_EQUALITIES,
    NUMBER_HIT,
    NUMBER_QUESTIONS,
    PRIORITY_ATTRIBUTE,
    STAMP,
    START,
    TEXT_HIT,
    TEXT_QUESTIONS,
    TIMESTAMP_ATTRIBUTE,
    TOPIC_ATTRIBUTE,
)
from postroad.matching.costs import HARD_COST
from postroad.matching.store import find_number, find_text
from postroad.matching.table_hash import constraint_key, hash_bytes, name_key, same_bytes
from postroad.messages.columns import ATTRIBUTES, HEADERS, PRIORITY
from postroad.messages.fields import ID_TEXT_BYTES, entry_at, integer_at, line_at, put_id_text, unescape_into
from postroad.messages.id_columns import TIME_SHIFT
from postroad.messages.numbers import HARD, INTEGER, NOT_A_NUMBER, parse_number
from postroad.messages.values import Tag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Reading, Store

_TEXT, _UNTYPED, _INTEGER = int(Tag.TEXT), int(Tag.UNTYPED), int(Tag.INTEGER)
_FLOAT, _BOOLEAN = int(Tag.FLOAT), int(Tag.BOOLEAN)

# The scratch buffer begins with room for the text of the row's id; unescaped header values follow.
SCRATCH_START = 64

_TAG = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)

# Integers up to here are exact in float64; beyond it only some are.
_EXACT = np.int64(2**53)
_INTEGER_LIMIT = 2.0**63


@inlined
def find_attribute(secret: np.uint64, store: Store, buffer: NDArray[np.uint8], start: Int, size: Int) -> Int:
    """The number of the attribute with this name, or -1 if no resident constraint mentions it."""
    key = name_key(secret, buffer, start, size)
    mask = np.uint64(store.names.size - 1)
    at = key & mask
    tag = key & _TAG
    while store.names[at] != np.uint64(0):
        if (store.names[at] & _TAG) == tag:
            found = np.uint64(store.names[at] & _LOW) - np.uint64(1)
            if store.attributes[found, NAME_SIZE] == size and same_bytes(
                store.text, store.attributes[found, NAME], buffer, start, size
            ):
                return np.int64(found)
        at = (at + np.uint64(1)) & mask
    return -1


@device
def canonical_float(value: float) -> tuple[Int, Int]:
    """A float as (bits, integral): as an integer wherever it is one, so that equal numbers have equal bits."""
    if value == np.floor(value) and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        return np.int64(value), 1
    return np.float64(value).view(np.int64), 0


@inlined
def put_text(
    secret: np.uint64,
    reading: Reading,
    store: Store,
    source: NDArray[np.uint8],
    attribute: Int,
    form: Int,
    start: Int,
    end: Int,
) -> None:
    """Note a text value, and the resident equality that asks for it."""
    row = np.uint64(attribute)
    reading.values[row, FORM] = form
    reading.values[row, START] = start
    reading.values[row, END] = end
    hit = np.int64(-1)
    if store.attributes[row, TEXT_QUESTIONS] > 0:
        key = constraint_key(secret, EQUAL_TEXT, attribute, hash_bytes(secret, source, start, end - start), 0, 0)
        hit = find_text(store, key, EQUAL_TEXT, attribute, source, start, end - start)
    reading.values[row, TEXT_HIT] = hit
    reading.values[row, NUMBER_HIT] = -1


@inlined
def put_number(
    secret: np.uint64, reading: Reading, store: Store, attribute: Int, form: Int, integer: Int, number: float
) -> None:
    """Note a number (`form` says whether its own type is float), and the resident equality that asks for it.

    The text fields are left alone: untyped text is also a number, besides what it already is.
    """
    row = np.uint64(attribute)
    if form & IS_FLOAT:
        integer, integral = canonical_float(number)
    else:
        integral = np.int64(1)
        number = np.float64(integer)
        if (integer > _EXACT or integer < -_EXACT) and (number >= _INTEGER_LIMIT or np.int64(number) != integer):
            form |= IS_INEXACT
    reading.values[row, FORM] = form | IS_NUMBER | (IS_INTEGRAL if integral else 0)
    reading.values[row, BITS] = integer
    reading.numbers[row] = number
    hit = np.int64(-1)
    if store.attributes[row, NUMBER_EQUALITIES] > 0:
        key = constraint_key(secret, EQUAL_NUMBER, attribute, hash_bytes(secret, NO_BYTES, 0, 0), integer, integral)
        hit = find_number(store, key, attribute, integer, integral)
    reading.values[row, NUMBER_HIT] = hit


# The content of a constraint without text.
NO_BYTES = np.zeros(1, np.uint8)


@device
def resolve_hard(known: NDArray[np.int64], known_values: NDArray[np.float64], start: Int) -> tuple[Truth, float]:
    """The value Python found for a number that the kernel could not round itself: (known, value or NaN)."""
    place = np.searchsorted(known, start)
    if place < known.size and known[place] == start:
        return True, known_values[place]
    return False, 0.0


@inlined
def put_untyped_number(
    secret: np.uint64, reading: Reading, store: Store, buffer: NDArray[np.uint8], attribute: Int, start: Int, end: Int
) -> None:
    """Note untyped text as a number as well, when it is one; a hard one is listed for Python to settle."""
    kind, integer, number = parse_number(buffer, start, end)
    if kind == NOT_A_NUMBER:
        return
    form = reading.values[attribute, FORM]
    if rare(kind == HARD):
        # Charged again once it is known: the time was spent.
        reading.hard[0, 1] += HARD_COST
        settled, number = resolve_hard(reading.known, reading.known_values, start)
        if not settled:
            count = reading.hard[0, 0]
            if count + 1 < reading.hard.shape[0]:
                reading.hard[0, 0] = count + 1
                reading.hard[count + 1, 0], reading.hard[count + 1, 1] = start, end
            return
        if np.isnan(number):
            return
    if kind != INTEGER:
        form |= IS_FLOAT
    put_number(secret, reading, store, attribute, form, integer, number)


@inlined
def read_typed(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    buffer: NDArray[np.uint8],
    start: Int,
    end: Int,
    stamp: Int,
) -> Int:
    """Read the attribute block; returns how many known attributes the row has so far.

    The block is entries end to end: tag, name, value (`entry_at`); it was checked when the message was decoded. The
    first entry of a name counts: its attribute then has the stamp of this row, and later ones are skipped. So `present`
    gets each resident attribute at most once, and has room for all of them.
    """
    at = start
    while at < end:
        tag, name, here, at = entry_at(buffer, at)
        attribute = find_attribute(secret, store, buffer, name, here - name)
        if attribute < 0 or reading.values[np.uint64(attribute), STAMP] == stamp:
            continue
        row = np.uint64(attribute)
        reading.values[row, STAMP] = stamp
        reading.present[count] = attribute
        count += 1
        if tag == _TEXT:
            put_text(secret, reading, store, buffer, attribute, IS_TEXT, here, at)
        elif tag in (_INTEGER, _FLOAT):
            word = np.int64(integer_at(buffer, here))
            form = np.int64(0) if tag == _INTEGER else np.int64(IS_FLOAT)
            reading.values[row, TEXT_HIT] = -1
            put_number(secret, reading, store, attribute, form, word, np.int64(word).view(np.float64))
        elif tag == _UNTYPED:
            form = np.int64(IS_TEXT | IS_UNTYPED)
            put_text(secret, reading, store, buffer, attribute, form, here, at)
            if store.attributes[row, NUMBER_QUESTIONS] > 0:
                put_untyped_number(secret, reading, store, buffer, attribute, here, at)
        else:
            # A boolean, or bytes, of which a selector can only ask whether they are there.
            form = np.int64(0)
            if tag == _BOOLEAN:
                form = np.int64(IS_TRUE) if buffer[np.uint64(here)] else np.int64(IS_FALSE)
            reading.values[row, FORM] = form
            reading.values[row, TEXT_HIT] = -1
            reading.values[row, NUMBER_HIT] = -1
    return count


@inlined
def read_headers(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    start: Int,
    end: Int,
    stamp: Int,
) -> Int:
    """Read the header lines, each an untyped text; returns how many known attributes the row has, or -1 when the
    scratch buffer is too small for the unescaped values.
    """
    used: Int = np.int64(SCRATCH_START)
    at = start
    while at < end:
        name = at
        colon, stop, escaped = line_at(buffer, at)
        here = colon + 1
        at = stop + 1
        # An escape in the name stands for a character that no selector's name can hold.
        attribute = find_attribute(secret, store, buffer, name, colon - name)
        if attribute < 0 or reading.values[np.uint64(attribute), STAMP] == stamp:
            continue
        reading.values[np.uint64(attribute), STAMP] = stamp
        reading.present[count] = attribute
        count += 1
        form = np.int64(IS_TEXT | IS_UNTYPED)
        if rare(escaped):
            if used + stop - here > scratch.size:
                return -1
            finish: Int = unescape_into(buffer, here, stop, scratch, used)
            form |= IN_SCRATCH
            put_text(secret, reading, store, scratch, attribute, form, used, finish)
            used = finish
            continue
        put_text(secret, reading, store, buffer, attribute, form, here, stop)
        if store.attributes[np.uint64(attribute), NUMBER_QUESTIONS] > 0:
            put_untyped_number(secret, reading, store, buffer, attribute, here, stop)
    return count


@device
def read_derived(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    scratch: NDArray[np.uint8],
    upper: np.uint64,
    lower: np.uint64,
    priority: Int,
    stamp: Int,
) -> Int:
    """The JMS names that come from the envelope: JMSPriority, JMSTimestamp, JMSMessageID."""
    for attribute in (PRIORITY_ATTRIBUTE, TIMESTAMP_ATTRIBUTE, MESSAGE_ID_ATTRIBUTE):
        if store.attributes[attribute, MENTIONS] == 0:
            continue
        reading.values[attribute, STAMP] = stamp
        reading.present[count] = attribute
        count += 1
        if attribute == MESSAGE_ID_ATTRIBUTE:
            put_id_text(upper, lower, scratch, 0)
            form = np.int64(IS_TEXT | IN_SCRATCH)
            put_text(secret, reading, store, scratch, attribute, form, 0, ID_TEXT_BYTES)
        else:
            number = priority if attribute == PRIORITY_ATTRIBUTE else np.int64(lower >> TIME_SHIFT)
            reading.values[attribute, TEXT_HIT] = -1
            put_number(secret, reading, store, attribute, 0, number, 0.0)
    return count


@inlined
def row_bytes(spans: NDArray[np.int32], row: Int) -> Int:
    """How many bytes `read_row` looks at, at most."""
    typed = np.int64(spans[row, ATTRIBUTES + 1]) - np.int64(spans[row, ATTRIBUTES])
    return typed + np.int64(spans[row, HEADERS + 1]) - np.int64(spans[row, HEADERS])


@inlined
def read_row(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    spans: NDArray[np.int32],
    ids: NDArray[np.uint64],
    envelopes: NDArray[np.int64],
    row: Int,
    stamp: Int,
    derived: bool,
) -> Int:
    """Read the values of a row, beside its topic, that constraints ask about; `present` lists their attributes.

    Returns their number, or -1 when the scratch buffer is too small.
    """
    reading.values[TOPIC_ATTRIBUTE, STAMP] = stamp
    count = np.int64(0)
    if rare(derived):
        priority = envelopes[row, PRIORITY]
        count = read_derived(secret, store, reading, count, scratch, ids[row, 0], ids[row, 1], priority, stamp)
    # Where subscriptions go by topic alone, no attribute is looked at.
    if store.counters[NAMES_LIVE] == 0:
        return count
    start, end = np.int64(spans[row, ATTRIBUTES]), np.int64(spans[row, ATTRIBUTES + 1])
    count = read_typed(secret, store, reading, count, buffer, start, end, stamp)
    start, end = np.int64(spans[row, HEADERS]), np.int64(spans[row, HEADERS + 1])
    if start < end:
        count = read_headers(secret, store, reading, count, buffer, scratch, start, end, stamp)
    return count
