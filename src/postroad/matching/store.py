"""Constraints, each kept once.

Identical constraints of different subscriptions are one row, counted. The same table answers the matcher's questions:
"is there a resident equality with this attribute and this text?" is a look-up of the constraint by its key.

Indices: a word of `table` that is not zero holds the number of a live constraint plus one, so a number taken from it
is never negative, and places in the table are unsigned and masked by its size, a power of two with a quarter of it
free: every probe ends. Offsets of rows into `words` and `text` come from `arena.py` and end below 2**31. What a
message brings is only compared: no byte of it becomes an index here except through a hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, inlined, kernel
from postroad.matching.arena import free_text, free_words, take_text, take_words
from postroad.matching.bundles import STORE
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
    LIKE,
    MENTIONS,
    NEXT_FREE,
    NOT_EQUAL_NUMBER,
    NOT_EQUAL_TEXT,
    NOT_IN_TEXT,
    NOT_LIKE,
    NUMBER_EQUALITIES,
    NUMBER_QUESTIONS,
    RANGE,
    REFERENCES,
    RESIDENT_WORK,
    SECRET,
    SHAPE_USES,
    SUBSTRING,
    TEST,
    TEXT,
    TEXT_QUESTIONS,
    TEXT_SIZE,
    TOPIC,
    TRUE_CONSTRAINT,
    WORD_COUNT,
    WORDS,
)
from postroad.matching.table_hash import constraint_key, hash_bytes, mix, same_bytes
from postroad.messages.columns import BUFFER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Store

# A request, as kernels take it: int64 kind, attribute, flags, two words of bits, and a hash of the content, which is 0
# where it is computed from words and text. Bounds, words and text come in arrays of their own, empty where not needed.

# What `intern` returns when an arena is full; the caller grows it and tries again.
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
def table_delete(store: Store, constraint: Int) -> None:
    """Take a constraint out, and close the gap so that no tombstone is needed (Knuth, vol. 3, algorithm R)."""
    mask = np.uint64(store.table.size - 1)
    gap = store.keys[constraint] & mask
    wanted = table_slot(constraint, np.uint64(store.keys[constraint]))
    while store.table[gap] != wanted:
        gap = (gap + np.uint64(1)) & mask
    at = gap
    while True:
        store.table[gap] = np.uint64(0)
        while True:
            at = (at + np.uint64(1)) & mask
            if store.table[at] == np.uint64(0):
                return
            home = store.keys[np.int64(store.table[at] & _LOW) - 1] & mask
            # The entry may move into the gap unless its home lies cyclically after the gap.
            if ((at - home) & mask) >= ((at - gap) & mask):
                break
        store.table[gap] = store.table[at]
        gap = at


@inlined
def find_text(
    store: Store, key: np.uint64, kind: Int, attribute: Int, buffer: NDArray[np.uint8], start: Int, size: Int
) -> Int:
    """The resident constraint of this kind and attribute with exactly these bytes, or -1.

    The tag in a table word only saves look-ups: what counts is the comparison with the row and its bytes.
    """
    mask = np.uint64(store.table.size - 1)
    at = key & mask
    tag = key & _TAG
    while store.table[at] != np.uint64(0):
        if (store.table[at] & _TAG) == tag:
            found = np.uint64(store.table[at] & _LOW) - np.uint64(1)
            if (
                store.constraints[found, KIND] == kind
                and store.constraints[found, ATTRIBUTE] == attribute
                and store.constraints[found, TEXT_SIZE] == size
                and same_bytes(store.text, store.constraints[found, TEXT], buffer, start, size)
            ):
                return np.int64(found)
        at = (at + np.uint64(1)) & mask
    return -1


@inlined
def find_number(store: Store, key: np.uint64, attribute: Int, value: Int, integral: Int) -> Int:
    """The resident equality with this number in canonical form, or -1."""
    mask = np.uint64(store.table.size - 1)
    at = key & mask
    tag = key & _TAG
    while store.table[at] != np.uint64(0):
        if (store.table[at] & _TAG) == tag:
            found = np.uint64(store.table[at] & _LOW) - np.uint64(1)
            if (
                store.constraints[found, KIND] == EQUAL_NUMBER
                and store.constraints[found, ATTRIBUTE] == attribute
                and store.bits[found, 0] == value
                and store.bits[found, 1] == integral
            ):
                return np.int64(found)
        at = (at + np.uint64(1)) & mask
    return -1


@device
def same_constraint(
    store: Store,
    found: Int,
    request: NDArray[np.int64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Truth:
    """Whether a resident constraint is the requested one."""
    row = store.constraints[found]
    if row[KIND] != request[0] or row[ATTRIBUTE] != request[1] or row[FLAGS] != request[2]:
        return False
    if store.bits[found, 0] != request[3] or store.bits[found, 1] != request[4]:
        return False
    if row[WORD_COUNT] != request_words.size or row[TEXT_SIZE] != request_text.size:
        return False
    for step in range(request_words.size):
        if store.words[row[WORDS] + step] != request_words[step]:
            return False
    return same_bytes(store.text, row[TEXT], request_text, 0, request_text.size)


@device
def count_questions(store: Store, constraint: Int, step: Int) -> None:
    """Note what a constraint asks of its attribute (step 1), or take the note back (step -1)."""
    row = store.constraints[constraint]
    kind = row[KIND]
    attribute = row[ATTRIBUTE]
    here = constraint if step > 0 else -1
    store.attributes[attribute, MENTIONS] += step
    if kind == EQUAL_TEXT:
        store.attributes[attribute, TEXT_QUESTIONS] += step
    elif kind == EQUAL_NUMBER:
        store.attributes[attribute, NUMBER_EQUALITIES] += step
        store.attributes[attribute, NUMBER_QUESTIONS] += step
    elif kind in (RANGE, EXACT_RANGE, NOT_EQUAL_NUMBER):
        store.attributes[attribute, NUMBER_QUESTIONS] += step
    elif kind == EXISTS:
        store.attributes[attribute, EXISTS_CONSTRAINT] = here
    elif kind == EQUAL_BOOLEAN:
        store.attributes[attribute, TRUE_CONSTRAINT if row[FLAGS] else FALSE_CONSTRAINT] = here
    elif kind == ALWAYS:
        store.counters[ALWAYS_CONSTRAINT] = here
    elif kind == TEST:
        # A program begins with the number of attributes it reads, and their numbers.
        for at in range(row[WORDS] + 1, row[WORDS] + 1 + store.words[row[WORDS]]):
            store.attributes[store.words[at], MENTIONS] += step
            store.attributes[store.words[at], NUMBER_QUESTIONS] += step
    elif kind == TOPIC and store.bits[constraint, 0] >= 0:
        store.shapes[store.bits[constraint, 0], SHAPE_USES] += step
    if kind in (LIKE, NOT_LIKE, SUBSTRING, TEST):
        store.counters[RESIDENT_WORK] += step * store.bits[constraint, 0]


@device
def find_request(
    store: Store,
    key: np.uint64,
    request: NDArray[np.int64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Int:
    """The resident constraint equal to the request, or -1."""
    mask = np.uint64(store.table.size - 1)
    at = key & mask
    while store.table[at] != np.uint64(0):
        if (store.table[at] & _TAG) == (key & _TAG):
            found = np.int64(store.table[at] & _LOW) - 1
            if same_constraint(store, found, request, request_words, request_text):
                return found
        at = (at + np.uint64(1)) & mask
    return -1


@device
def request_key(
    secret: np.uint64, request: NDArray[np.int64], request_words: NDArray[np.int32], request_text: NDArray[np.uint8]
) -> Int:
    """The key of a request; a topic shape brings the hash of its content along (`request[5]`)."""
    content = np.uint64(request[5])
    if content == np.uint64(0):
        content = hash_bytes(secret, request_text, 0, request_text.size)
    for step in range(request_words.size):
        content = mix(secret, content + np.uint64(request_words[step] + 1))
    return constraint_key(secret, request[0], request[1], content, request[3], request[4])


@inlined
def has_members(kind: Int) -> Truth:
    """Whether the words of a constraint are other constraints, each of which it refers to."""
    return kind in (IN_TEXT, NOT_IN_TEXT, NOT_EQUAL_TEXT)


@kernel(f"int64({STORE}, int64[::1], float64[::1], int32[::1], {BUFFER})", allocates=False)
def intern(
    store: Store,
    request: NDArray[np.int64],
    request_bounds: NDArray[np.float64],
    request_words: NDArray[np.int32],
    request_text: NDArray[np.uint8],
) -> Int:
    """Find the requested constraint or make it, with one more reference; `request` is kind, attribute, flags, two
    words of bits and a content hash. Returns its number, WORDS_FULL or TEXT_FULL. A full arena changes nothing.
    """
    key = request_key(np.uint64(store.counters[SECRET]), request, request_words, request_text)
    found = find_request(store, key, request, request_words, request_text)
    if found >= 0:
        store.constraints[found, REFERENCES] += 1
        # The members of a resident constraint already carry its own references.
        if has_members(request[0]):
            for step in range(request_words.size):
                store.constraints[request_words[step], REFERENCES] -= 1
        return found
    word_block = 0
    if request_words.size:
        word_block = take_words(store, request_words.size)
        if word_block < 0:
            return WORDS_FULL
    text_block = 0
    if request_text.size:
        text_block = take_text(store, request_text.size)
        if text_block < 0:
            if request_words.size:
                free_words(store, word_block, request_words.size)
            return TEXT_FULL
    number = store.counters[CONSTRAINT_FREE]
    if number >= 0:
        store.counters[CONSTRAINT_FREE] = store.constraints[number, NEXT_FREE]
    else:
        number = store.counters[CONSTRAINTS_USED]
        store.counters[CONSTRAINTS_USED] += 1
    store.counters[CONSTRAINTS_LIVE] += 1
    row = store.constraints[number]
    row[KIND], row[ATTRIBUTE], row[FLAGS], row[REFERENCES] = request[0], request[1], request[2], 1
    row[TEXT], row[TEXT_SIZE] = text_block, request_text.size
    row[WORDS], row[WORD_COUNT] = word_block, request_words.size
    row[COUNT], row[CAPACITY] = 0, 0
    for step in range(request_words.size):
        store.words[word_block + step] = request_words[step]
    for step in range(request_text.size):
        store.text[text_block + step] = request_text[step]
    store.bounds[number, 0], store.bounds[number, 1] = request_bounds[0], request_bounds[1]
    store.bits[number, 0], store.bits[number, 1] = request[3], request[4]
    store.keys[number] = key
    table_insert(store.table, key, number)
    count_questions(store, number, 1)
    return number


@device
def forget(store: Store, constraint: Int) -> None:
    """Remove an unreferenced constraint from the table and free its blocks."""
    row = store.constraints[constraint]
    count_questions(store, constraint, -1)
    table_delete(store, constraint)
    if row[WORD_COUNT]:
        free_words(store, row[WORDS], row[WORD_COUNT])
    if row[TEXT_SIZE]:
        free_text(store, row[TEXT], row[TEXT_SIZE])
    row[KIND] = 0
    row[NEXT_FREE] = store.counters[CONSTRAINT_FREE]
    store.counters[CONSTRAINT_FREE] = constraint
    store.counters[CONSTRAINTS_LIVE] -= 1


@device
def release_leaf(store: Store, constraint: Int) -> None:
    """Drop one reference to a constraint without members."""
    store.constraints[constraint, REFERENCES] -= 1
    if store.constraints[constraint, REFERENCES] > 0:
        return
    forget(store, constraint)


@device
def release(store: Store, constraint: Int) -> None:
    """Drop one reference; the last one frees the constraint and, with it, a reference to each of its members."""
    store.constraints[constraint, REFERENCES] -= 1
    if store.constraints[constraint, REFERENCES] > 0:
        return
    if has_members(store.constraints[constraint, KIND]):
        first = store.constraints[constraint, WORDS]
        for at in range(first, first + store.constraints[constraint, WORD_COUNT]):
            release_leaf(store, np.int64(store.words[at]))
    forget(store, constraint)


@kernel("void(uint64[::1], uint64[::1], int32[:, ::1], int64)", allocates=False)
def rebuild_table(
    table: NDArray[np.uint64], keys: NDArray[np.uint64], constraints: NDArray[np.int32], used: int
) -> None:
    """Fill an empty table with every live constraint."""
    for number in range(used):
        if constraints[number, KIND]:
            table_insert(table, keys[number], number)


@kernel(f"void({STORE}, int32[::1])", allocates=False)
def release_all(store: Store, members: NDArray[np.int32]) -> None:
    """Drop one reference to each of several constraints."""
    for member in members:
        release(store, np.int64(member))
