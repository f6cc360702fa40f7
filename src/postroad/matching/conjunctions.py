"""Conjunctions: attach one to the index through its best constraint, and detach it again.

A conjunction is *reached* through one of its constraints, the one that the fewest other conjunctions are reached
through (the access predicate of Fabret et al., SIGMOD 2001); the others are tested only for messages that reach it.

Nothing here sees a message. Numbers of conjunctions stay below 2**27 (`ceilings.py`), so that an entry, which is such a
number shifted by one bit, fits 32 bits and is never negative. `room_for` is called before the first block is taken: the
allocations after it cannot fail, and none of their results is the -1 of a full arena.

References: the members of a conjunction come with one reference each, which the conjunction takes over: one stays with
the constraint that it is reached through, the others go into the list of what is left to test, and those of hints that
are not needed are released. `detach_one` gives back exactly these, in the opposite order.

The order of steps in `attach` follows from that: first what can fail (`room_for`), then what takes numbers and blocks,
and the row of the conjunction last. Nothing is undone anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, device, kernel
from postroad.matching.arena import MOST_OFFSET, free_words, size_class, take_words
from postroad.matching.bundles import CHUNKS, STORE
from postroad.matching.columns import (
    ACCESS,
    ALWAYS,
    ATTRIBUTE,
    BUCKET,
    CAPACITY,
    CONJUNCTION_FREE,
    CONJUNCTIONS_LIVE,
    CONJUNCTIONS_USED,
    COUNT,
    DIRECTORY_CAPACITY,
    DIRECTORY_COUNT,
    ENTRY_SHIFT,
    ENTRY_WORDS,
    EXISTS,
    GRAM,
    KIND,
    MISSING,
    MULTIPLE,
    NEXT,
    POSITION,
    PREFIX,
    RANGE,
    RESIDENT_WORK,
    REST,
    SLOT,
    SUFFIX,
    TEST,
    TOPIC_ATTRIBUTE,
    WORD_HEADS,
    WORDS_USED,
)
from postroad.matching.costs import ENTRY_COST, MEMBER_COST
from postroad.matching.lists import MEMBERS, NOTHING, SIZE, drop_list, intern_list, list_block
from postroad.matching.lists import REFERENCES as LIST_REFERENCES
from postroad.matching.pieces import note_piece
from postroad.matching.ranges import insert_range, remove_range
from postroad.matching.store import WORDS_FULL, release

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Chunks, Store

# What a constraint may do for a conjunction. A *filter* cannot be looked up, only tested. A *hint* is implied by
# another constraint: it is worth keeping only if the conjunction is reached through it. *Either* is good for both.
FILTER, EITHER, HINT = 0, 1, 2

# A range is reached by about a third of all messages that carry its attribute, and existence by all of them. A piece of
# text costs each message that has the attribute a look-up for every resident length, a gram one for every window as
# well. These costs are compared with the length of the bucket that an equality would share.
_CHUNK_COST = 40
_RANGE_COST = 16
_TOPIC_COST = 1
_AFFIX_COST = 8
_GRAM_COST = 16
_EXISTS_COST = 64
_ALWAYS_COST = 1 << 40


@device
def access_cost(store: Store, constraint: Int) -> Int:
    """About how many candidates a message would have to look at if one more were reached through this constraint."""
    row = store.constraints[constraint]
    kind = row[KIND]
    if kind == RANGE:
        return _RANGE_COST + _CHUNK_COST * np.int64(store.attributes[row[ATTRIBUTE], DIRECTORY_COUNT])
    if kind == ALWAYS:
        return _ALWAYS_COST
    cost = np.int64(row[COUNT])
    if row[ATTRIBUTE] == TOPIC_ATTRIBUTE:
        return cost + _TOPIC_COST
    if kind == EXISTS:
        return cost + _EXISTS_COST
    if kind in (PREFIX, SUFFIX):
        return cost + _AFFIX_COST
    if kind == GRAM:
        return cost + _GRAM_COST
    return cost


@device
def push_entry(store: Store, constraint: Int, marked: Int, left: Int, guard: Int) -> Int:
    """Append an entry to a constraint's bucket, for which there is room; returns its position.

    A full bucket moves to a block of twice the size, so entries of a bucket are always contiguous in `words`.
    """
    row = store.constraints[constraint]
    count = row[COUNT]
    if count == row[CAPACITY]:
        capacity = max(1, 2 * count)
        block = take_words(store, ENTRY_WORDS * capacity)
        for at in range(ENTRY_WORDS * count):
            store.words[block + at] = store.words[row[BUCKET] + at]
        if count:
            free_words(store, row[BUCKET], ENTRY_WORDS * row[CAPACITY])
        row[BUCKET], row[CAPACITY] = block, capacity
    here = row[BUCKET] + ENTRY_WORDS * count
    store.words[here], store.words[here + 1], store.words[here + 2] = marked, left, guard
    row[COUNT] = count + 1
    return count


@device
def pull_entry(store: Store, constraint: Int, position: Int) -> None:
    """Take an entry out of a bucket; the last one moves into its place, and its conjunction learns the new position.

    So the entries of a bucket are in no order, and taking one out costs the same in a bucket of a million.
    """
    row = store.constraints[constraint]
    row[COUNT] -= 1
    last = row[BUCKET] + ENTRY_WORDS * row[COUNT]
    here = row[BUCKET] + ENTRY_WORDS * position
    if here != last:
        for step in range(ENTRY_WORDS):
            store.words[here + step] = store.words[last + step]
        store.conjunctions[store.words[here] >> ENTRY_SHIFT, POSITION] = position
    if row[COUNT] == 0:
        free_words(store, row[BUCKET], ENTRY_WORDS * row[CAPACITY])
        row[CAPACITY] = 0


@device
def choose_access(store: Store, members: NDArray[np.int32], roles: NDArray[np.int32]) -> Int:
    """The place among the members of the constraint to reach the conjunction through.

    There is one: `SubscriptionIndex` adds the constraint that every message meets where all others are filters.
    """
    best, least = -1, np.int64(0)
    for place in range(members.size):
        if roles[place] == FILTER:
            continue
        cost = access_cost(store, members[place])
        if best < 0 or cost < least:
            best, least = place, cost
    return best


@device
def take_conjunction(store: Store) -> Int:
    """The number of a new conjunction; the caller has made sure that there is one."""
    number = store.counters[CONJUNCTION_FREE]
    if number >= 0:
        store.counters[CONJUNCTION_FREE] = store.conjunctions[number, NEXT]
    else:
        number = store.counters[CONJUNCTIONS_USED]
        store.counters[CONJUNCTIONS_USED] += 1
    store.counters[CONJUNCTIONS_LIVE] += 1
    return number


@device
def free_conjunction(store: Store, number: Int) -> None:
    """Give the number of a conjunction back."""
    store.conjunctions[number, ACCESS] = -1
    store.conjunctions[number, NEXT] = store.counters[CONJUNCTION_FREE]
    store.counters[CONJUNCTION_FREE] = number
    store.counters[CONJUNCTIONS_LIVE] -= 1


@device
def block_to_take(store: Store, reached: Int) -> Int:
    """How many words the larger bucket or directory has that one more conjunction needs; 0 if there is room."""
    row = store.constraints[reached]
    if row[KIND] == RANGE:
        attribute = store.attributes[row[ATTRIBUTE]]
        chunks: Int = np.int64(attribute[DIRECTORY_COUNT])
        return max(4, 2 * chunks) if chunks == attribute[DIRECTORY_CAPACITY] else np.int64(0)
    count: Int = np.int64(row[COUNT])
    return ENTRY_WORDS * max(1, 2 * count) if count == row[CAPACITY] else np.int64(0)


@device
def room_for(store: Store, reached: Int, rest: Int) -> Truth:
    """Whether `words` has room for whatever attaching a conjunction may take: a larger bucket or directory, and the
    list of what is left to test. Known beforehand, nothing has to be undone.

    The sizes are exactly those that `push_entry`, `enlist_chunk` and `intern_list` ask for, so that a free block of
    their class is one that they get. Two blocks of one class may find only one free.
    """
    first, second = block_to_take(store, reached), (rest + MEMBERS if rest > 1 else np.int64(0))
    needed = np.int64(0)
    kind, other = size_class(first), size_class(second)
    if first > 0 and store.counters[WORD_HEADS + kind] < 0:
        needed += 1 << kind
    if second > 0 and (store.counters[WORD_HEADS + other] < 0 or (first > 0 and kind == other)):
        needed += 1 << other
    return store.counters[WORDS_USED] + needed <= min(store.words.size, MOST_OFFSET)


@device
def count_rest(roles: NDArray[np.int32], access: Int) -> Int:
    """How many members are left to test: all but the one to reach the conjunction through, and but hints."""
    count = np.int64(0)
    for place in range(roles.size):
        if place != access and roles[place] != HINT:
            count += 1
    return count


@device
def guard_of(store: Store, members: NDArray[np.int32], count: Int) -> Int:
    """An attribute without which some of these constraints cannot hold; 0, the topic, if there is none."""
    for place in range(count):
        kind = store.constraints[members[place], KIND]
        if kind != MISSING and kind != TEST and store.constraints[members[place], ATTRIBUTE] != TOPIC_ATTRIBUTE:
            return np.int64(store.constraints[members[place], ATTRIBUTE])
    return np.int64(TOPIC_ATTRIBUTE)


@kernel(f"int64({STORE}, {CHUNKS}, int32[::1], int32[::1], int32[::1], int64, boolean)", allocates=False)
def attach(
    store: Store,
    chunks: Chunks,
    members: NDArray[np.int32],
    roles: NDArray[np.int32],
    rest: NDArray[np.int32],
    slot: int,
    multiple: bool,
) -> Int:
    """Add a conjunction of interned constraints to the subscription `slot` (-1: it is the first, and gives the slot).

    Returns the conjunction's number, or WORDS_FULL with nothing changed. The references of the members pass to it.
    `rest` is room for as many words as there are members.
    """
    access = choose_access(store, members, roles)
    reached = np.int64(members[access])
    if not room_for(store, reached, count_rest(roles, access)):
        return WORDS_FULL
    count = 0
    for place in range(members.size):
        if place != access and roles[place] == HINT:
            release(store, np.int64(members[place]))
        elif place != access:
            rest[count] = members[place]
            count += 1
    guard = guard_of(store, rest, count)
    left = np.int64(NOTHING)
    if count == 1:
        left = np.int64(rest[0])
    elif count > 1:
        left = intern_list(store, rest, count)
    number = take_conjunction(store)
    marked = number << ENTRY_SHIFT | (MULTIPLE if multiple else 0)
    position = np.int64(0)
    if store.constraints[reached, KIND] == RANGE:
        low, high = store.bounds[reached, 0], store.bounds[reached, 1]
        attribute = store.constraints[reached, ATTRIBUTE]
        insert_range(chunks, store, attribute, low, high, marked, left, guard)  # fmt: skip
    else:
        position = push_entry(store, reached, marked, left, guard)
        if position == 0:
            note_piece(store, reached)
    store.counters[RESIDENT_WORK] += ENTRY_COST + MEMBER_COST * count
    row = store.conjunctions[number]
    row[SLOT] = number if slot < 0 else slot
    row[ACCESS], row[POSITION], row[REST] = reached, position, left
    row[NEXT] = -1
    if slot >= 0:
        row[NEXT] = store.conjunctions[slot, NEXT]
        store.conjunctions[slot, NEXT] = number
    return number


@kernel(f"int64({STORE})", allocates=False)
def attach_nothing(store: Store) -> Int:
    """A slot for a subscription that can never match."""
    number = take_conjunction(store)
    row = store.conjunctions[number]
    row[SLOT], row[ACCESS], row[REST], row[NEXT] = number, -1, -1, -1
    return number


@device
def detach_one(store: Store, chunks: Chunks, number: Int) -> None:
    """Take one conjunction out of the bucket or the ranges it is reached through, and drop its references."""
    row = store.conjunctions[number]
    reached = row[ACCESS]
    if reached < 0:
        return
    if store.constraints[reached, KIND] == RANGE:
        low, high = store.bounds[reached, 0], store.bounds[reached, 1]
        attribute = store.constraints[reached, ATTRIBUTE]
        remove_range(chunks, store, attribute, low, high, number)
    else:
        pull_entry(store, reached, row[POSITION])
    left = np.int64(row[REST])
    store.counters[RESIDENT_WORK] -= ENTRY_COST
    if left > NOTHING:
        store.counters[RESIDENT_WORK] -= MEMBER_COST
        release(store, left)
    elif left < NOTHING:
        block = list_block(left)
        store.counters[RESIDENT_WORK] -= MEMBER_COST * np.int64(store.words[block + SIZE])
        store.words[block + LIST_REFERENCES] -= 1
        if store.words[block + LIST_REFERENCES] == 0:
            for at in range(block + MEMBERS, block + MEMBERS + store.words[block + SIZE]):
                release(store, np.int64(store.words[at]))
            drop_list(store, block)
    release(store, np.int64(reached))


@kernel(f"void({STORE}, {CHUNKS}, int64)", allocates=False)
def detach(store: Store, chunks: Chunks, slot: int) -> None:
    """Take a subscription out, with all its conjunctions."""
    number = slot
    while number >= 0:
        following = store.conjunctions[number, NEXT]
        detach_one(store, chunks, number)
        free_conjunction(store, number)
        number = following
