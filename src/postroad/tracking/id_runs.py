"""Ids that follow each other, as a busy publisher's do, kept in a history as their first and how many there are.

On the loop that is a step for a batch, not for a message; hashing waits for the thread that makes filters. Runs so
short that their hashes would be smaller are hashed on the loop, but many at once: a kernel's call costs more than the
work it does for one id.

Ids are chosen outside and only hashed; tails may wrap, as unsigned numbers do. How many there are is counted here.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import hash_ids, mix64
from postroad.filters.bloom import add_words
from postroad.filters.hashes import id_word, mix_word
from postroad.kernels import Int, Truth, device, give_way, kernel
from postroad.tracking.history_kernels import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.tracking.contract import Rows

    Words = NDArray[np.uint64]

__all__ = ["LEAST_RUN", "IdRuns", "is_run"]

# Rows that are not known as a run are looked at when there are so many; fewer are hashed for less than that costs.
LEAST_RUN = 16
# Keys between two looks at who else waits for the processor: up to a tenth of a millisecond. What is hashed on the loop
# is less, unless many single messages come to a history of long runs.
_AT_ONCE = np.uint64(1 << 13)
_NONE = np.uint64(0)
_FIELDS = 4  # head, first tail, how many, mixed number
# An array takes packed bytes in half the time of numbers one by one.
_pack = Struct(f"{_FIELDS}Q").pack


@kernel("boolean(uint64[:, ::1], int32[::1])", "boolean(uint64[:, ::1], int64[::1])", allocates=False)
def is_run(ids: Words, rows: Rows) -> Truth:
    """Whether the id of each row is the next of the one before."""
    head, tail = ids[rows[0], 0], ids[rows[0], 1]
    apart = np.uint64(0)
    for row in range(len(rows)):
        apart |= (ids[rows[row], 0] ^ head) | (ids[rows[row], 1] ^ (tail + np.uint64(row)))
    return apart == np.uint64(0)


@device
def _hash(head: Int, tail: Int, count: Int, derived: Truth, mixed: Int, keys: Words, out: Int) -> None:
    """Put the keys of a run into `keys` from `out` on; all numbers are unsigned, or the loops would not be vectors."""
    if derived:
        for step in range(count):
            keys[out + step] = mix_word(id_word(head, tail + step) ^ mixed)
    else:
        for step in range(count):
            keys[out + step] = id_word(head, tail + step)


@kernel("void(uint64[:, ::1], boolean, uint64[::1])", allocates=False)
def _keys(runs: Words, derived: Truth, out: Words) -> None:
    at, looked = _NONE, _NONE
    for run in range(len(runs)):
        _hash(runs[run, 0], runs[run, 1], runs[run, 2], derived, runs[run, 3], out, at)
        at += runs[run, 2]
        if at - looked >= _AT_ONCE:
            give_way()
            looked = at


@kernel("void(uint64[:, ::1], boolean, uint64[::1], uint64, int64, uint64[::1])", allocates=False)
def _bits(runs: Words, derived: Truth, words: Words, m: Int, k: Int, scratch: Words) -> None:
    since = _NONE
    for run in range(len(runs)):
        tail, left = runs[run, 1], runs[run, 2]
        while left > _NONE:
            count = min(left, np.uint64(PIECE))
            _hash(runs[run, 0], tail, count, derived, runs[run, 3], scratch, _NONE)
            add_words(words, m, k, scratch, np.int64(count))
            tail += count
            left -= count
            since += count
        if since >= _AT_ONCE:
            give_way()
            since = _NONE


class IdRuns:
    """The runs of one history.

    Args:
        derived: whether its keys are of pairs, (id, number); else they are of ids alone.
    """

    __slots__ = ("_derived", "_fields", "ids")

    def __init__(self, derived: bool) -> None:
        self._derived = derived
        self._fields = array("Q")
        self.ids = 0

    def add(self, head: int, tail: int, count: int, mixed: np.uint64) -> None:
        """So many ids from one on; `mixed` is of the number in their keys."""
        self._fields.frombytes(_pack(head, tail, count, mixed))
        self.ids += count

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return 8 * len(self._fields)

    @property
    def is_wasteful(self) -> bool:
        """Whether hashes would take less memory."""
        return self.bytes > 8 * self.ids

    def copy(self) -> IdRuns:
        """As they are now."""
        copied = IdRuns(self._derived)
        copied._fields, copied.ids = self._fields[:], self.ids
        return copied

    def keys(self) -> Words:
        """The keys of all ids."""
        out = np.empty(self.ids, np.uint64)
        _keys(self._table(), self._derived, out)
        return out

    def set_bits(self, words: Words, m: int, k: int) -> None:
        """Add the keys of all ids to a Bloom filter."""
        _bits(self._table(), self._derived, words, m, k, np.empty(PIECE, np.uint64))

    def keys_of(self, head: int, tail: int) -> Iterator[int]:
        """The keys that one id has here."""
        word = int(hash_ids(np.array([[head, tail]], np.uint64))[0])
        runs = self._table()
        inside = (runs[:, 0] == np.uint64(head)) & (np.uint64(tail) - runs[:, 1] < runs[:, 2])
        for mixed in runs[inside, 3].tolist():
            yield mix64(word ^ mixed) if self._derived else word

    def _table(self) -> Words:
        # A copy: an array that lends its memory could not grow.
        return np.array(self._fields, np.uint64).reshape(-1, _FIELDS)
