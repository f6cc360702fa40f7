"""Constraints, each kept once.

Identical constraints of different subscriptions are one row, counted. The same table answers the matcher's questions:
"is there a resident equality with this attribute and this text?" is a look-up of the constraint by its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, inlined, kernel
from postroad.matching.arena import free_text, free_words, take_text, take_words
from postroad.matching.columns import (
    ALWAYS,
    ALWAYS_CONSTRAINT,
    ATTRIBUTE,
    CAPACITY,
    CONSTRAINT_FREE,
    CONSTRAINTS_LIVE,
    CONSTRAINTS_USED,
    COUNT,
    EQUAL_BOOLEAN,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXACT_RANGE,
    EXISTS,
    EXISTS_CONSTRAINT,
    FALSE_CONSTRAINT,
    FLAGS,
    IN_TEXT,
    KIND,
    MENTIONS,
    NEXT_FREE,
    NOT_EQUAL_NUMBER,
    NOT_EQUAL_TEXT,
    NOT_IN_TEXT,
    NUMBER_EQUALITIES,
    NUMBER_QUESTIONS,
    RANGE,
    REFERENCES,
    TEST,
    TEXT,
    TEXT_QUESTIONS,
    TEXT_SIZE,
    TRUE_CONSTRAINT,
    WORD_COUNT,
    WORDS,
)
from postroad.matching.hashing import constraint_key, hash_bytes, mix, same_bytes
from postroad.messages.columns import BUFFER

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What `intern` answers when an arena is full; the caller grows it and asks again.
WORDS_FULL, TEXT_FULL = -1, -2

_TAG = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def table_slot(constraint: Int, key: np.uint64) -> np.uint64:
    """A table word: the key's upper half as a tag, and the constraint's number plus one (zero is an empty word)."""
    return (key & _TAG) | np.uint64(constraint + 1)


@device
def table_insert(table: NDArray[np.uint64], key: np.uint64, constraint: Int) -> None:
    """Put a constraint into the table, which always has room."""
    mask = np.uint64(table.size - 1)
    at = key & mask
    while table[at] != np.uint64(0):
        at = (at + np.uint64(1)) & mask
    table[at] = table_slot(constraint, key)


@device
def table_delete(table: NDArray[np.uint64], keys: NDArray[np.uint64], constraint: Int) -> None:
    """Take a constraint out, and close the gap so that no tombstone is needed (Knuth, vol. 3, algorithm R)."""
    mask = np.uint64(table.size - 1)
    gap = keys[constraint] & mask
    wanted = table_slot(constraint, np.uint64(keys[constraint]))
    while table[gap] != wanted:
        gap = (gap + np.uint64(1)) & mask
    at = gap
    while True:
        table[gap] = np.uint64(0)
        while True:
            at = (at + np.uint64(1)) & mask
            if table[at] == np.uint64(0):
                return
            home = keys[np.int64(table[at] & _LOW) - 1] & mask
            # The entry may move into the gap unless its home lies cyclically behind the gap.
            if ((at - home) & mask) >= ((at - gap) & mask):
                break
        table[gap] = table[at]
        gap = at


@inlined
def find_text(
    table: NDArray[np.uint64],
    constraints: NDArray[np.int32],
    text: NDArray[np.uint8],
    key: np.uint64,
    kind: Int,
    attribute: Int,
    buffer: NDArray[np.uint8],
    start: Int,
    size: Int,
) -> Int:
    """The resident constraint of this kind and attribute with exactly these bytes, or -1."""
    mask = np.uint64(table.size - 1)
    at = key & mask
    tag = key & _TAG
    while table[at] != np.uint64(0):
        if (table[at] & _TAG) == tag:
            found = np.uint64(table[at] & _LOW) - np.uint64(1)
            if (
                constraints[found, KIND] == kind
                and constraints[found, ATTRIBUTE] == attribute
                and constraints[found, TEXT_SIZE] == size
                and same_bytes(text, constraints[found, TEXT], buffer, start, size)
            ):
                return np.int64(found)
        at = (at + np.uint64(1)) & mask
    return -1


@inlined
def find_number(
    table: NDArray[np.uint64],
    constraints: NDArray[np.int32],
    bits: NDArray[np.int64],
    key: np.uint64,
    attribute: Int,
    value: Int,
    integral: Int,
) -> Int:
    """The resident equality with this number in canonical form, or -1."""
    mask = np.uint64(table.size - 1)
    at = key & mask
    tag = key & _TAG
    while table[at] != np.uint64(0):
        if (table[at] & _TAG) == tag:
            found = np.uint64(table[at] & _LOW) - np.uint64(1)
            if (
                constraints[found, KIND] == EQUAL_NUMBER
                and constraints[found, ATTRIBUTE] == attribute
                and bits[found, 0] == value
                and bits[found, 1] == integral
            ):
                return np.int64(found)
        at = (at + np.uint64(1)) & mask
    return -1


@device
def same_constraint(
    constraints: NDArray[np.int32],
    bits: NDArray[np.int64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    found: Int,
    request: NDArray[np.int64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Truth:
    """Whether a resident constraint is the requested one."""
    row = constraints[found]
    if row[KIND] != request[0] or row[ATTRIBUTE] != request[1] or row[FLAGS] != request[2]:
        return False
    if bits[found, 0] != request[3] or bits[found, 1] != request[4]:
        return False
    if row[WORD_COUNT] != request_words.size or row[TEXT_SIZE] != request_text.size:
        return False
    for step in range(request_words.size):
        if words[row[WORDS] + step] != request_words[step]:
            return False
    return same_bytes(text, row[TEXT], request_text, 0, request_text.size)


@device
def count_questions(
    attributes: NDArray[np.int32],
    constraints: NDArray[np.int32],
    words: NDArray[np.int32],
    counters: NDArray[np.int64],
    constraint: Int,
    step: Int,
) -> None:
    """Note what a constraint asks of its attribute (step 1), or take the note back (step -1)."""
    row = constraints[constraint]
    kind = row[KIND]
    attribute = row[ATTRIBUTE]
    here = constraint if step > 0 else -1
    attributes[attribute, MENTIONS] += step
    if kind == EQUAL_TEXT:
        attributes[attribute, TEXT_QUESTIONS] += step
    elif kind == EQUAL_NUMBER:
        attributes[attribute, NUMBER_EQUALITIES] += step
        attributes[attribute, NUMBER_QUESTIONS] += step
    elif kind in (RANGE, EXACT_RANGE, NOT_EQUAL_NUMBER):
        attributes[attribute, NUMBER_QUESTIONS] += step
    elif kind == EXISTS:
        attributes[attribute, EXISTS_CONSTRAINT] = here
    elif kind == EQUAL_BOOLEAN:
        attributes[attribute, TRUE_CONSTRAINT if row[FLAGS] else FALSE_CONSTRAINT] = here
    elif kind == ALWAYS:
        counters[ALWAYS_CONSTRAINT] = here
    elif kind == TEST:
        # A program begins with the number of attributes it reads, and their numbers.
        for at in range(row[WORDS] + 1, row[WORDS] + 1 + words[row[WORDS]]):
            attributes[words[at], MENTIONS] += step
            attributes[words[at], NUMBER_QUESTIONS] += step


@device
def find_request(
    constraints: NDArray[np.int32],
    bits: NDArray[np.int64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    key: np.uint64,
    request: NDArray[np.int64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Int:
    """The resident constraint equal to the request, or -1."""
    mask = np.uint64(table.size - 1)
    at = key & mask
    while table[at] != np.uint64(0):
        if (table[at] & _TAG) == (key & _TAG):
            found = np.int64(table[at] & _LOW) - 1
            if same_constraint(constraints, bits, words, text, found, request, request_words, request_text):
                return found
        at = (at + np.uint64(1)) & mask
    return -1


@device
def request_key(
    request: NDArray[np.int64], request_words: NDArray[np.int32], request_text: NDArray[np.uint8]
) -> np.uint64:
    """The key of a request; a topic shape brings the hash of its content along (`request[5]`)."""
    content = np.uint64(request[5])
    if content == np.uint64(0):
        content = hash_bytes(request_text, 0, request_text.size)
    for step in range(request_words.size):
        content = mix(content + np.uint64(request_words[step] + 1))
    return constraint_key(request[0], request[1], content, request[3], request[4])


@inlined
def has_members(kind: Int) -> Truth:
    """Whether the words of a constraint are other constraints, each of which it refers to."""
    return kind in (IN_TEXT, NOT_IN_TEXT, NOT_EQUAL_TEXT)


@kernel(
    "int64(int32[:, ::1], float64[:, ::1], int64[:, ::1], uint64[::1], uint64[::1], int32[::1], uint8[::1],"
    f" int32[:, ::1], int64[::1], int64[::1], float64[::1], int32[::1], {BUFFER})",
    allocates=False,
)
def intern(
    constraints: NDArray[np.int32],
    bounds: NDArray[np.float64],
    bits: NDArray[np.int64],
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    request: NDArray[np.int64],
    request_bounds: NDArray[np.float64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Int:
    """Find the requested constraint or make it, with one more reference; `request` is kind, attribute, flags, two
    words of bits and a content hash. Answers its number, WORDS_FULL or TEXT_FULL. A full arena changes nothing.
    """
    key = request_key(request, request_words, request_text)
    found = find_request(constraints, bits, table, words, text, key, request, request_words, request_text)
    if found >= 0:
        constraints[found, REFERENCES] += 1
        # The members of a resident constraint already carry its own references.
        if has_members(request[0]):
            for step in range(request_words.size):
                constraints[request_words[step], REFERENCES] -= 1
        return found
    word_block = 0
    if request_words.size:
        word_block = take_words(words, counters, request_words.size)
        if word_block < 0:
            return WORDS_FULL
    text_block = 0
    if request_text.size:
        text_block = take_text(text, counters, request_text.size)
        if text_block < 0:
            if request_words.size:
                free_words(words, counters, word_block, request_words.size)
            return TEXT_FULL
    number = counters[CONSTRAINT_FREE]
    if number >= 0:
        counters[CONSTRAINT_FREE] = constraints[number, NEXT_FREE]
    else:
        number = counters[CONSTRAINTS_USED]
        counters[CONSTRAINTS_USED] += 1
    counters[CONSTRAINTS_LIVE] += 1
    row = constraints[number]
    row[KIND], row[ATTRIBUTE], row[FLAGS], row[REFERENCES] = request[0], request[1], request[2], 1
    row[TEXT], row[TEXT_SIZE] = text_block, request_text.size
    row[WORDS], row[WORD_COUNT] = word_block, request_words.size
    row[COUNT], row[CAPACITY] = 0, 0
    for step in range(request_words.size):
        words[word_block + step] = request_words[step]
    for step in range(request_text.size):
        text[text_block + step] = request_text[step]
    bounds[number, 0], bounds[number, 1] = request_bounds[0], request_bounds[1]
    bits[number, 0], bits[number, 1] = request[3], request[4]
    keys[number] = key
    table_insert(table, key, number)
    count_questions(attributes, constraints, words, counters, number, 1)
    return number


@device
def forget(
    constraints: NDArray[np.int32],
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    constraint: Int,
) -> None:
    """Take a constraint that nobody refers to out of the table and give its blocks back."""
    row = constraints[constraint]
    count_questions(attributes, constraints, words, counters, constraint, -1)
    table_delete(table, keys, constraint)
    if row[WORD_COUNT]:
        free_words(words, counters, row[WORDS], row[WORD_COUNT])
    if row[TEXT_SIZE]:
        free_text(text, counters, row[TEXT], row[TEXT_SIZE])
    row[KIND] = 0
    row[NEXT_FREE] = counters[CONSTRAINT_FREE]
    counters[CONSTRAINT_FREE] = constraint
    counters[CONSTRAINTS_LIVE] -= 1


@device
def release_leaf(
    constraints: NDArray[np.int32],
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    constraint: Int,
) -> None:
    """Drop one reference to a constraint without members."""
    constraints[constraint, REFERENCES] -= 1
    if constraints[constraint, REFERENCES] > 0:
        return
    forget(constraints, keys, table, words, text, attributes, counters, constraint)


@device
def release(
    constraints: NDArray[np.int32],
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    constraint: Int,
) -> None:
    """Drop one reference; the last one frees the constraint and, with it, a reference to each of its members."""
    constraints[constraint, REFERENCES] -= 1
    if constraints[constraint, REFERENCES] > 0:
        return
    if has_members(constraints[constraint, KIND]):
        first = constraints[constraint, WORDS]
        for at in range(first, first + constraints[constraint, WORD_COUNT]):
            release_leaf(constraints, keys, table, words, text, attributes, counters, np.int64(words[at]))
    forget(constraints, keys, table, words, text, attributes, counters, constraint)


@kernel("void(uint64[::1], uint64[::1], int32[:, ::1], int64)", allocates=False)
def rebuild_table(
    table: NDArray[np.uint64], keys: NDArray[np.uint64], constraints: NDArray[np.int32], used: int
) -> None:
    """Fill an empty table with every live constraint."""
    for number in range(used):
        if constraints[number, KIND]:
            table_insert(table, keys[number], number)


@kernel(
    "void(int32[:, ::1], uint64[::1], uint64[::1], int32[::1], uint8[::1], int32[:, ::1], int64[::1], int32[::1])",
    allocates=False,
)
def release_all(
    constraints: NDArray[np.int32],
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    members: NDArray[np.int32],
) -> None:
    """Drop one reference to each of several constraints."""
    for member in members:
        release(constraints, keys, table, words, text, attributes, counters, np.int64(member))
