"""The arrays of an index: made, and grown before they are full. Kernels work on them; nothing here decides anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.errors import LimitError
from postroad.matching.bundles import Chunks, Store
from postroad.matching.columns import (
    ALWAYS_CONSTRAINT,
    ATTRIBUTE_COLUMNS,
    CHUNK,
    CHUNK_FREE,
    CHUNKS_USED,
    CONJUNCTION_COLUMNS,
    CONJUNCTION_FREE,
    CONJUNCTIONS_USED,
    CONSTRAINT_COLUMNS,
    CONSTRAINT_FREE,
    CONSTRAINTS_LIVE,
    CONSTRAINTS_USED,
    COUNTERS,
    ENTRY_WORDS,
    EXISTS_CONSTRAINT,
    FALSE_CONSTRAINT,
    LISTS_LIVE,
    MASK_COLUMNS,
    RESERVED_ATTRIBUTES,
    SECRET,
    SHAPE_COLUMNS,
    SUMMARY_COLUMNS,
    TEXT_HEADS,
    TEXT_USED,
    TRUE_CONSTRAINT,
    VALUE_COLUMNS,
    WORD_HEADS,
)
from postroad.matching.compaction import live_text, move_text
from postroad.matching.lists import rebuild_lists
from postroad.matching.pieces import SIEVE_WORDS
from postroad.matching.store import rebuild_table
from postroad.matching.table_hash import proper_secret

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.ceilings import Ceilings

# Small enough that an index of a few subscriptions costs little, large enough that it does not grow at once.
_FIRST = 64
_WORD = 2**64 - 1


def bounded(what: str, rows: int, needed: int, ceiling: int, limit: str) -> int:
    """How many rows to grow to: as many as wanted, but not beyond the ceiling.

    Raises:
        LimitError: not even the rows that are needed fit below it.
    """
    if needed > ceiling:
        advice = f"{limit} of an index, where 32-bit offsets end; subscribe to less, or spread over more brokers"
        raise LimitError(what, needed, ceiling, advice)
    return min(rows, ceiling)


def grown(array: NDArray[Any], rows: int, fill: int = 0) -> NDArray[Any]:
    """A copy with at least `rows` rows, the new ones filled."""
    bigger = np.full((rows, *array.shape[1:]), fill, array.dtype)
    bigger[: len(array)] = array
    return bigger


def spread(secret: int) -> int:
    """Spread a secret over 64 bits (the finaliser of SplitMix64): a hash that multiplies by 1 or 2 would be none."""
    word = (secret + 0x9E3779B97F4A7C15) & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


class Tables:
    """Every array of an index; see `columns.py` for what is in them.

    Args:
        ceilings: how large they may become.
        secret: of the hash (`table_hash.py`).
    """

    def __init__(self, ceilings: Ceilings, secret: int) -> None:
        self.ceilings = ceilings
        self.constraints = np.zeros((_FIRST, CONSTRAINT_COLUMNS), np.int32)
        self.bounds = np.zeros((_FIRST, 2), np.float64)
        self.bits = np.zeros((_FIRST, 2), np.int64)
        self.keys = np.zeros(_FIRST, np.uint64)
        self.table = np.zeros(2 * _FIRST, np.uint64)
        self.lists = np.zeros(2 * _FIRST, np.uint64)
        self.memory = np.full(_FIRST, -2, np.int64)
        self.words = np.zeros(16 * _FIRST, np.int32)
        self.text = np.zeros(16 * _FIRST, np.uint8)
        self.conjunctions = np.zeros((_FIRST, CONJUNCTION_COLUMNS), np.int32)
        self.seen = np.zeros(_FIRST, np.int64)
        self.attributes = np.zeros((0, ATTRIBUTE_COLUMNS), np.int32)
        self.masks = np.zeros((0, MASK_COLUMNS), np.uint64)
        self.sieve = np.zeros(SIEVE_WORDS, np.uint64)
        self.values = np.zeros((0, VALUE_COLUMNS), np.int64)
        self.numbers = np.zeros(0, np.float64)
        self.present = np.zeros(0, np.int32)
        self.names = np.zeros(2 * _FIRST, np.uint64)
        self.shapes = np.zeros((4, SHAPE_COLUMNS), np.int64)
        self.lows = np.zeros((0, CHUNK), np.float64)
        self.highs = np.zeros((0, CHUNK), np.float64)
        self.entries = np.zeros((0, ENTRY_WORDS * CHUNK), np.int32)
        self.summaries = np.zeros((0, SUMMARY_COLUMNS), np.float64)
        self.sizes = np.zeros(0, np.int32)
        self.counters = np.zeros(COUNTERS, np.int64)
        self.counters[[CONSTRAINT_FREE, CONJUNCTION_FREE, CHUNK_FREE, ALWAYS_CONSTRAINT]] = -1
        self.counters[WORD_HEADS : WORD_HEADS + 32] = -1
        self.counters[TEXT_HEADS : TEXT_HEADS + 32] = -1
        self.counters[SECRET] = proper_secret(spread(secret))
        self.grow_attributes(2 * RESERVED_ATTRIBUTES)
        self.grow_chunks(4)
        self.bundle()

    def bundle(self) -> None:
        """Bundle the arrays again; every change of an array ends here."""
        self.store = Store(*(getattr(self, name) for name in Store._fields))
        self.chunks = Chunks(*(getattr(self, name) for name in Chunks._fields))

    def copied(self) -> Tables:
        """Tables with the same content and arrays of their own."""
        twin = Tables.__new__(Tables)
        for name, value in vars(self).items():
            setattr(twin, name, value.copy() if isinstance(value, np.ndarray) else value)
        twin.bundle()
        return twin

    def grow_attributes(self, rows: int) -> None:
        """Room for more attributes.

        Raises:
            LimitError: the limit is reached.
        """
        first = len(self.attributes)
        rows = bounded("the number of names", rows, first + 1, self.ceilings.attributes, "attributes")
        self.attributes = grown(self.attributes, rows)
        self.attributes[first:, [EXISTS_CONSTRAINT, TRUE_CONSTRAINT, FALSE_CONSTRAINT]] = -1
        self.masks = grown(self.masks, rows)
        self.values = grown(self.values, rows)
        self.numbers = grown(self.numbers, rows)
        self.present = grown(self.present, rows)
        self.bundle()

    def grow_chunks(self, rows: int) -> None:
        """Room for more range chunks.

        Raises:
            LimitError: the limit is reached.
        """
        rows = bounded("the number of chunks of ranges", rows, len(self.sizes) + 1, self.ceilings.chunks, "chunks")
        self.lows = grown(self.lows, rows)
        self.highs = grown(self.highs, rows)
        self.entries = grown(self.entries, rows)
        self.summaries = grown(self.summaries, rows)
        self.sizes = grown(self.sizes, rows)
        self.bundle()

    def make_room(self) -> None:
        """Room for one more constraint, conjunction, list and range chunk: kernels ask for words and text only.

        Raises:
            LimitError: the limit is reached; nothing has changed.
        """
        counters = self.counters
        if counters[CONSTRAINT_FREE] < 0 and counters[CONSTRAINTS_USED] == len(self.constraints):
            self._grow_constraints()
        if counters[CONJUNCTION_FREE] < 0 and counters[CONJUNCTIONS_USED] == len(self.conjunctions):
            used, ceiling = len(self.conjunctions), self.ceilings.conjunctions
            rows = bounded("the number of conjunctions", _more(used), used + 1, ceiling, "conjunctions")
            self.conjunctions = grown(self.conjunctions, rows)
            self.seen = grown(self.seen, rows)
            self.bundle()
        if 4 * (counters[LISTS_LIVE] + 1) > 3 * len(self.lists):
            old, self.lists = self.lists, np.zeros(2 * len(self.lists), np.uint64)
            rebuild_lists(self.lists, old, self.words, self.counters)
            self.bundle()
        if counters[CHUNK_FREE] < 0 and counters[CHUNKS_USED] == len(self.sizes):
            self.grow_chunks(_more(len(self.sizes)))

    def _grow_constraints(self) -> None:
        used, ceiling = len(self.constraints), self.ceilings.constraints
        rows = bounded("the number of constraints", _more(used), used + 1, ceiling, "constraints")
        self.constraints = grown(self.constraints, rows)
        self.bounds = grown(self.bounds, rows)
        self.bits = grown(self.bits, rows)
        self.keys = grown(self.keys, rows)
        self.memory = grown(self.memory, rows, -2)
        # At most three quarters of the table are taken: linear probing stays short.
        size = len(self.table)
        while 4 * rows > 3 * size:
            size *= 2
        if size != len(self.table):
            self.table = np.zeros(size, np.uint64)
            rebuild_table(self.table, self.keys, self.constraints, int(self.counters[CONSTRAINTS_USED]))
        self.bundle()

    def grow_words(self) -> None:
        """Room for more words.

        Raises:
            LimitError: the limit is reached.
        """
        used, ceiling = len(self.words), self.ceilings.words
        self.words = grown(self.words, bounded("the number of words", _more(used), used + 1, ceiling, "words"))
        self.bundle()

    def grow_text(self) -> None:
        """Room for more bytes of text: by moving texts together where half of the array is free, else by growing.

        Raises:
            LimitError: the limit is reached.
        """
        if self._is_half_free():
            text = np.zeros(len(self.text), np.uint8)
            move_text(self.store, text)
            self.text = text
        else:
            used, ceiling = len(self.text), self.ceilings.text
            self.text = grown(self.text, bounded("the text of all selectors", _more(used), used + 1, ceiling, "text"))
        self.bundle()

    def _is_half_free(self) -> bool:
        """Whether half of the text is free; looking costs a pass over all rows, so a short text is not looked at."""
        used = int(self.counters[TEXT_USED])
        rows = int(self.counters[CONSTRAINTS_USED]) + len(self.attributes)
        return used >= rows and 2 * live_text(self.store) <= used

    def grow_shapes(self) -> None:
        """Room for more shapes of topic patterns; the caller has made sure that there may be more."""
        self.shapes = grown(self.shapes, 2 * len(self.shapes))
        self.bundle()

    def clear_names(self, size: int) -> None:
        """An empty table of names, of a power of two."""
        self.names = np.zeros(size, np.uint64)
        self.bundle()

    @property
    def live_constraints(self) -> int:
        """How many different constraints are resident."""
        return int(self.counters[CONSTRAINTS_LIVE])

    @property
    def nbytes(self) -> int:
        """The memory of all arrays."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


def _more(rows: int) -> int:
    # Half again: a table that doubles is half empty on average, and memory per subscription is a promise.
    return rows + max(rows // 2, 4)
