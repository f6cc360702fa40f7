"""`Destinations`: which brokers each row of a batch is for, as a dictionary of distinct bit sets.

Bit n of a set is broker n. Rows with the same destinations share one line of the dictionary, so that routing works once
per distinct set and not once per message. Dictionaries of different widths mix freely: bits that are not there are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from postroad.kernels import Int, device, kernel
from postroad.routing.errors import RoutingError
from postroad.topology import LARGEST_BROKER, bit_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.int64]
    Words: TypeAlias = NDArray[np.uint64]
    Flags: TypeAlias = NDArray[np.bool_]

__all__ = ["Destinations", "bits_of", "fitted", "same_set", "set_hash"]

_WORD_BITS = 64


class Destinations(NamedTuple):
    """Distinct sets, and the line of each row.

    Attributes:
        sets: uint64[distinct, words].
        lines: int64[rows]; where in `sets` the row's set is.
    """

    sets: Words
    lines: Integers

    @classmethod
    def nowhere(cls, rows: int) -> Destinations:
        """The empty set for each row: what strategies send that decide without sets."""
        return cls(np.zeros((1, 1), np.uint64), np.zeros(rows, np.int64))

    @classmethod
    def of(cls, sets: Sequence[Iterable[int]]) -> Destinations:
        """From one collection of broker numbers per row."""
        distinct: dict[frozenset[int], int] = {}
        lines = np.array([distinct.setdefault(frozenset(one), len(distinct)) for one in sets], np.int64)
        largest = max((number for one in distinct for number in one), default=0)
        words = np.zeros((len(distinct), bit_words(largest)), np.uint64)
        for one, line in distinct.items():
            words[line] = bits_of(one, words.shape[1])
        return cls(words, lines)

    def numbers(self, row: int) -> list[int]:
        """The brokers a row is for, rising."""
        line = self.sets[self.lines[row]]
        bits = np.unpackbits(line.astype("<u8").view(np.uint8), bitorder="little")
        return [int(number) for number in np.flatnonzero(bits)]

    def checked(self, rows: int) -> Destinations:
        """Itself, if it fits a batch of this many rows.

        Raises:
            RoutingError: from outside, and the shapes do not fit or an index points nowhere.
        """
        if self.sets.ndim != 2 or len(self.lines) != rows:
            raise RoutingError(f"destinations: {len(self.lines)} lines for {rows} rows; there must be one for each")
        if not 1 <= self.sets.shape[1] <= bit_words(LARGEST_BROKER):
            raise RoutingError(
                f"destinations: sets of {self.sets.shape[1]} words; 1 to {bit_words(LARGEST_BROKER):,} are allowed"
            )
        if not _lines_within(np.ascontiguousarray(self.lines), len(self.sets)):
            raise RoutingError(f"destinations: a row's line is outside the {len(self.sets)} sets")
        return self


@device
def same_set(sets: Words, one: Int, other: Int) -> bool:
    """Whether two lines of a table of sets are equal."""
    for word in range(sets.shape[1]):
        if sets[one, word] != sets[other, word]:
            return False
    return True


@device
def set_hash(sets: Words, line: Int) -> np.uint64:
    """A hash of a set, to find its line in the dictionary of one batch."""
    value = np.uint64(0)
    for word in range(sets.shape[1]):
        value = (value ^ sets[line, word]) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    return value


# Asked of every read: numpy takes five times as long, for two reductions.
@kernel("boolean(int64[::1], int64)", allocates=False)
def _lines_within(lines: Integers, count: int) -> bool:
    """Whether every line is the place of one of this many sets."""
    for row in range(len(lines)):
        if lines[row] < 0 or lines[row] >= count:
            return False
    return True


def bits_of(numbers: Iterable[int], words: int) -> Words:
    """uint64[words] with the bits of these numbers; those that do not fit are left out."""
    bits = np.zeros(words, np.uint64)
    for number in numbers:
        if number < words * _WORD_BITS:
            bits[number // _WORD_BITS] |= np.uint64(1 << (number % _WORD_BITS))
    return bits


def fitted(bits: Words, words: int) -> Words:
    """A set, or a table of sets, with this many words: cut, or filled with zeros."""
    held = bits.shape[-1]
    if held == words:
        return bits
    result = np.zeros((*bits.shape[:-1], words), np.uint64)
    result[..., : min(held, words)] = bits[..., : min(held, words)]
    return result
