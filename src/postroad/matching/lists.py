"""Lists of constraints that are left to test once a conjunction is reached, each kept once.

Many subscriptions differ only in the constraint they are reached through: a million that ask for one topic and one of a
hundred prices share a hundred lists. A list is a block of `words`: how many refer to it, how many members it has, and
the members, cheapest first. A table finds it by its members.

A block begins below 2**30 (`ceilings.py`), so `-block - 2` fits the 32 bits of an entry and is never NOTHING; table
words and places are as in `store.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, device, inlined, kernel
from postroad.matching.arena import free_words, take_words
from postroad.matching.columns import KIND, LISTS_LIVE, SECRET
from postroad.matching.columns import REFERENCES as CONSTRAINT_REFERENCES
from postroad.matching.table_hash import mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Store

# Words of a list's block.
REFERENCES, SIZE, MEMBERS = 0, 1, 2

# What is left to test of a conjunction: nothing, one constraint (its number), or a list (below NOTHING).
NOTHING = -1

_TAG = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def list_block(left: Int) -> Int:
    """Where the list is that an entry refers to by a number below NOTHING."""
    return -left - 2


@device
def members_key(secret: np.uint64, words: NDArray[np.int32], at: Int, count: Int) -> np.uint64:
    """The key of the list whose members are at words[at:]."""
    key = np.uint64(count)
    for place in range(at, at + count):
        key = mix(secret, key + np.uint64(words[place] + 1))
    return key


@device
def sort_members(store: Store, members: NDArray[np.int32], count: Int) -> None:
    """Order members by kind, whose numbers rise with the cost of the test, then by number."""
    for place in range(1, count):
        member = members[place]
        at = place
        while at > 0:
            other = members[at - 1]
            kind, other_kind = store.constraints[member, KIND], store.constraints[other, KIND]
            if other_kind < kind or (other_kind == kind and other <= member):
                break
            members[at] = other
            at -= 1
        members[at] = member


@device
def enter_list(lists: NDArray[np.uint64], key: np.uint64, block: Int) -> None:
    """Put a list into the table, which always has room."""
    mask = np.uint64(lists.size - 1)
    at = key & mask
    while lists[at] != np.uint64(0):
        at = (at + np.uint64(1)) & mask
    lists[at] = (key & _TAG) | np.uint64(block + 1)


@device
def intern_list(store: Store, members: NDArray[np.int32], count: Int) -> Int:
    """What an entry says to refer to the list of these members; `words` and the table have room for it.

    A new list takes the references of the members over; for a resident one they are dropped.
    """
    sort_members(store, members, count)
    key = members_key(np.uint64(store.counters[SECRET]), members, np.int64(0), count)
    mask = np.uint64(store.lists.size - 1)
    at = key & mask
    while store.lists[at] != np.uint64(0):
        block = np.int64(store.lists[at] & _LOW) - 1
        if (store.lists[at] & _TAG) == (key & _TAG) and store.words[block + SIZE] == count:
            same = True
            for place in range(count):
                same = same and store.words[block + MEMBERS + place] == members[place]
            if same:
                store.words[block + REFERENCES] += 1
                for place in range(count):
                    store.constraints[members[place], CONSTRAINT_REFERENCES] -= 1
                return -block - 2
        at = (at + np.uint64(1)) & mask
    block = take_words(store, count + MEMBERS)
    store.words[block + REFERENCES], store.words[block + SIZE] = 1, count
    for place in range(count):
        store.words[block + MEMBERS + place] = members[place]
    enter_list(store.lists, key, block)
    store.counters[LISTS_LIVE] += 1
    return -block - 2


@device
def drop_list(store: Store, block: Int) -> None:
    """Remove an unreferenced list from the table and free its block; the gap is closed (Knuth, vol. 3, algorithm R),
    for which the keys of the lists after it are computed again from their members.
    """
    secret = np.uint64(store.counters[SECRET])
    key = members_key(secret, store.words, block + MEMBERS, np.int64(store.words[block + SIZE]))
    mask = np.uint64(store.lists.size - 1)
    gap = key & mask
    while np.int64(store.lists[gap] & _LOW) - 1 != block:
        gap = (gap + np.uint64(1)) & mask
    store.lists[gap] = np.uint64(0)
    at = (gap + np.uint64(1)) & mask
    while store.lists[at] != np.uint64(0):
        other = np.int64(store.lists[at] & _LOW) - 1
        home = members_key(secret, store.words, other + MEMBERS, np.int64(store.words[other + SIZE])) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            store.lists[gap] = store.lists[at]
            store.lists[at] = np.uint64(0)
            gap = at
        at = (at + np.uint64(1)) & mask
    free_words(store, block, np.int64(store.words[block + SIZE]) + MEMBERS)
    store.counters[LISTS_LIVE] -= 1


@kernel("void(uint64[::1], uint64[::1], int32[::1], int64[::1])", allocates=False)
def rebuild_lists(
    lists: NDArray[np.uint64], old: NDArray[np.uint64], words: NDArray[np.int32], counters: NDArray[np.int64]
) -> None:
    """Fill an empty table with the lists of an old one."""
    secret = np.uint64(counters[SECRET])
    for slot in old:
        if slot != np.uint64(0):
            block = np.int64(slot & _LOW) - 1
            enter_list(lists, members_key(secret, words, block + MEMBERS, np.int64(words[block + SIZE])), block)
