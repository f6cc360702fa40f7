"""Ribbon filters: static filters near the limit of log2(1 / rate) bits per key.

After Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021). Every key gives one linear
equation over bits: the exclusive or of the solution's rows, picked by 128 random coefficients from a random start on,
equals the key's fingerprint. The equations are solved once, when all keys are known; a key is in the filter when its
equation holds. Other keys fit by chance, once in 2^columns. Duplicates are harmless: their equations agree.

Whole columns would waste up to a bit per key, so the upper blocks have one column more than the lower ones, as many as
bring the average error rate to what was asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.errors import FilterError
from postroad.filters.hashing import mix64, mix_word
from postroad.filters.sizing import limit_bits
from postroad.filters.solving import WIDTH, eliminated, equation, mixed_keys, solved
from postroad.kernels import Int, Truth, count_bits, device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Keys = NDArray[np.uint64]

__all__ = ["MAX_RIBBON_COLUMNS", "MAX_RIBBON_KEYS", "WIDTH", "RibbonFilter", "ribbon_bits"]

MAX_RIBBON_COLUMNS = 32  # the fingerprint is half a word
MAX_RIBBON_KEYS = 1 << 24  # half a gigabyte while it is solved; larger histories are cut before
_HEADER = np.dtype("<u4")
_HEADER_WORDS = 2

# Rows beyond the keys: around this share the chance that all equations can be solved rises steeply from none to nearly
# all, and the share grows with the logarithm of the number of keys. Measured from 2,500 to 1,000,000 keys: nine of ten
# first attempts succeed, and what an attempt costs no longer falls with more rows.
_SPARE_AT_ONE, _SPARE_PER_DOUBLING, _LEAST_SPARE = -0.03, 0.004, 0.005
_ATTEMPTS_PER_SIZE = 2  # seeds that are tried before rows are added
_GROWTH = 200  # one part of so many, or a block at least
_MAX_ATTEMPTS = 300

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_WORD, _SHIFT = np.uint64(64), np.uint64(7)
_INSIDE = np.uint64(WIDTH - 1)


@device
def _left(low: Int, high: Int, by: Int) -> tuple[Int, Int]:
    """128 bits shifted left by 0 to 127."""
    if by >= _WORD:
        return _ZERO, low << (by - _WORD)
    if by == _ZERO:
        return low, high
    return low << by, (high << by) | (low >> (_WORD - by))


@device
def _right(low: Int, high: Int, by: Int) -> tuple[Int, Int]:
    """128 bits shifted right by 0 to 127."""
    if by >= _WORD:
        return high >> (by - _WORD), _ZERO
    if by == _ZERO:
        return low, high
    return (low >> by) | (high << (_WORD - by)), high >> by


@device
def _holds(words: Words, columns: Int, short: Int, seed: Int, starts: Int, key: Int) -> Truth:
    start, low, high, own = equation(mix_word(key ^ seed), starts)
    block = np.int64(start >> _SHIFT)
    shift = start & _INSIDE
    one, two = _left(low, high, shift)
    three, four = _ZERO, _ZERO
    if shift != _ZERO:
        three, four = _right(low, high, np.uint64(WIDTH) - shift)
    wide = columns if block < short else columns + 1
    at = 2 * (block * (columns + 1) - min(block, short))
    # With nothing to read in the next block, read this one again: there may be no next one.
    after = at + 2 * wide if shift != _ZERO else at
    for column in range(wide):
        near, far = at + 2 * column, after + 2 * column
        mixed = (one & words[near]) ^ (two & words[near + 1]) ^ (three & words[far]) ^ (four & words[far + 1])
        if (count_bits(mixed) ^ (own >> np.uint64(column))) & _ONE != _ZERO:
            return False
    return True


@kernel(
    "void(Array(uint64, 1, 'C', readonly=True), int64, int64, uint64, uint64,"
    " Array(uint64, 1, 'C', readonly=True), boolean[::1])",
    allocates=False,
)
def _contains(
    words: Words, columns: Int, short: Int, seed: Int, starts: Int, keys: Keys, found: NDArray[np.bool_]
) -> None:
    for row in range(len(keys)):
        found[row] = _holds(words, columns, short, seed, starts, keys[row])


class RibbonFilter:
    """A static filter of 64-bit keys.

    Attributes:
        words: the solution, block by block, in each block column by column, two words each.
        columns: of the lower blocks; the upper ones have one more.
        blocks: of 128 rows each.
        short: how many of them have no column more.
        seed: the one that made the equations solvable.
    """

    __slots__ = ("blocks", "columns", "seed", "short", "words")

    def __init__(self, words: Words, columns: int, blocks: int, short: int, seed: int) -> None:
        self.words = words
        self.columns = columns
        self.blocks = blocks
        self.short = short
        self.seed = seed

    @classmethod
    def build(cls, keys: Keys, rate: float) -> RibbonFilter:
        """Build a filter of all keys with an average error rate; the same keys always give the same filter.

        Raises:
            LimitError: there are more than `MAX_RIBBON_KEYS` keys.
            FilterError: the rate is not in (2^-31, 1), or no seed makes the equations solvable.
        """
        if len(keys) > MAX_RIBBON_KEYS:
            raise LimitError("the number of keys of a static filter", len(keys), MAX_RIBBON_KEYS, "seal earlier")
        if not 2.0 ** (1 - MAX_RIBBON_COLUMNS) < rate < 1:
            raise FilterError(f"a static filter of error rate {rate}: want one between 2^-31 and 1")
        columns = math.floor(limit_bits(rate))
        blocks = _blocks(len(keys))
        for attempt in range(_MAX_ATTEMPTS):
            if attempt and attempt % _ATTEMPTS_PER_SIZE == 0:
                blocks += max(1, blocks // _GROWTH)
            built = cls._attempt(keys, rate, columns, blocks, attempt)
            if built is not None:
                return built
        raise FilterError(f"no seed of {_MAX_ATTEMPTS} makes a static filter of these {len(keys)} keys")

    @classmethod
    def _attempt(cls, keys: Keys, rate: float, columns: int, blocks: int, seed: int) -> RibbonFilter | None:
        starts = _starts(blocks)
        system = eliminated(mixed_keys(keys, mix64(seed), starts), starts, blocks * WIDTH, columns + 1)
        if system is None:
            return None
        # rate = share * 2^-columns + (1 - share) * 2^-(columns + 1), for the share of starts in short blocks.
        share = rate * 2.0 ** (columns + 1) - 1
        short = min(blocks, math.floor(share * starts / WIDTH))
        words = solved(system, columns, short, _size(columns, blocks, short))
        return cls(words, columns, blocks, short, seed)

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Which keys it says yes to: all it was built of, and a few others."""
        found = np.empty(len(keys), np.bool_)
        starts = np.uint64(_starts(self.blocks))
        _contains(self.words, self.columns, self.short, np.uint64(mix64(self.seed)), starts, keys, found)
        return found

    @property
    def rate(self) -> float:
        """The rate at which it says yes to a key it was not built of."""
        share = min(1.0, self.short * WIDTH / _starts(self.blocks))
        return (1 + share) * 2.0 ** -(self.columns + 1)

    @property
    def bits(self) -> int:
        """Its size, the header included."""
        return 64 * len(self.words) + 8 * _HEADER.itemsize * _HEADER_WORDS

    def __bytes__(self) -> bytes:
        header = np.array([self.blocks, self.short], _HEADER)
        return b"".join((header.tobytes(), self.words.astype("<u8", copy=False).data))

    @classmethod
    def from_bytes(cls, data: bytes, seed: int) -> RibbonFilter:
        """Read the canonical bytes.

        Raises:
            FilterError: they are not those of a ribbon filter.
        """
        header = _HEADER.itemsize * _HEADER_WORDS
        if len(data) % 8 or len(data) <= header:
            raise FilterError(f"{len(data)} bytes are no ribbon filter: want a header of {header} and words of 8")
        blocks, short = (int(number) for number in np.frombuffer(data, _HEADER, _HEADER_WORDS))
        words = np.frombuffer(data, "<u8", offset=header).astype(np.uint64, copy=False)
        columns = (len(words) // 2 + short) // blocks - 1 if blocks else -1
        if not 0 <= columns < MAX_RIBBON_COLUMNS or short > blocks or len(words) != _size(columns, blocks, short):
            raise FilterError(f"{len(words)} words are no ribbon filter of {blocks} blocks, {short} of them short")
        return cls(words, columns, blocks, short, seed)


def _blocks(keys: int) -> int:
    spare = max(_LEAST_SPARE, _SPARE_AT_ONE + _SPARE_PER_DOUBLING * math.log2(max(2, keys)))
    # The last start is 127 rows before the end: these rows carry less than their share.
    return max(1, math.ceil((keys * (1 + spare) + WIDTH / 4) / WIDTH))


def ribbon_bits(keys: int, rate: float) -> float:
    """The size that a ribbon filter of so many keys will mostly have."""
    columns = math.floor(limit_bits(rate))
    return _blocks(keys) * WIDTH * (columns + 2 - rate * 2.0 ** (columns + 1)) + 64


def _starts(blocks: int) -> int:
    return (blocks - 1) * WIDTH + 1


def _size(columns: int, blocks: int, short: int) -> int:
    """Words of the solution."""
    return 2 * (blocks * (columns + 1) - short)
