"""Ribbon filters: static filters near the limit of log2(1 / rate) bits per key.

After Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021). Every key gives one linear
equation over bits: the exclusive or of the solution's rows, picked by 64 random coefficients from a random start on,
equals the key's fingerprint. The equations are solved once, when all keys are known; a key is in the filter when its
equation holds. Other keys fit by chance, once in 2^columns. Duplicates are harmless: their equations agree.

Whole columns would waste up to a bit per key, so the upper blocks have one column more than the lower ones, as many as
bring the average error rate to what was asked for.

The more keys, the more rows must be to spare. So a large filter consists of *parts*, each solved by itself: as small as
one of few keys, and solved within the cache of a processor. Twice the coefficients would need half the spare rows, a
fortieth less in all, for nearly twice the time (docs/decisions/0011-narrow-ribbons-in-parts.md).

The rows that a key picks follow from its hash, the number of parts and their sizes. The sizes are compared with the
number of bytes when a filter is read, so no key can pick a row outside of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.errors import FilterError
from postroad.filters.hashes import mix_word
from postroad.filters.ribbon_solver import (
    BLOCKS,
    PART_FIELDS,
    SEED,
    SHORT,
    WIDTH,
    dealt_keys,
    equation,
    part_of,
    solved_parts,
)
from postroad.filters.sizes import limit_bits
from postroad.kernels import Int, Truth, count_bits, device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Keys = NDArray[np.uint64]
    Parts = NDArray[np.uint32]

__all__ = ["MAX_RIBBON_COLUMNS", "MAX_RIBBON_KEYS", "WIDTH", "RibbonFilter", "ribbon_bits"]

MAX_RIBBON_COLUMNS = 32  # the fingerprint is half a word
MAX_RIBBON_KEYS = 1 << 24  # a quarter of a gigabyte while it is solved; larger histories are cut before
_HEADER = np.dtype("<u4")

# Keys in a part: its rows, 12 bytes each, are well within the second cache, and little is wasted at its end.
_PART_KEYS = 1 << 13

# Rows beyond the keys: around this share the chance that all equations can be solved rises steeply from none to nearly
# all, and the share grows with the logarithm of the number of keys. Measured from 4,000 to 130,000 keys: nine of ten
# first attempts succeed, and what an attempt costs no longer falls with more rows.
_SPARE_AT_ONE, _SPARE_PER_DOUBLING, _LEAST_SPARE = -0.031, 0.00625, 0.005

_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)
_SHIFT, _INSIDE = np.uint64(6), np.uint64(WIDTH - 1)


@device
def _holds(words: Words, at: Int, columns: Int, blocks: Int, short: Int, seed: Int, key: Int) -> Truth:
    """Whether the equation of a key holds in a part whose words begin at a place.

    The start is at most 64 (blocks - 1), so its block is one of the part. Its 64 rows reach into the next block unless
    the start is the first row of a block; the last block can only be started at its first row, so a next one exists.
    """
    start, low, own = equation(mix_word(key ^ mix_word(seed)), np.uint64((blocks - 1) * WIDTH + 1))
    block = np.int64(start >> _SHIFT)
    shift = start & _INSIDE
    one, two = low << shift, _ZERO
    if shift != _ZERO:
        two = low >> (_WORD - shift)
    wide = columns if block < short else columns + 1
    # Blocks before this one have `columns + 1` words each, one less if they are short.
    at += block * (columns + 1) - min(block, short)
    # If there is nothing to read in the next block, read this one again: there may be no next one.
    after = at + wide if shift != _ZERO else at
    for column in range(wide):
        mixed = (one & words[at + column]) ^ (two & words[after + column])
        if (count_bits(mixed) ^ (own >> np.uint64(column))) & _ONE != _ZERO:
            return False
    return True


@kernel(
    "void(Array(uint64, 1, 'C', readonly=True), int64, uint32[:, ::1], int64[::1],"
    " Array(uint64, 1, 'C', readonly=True), boolean[::1])",
    allocates=False,
)
def _contains(
    words: Words, columns: Int, parts: Parts, begins: NDArray[np.int64], keys: Keys, found: NDArray[np.bool_]
) -> None:
    for row in range(len(keys)):
        part = part_of(keys[row], np.uint64(len(parts)))
        blocks, short = np.int64(parts[part, BLOCKS]), np.int64(parts[part, SHORT])
        found[row] = _holds(words, begins[part], columns, blocks, short, np.uint64(parts[part, SEED]), keys[row])


class RibbonFilter:
    """A static filter of 64-bit keys, which are hashes: parts go by their upper halves.

    Attributes:
        words: the solution, part by part, in each block by block, in each block column by column.
        columns: of the lower blocks of a part; the upper ones have one more.
        parts: uint32[n, 3]; of each part its blocks of 64 rows, how many of them have no column more, and the seed that
            made the equations solvable.
    """

    __slots__ = ("columns", "parts", "words")

    def __init__(self, words: Words, columns: int, parts: Parts) -> None:
        self.words = words
        self.columns = columns
        self.parts = parts

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
        # rate = share * 2^-columns + (1 - share) * 2^-(columns + 1), for the share of starts in short blocks.
        share = rate * 2.0 ** (columns + 1) - 1
        dealt, ends = dealt_keys(keys, _parts(len(keys)))
        solved = solved_parts(dealt, ends, _blocks(np.diff(ends)), columns, share)
        if isinstance(solved, int):
            raise FilterError(f"no seed makes a static filter of these {len(keys)} keys")
        return cls(solved[0], columns, solved[1])

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Which keys it says yes to: all it was built of, and a few others."""
        found = np.empty(len(keys), np.bool_)
        sizes = _sizes(self.columns, self.parts)
        _contains(self.words, self.columns, self.parts, np.cumsum(sizes) - sizes, keys, found)
        return found

    @property
    def rate(self) -> float:
        """The rate at which it says yes to a key it was not built of."""
        starts = (self.parts[:, BLOCKS].astype(np.int64) - 1) * WIDTH + 1
        shares = np.minimum(1.0, self.parts[:, SHORT] * float(WIDTH) / starts)
        return (1 + float(shares.mean())) * 2.0 ** -(self.columns + 1)

    @property
    def bits(self) -> int:
        """Its size, the header included."""
        return 64 * len(self.words) + 8 * _HEADER.itemsize * _header_fields(len(self.parts))

    def __bytes__(self) -> bytes:
        header = np.zeros(_header_fields(len(self.parts)), _HEADER)
        header[0] = len(self.parts)
        header[1 : 1 + self.parts.size] = self.parts.ravel()
        return b"".join((header.tobytes(), self.words.astype("<u8", copy=False).data))

    @classmethod
    def from_bytes(cls, data: bytes) -> RibbonFilter:
        """Read the canonical bytes.

        Raises:
            FilterError: they are not those of a ribbon filter.
        """
        parts = _read_parts(data)
        header = _HEADER.itemsize * _header_fields(len(parts))
        words = np.frombuffer(data, "<u8", offset=header).astype(np.uint64, copy=False)
        blocks, short = (int(parts[:, field].sum(dtype=np.int64)) for field in (BLOCKS, SHORT))
        columns = (len(words) + short) // blocks - 1 if blocks else -1
        if (
            not 0 <= columns < MAX_RIBBON_COLUMNS
            or not parts[:, BLOCKS].all()
            or (parts[:, SHORT] > parts[:, BLOCKS]).any()
            or len(words) != _sizes(columns, parts).sum()
        ):
            raise FilterError(f"{len(words)} words are not a ribbon filter of {blocks} blocks, {short} of them short")
        return cls(words, columns, parts)


def _read_parts(data: bytes) -> Parts:
    """The parts that a header names."""
    named = int.from_bytes(data[: _HEADER.itemsize], "little")
    header = _HEADER.itemsize * _header_fields(named)
    if len(data) % 8 or not named or len(data) <= header:
        raise FilterError(f"{len(data)} bytes are not a ribbon filter of {named} parts: want a header and words of 8")
    fields = np.frombuffer(data, _HEADER, PART_FIELDS * named, _HEADER.itemsize)
    return fields.astype(np.uint32).reshape(named, PART_FIELDS)


def _header_fields(parts: int) -> int:
    """The number of parts, and what is known about each; words after it begin at a multiple of 8 bytes."""
    fields = 1 + PART_FIELDS * parts
    return fields + fields % 2


def _parts(keys: int) -> int:
    return max(1, round(keys / _PART_KEYS))


def _blocks(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The blocks of parts with this many keys each."""
    spare = np.maximum(_LEAST_SPARE, _SPARE_AT_ONE + _SPARE_PER_DOUBLING * np.log2(np.maximum(2, keys)))
    # The last start is 63 rows before the end: these rows carry less than their share.
    blocks: NDArray[np.int64] = np.maximum(1, np.ceil((keys * (1 + spare) + WIDTH / 4) / WIDTH)).astype(np.int64)
    return blocks


def ribbon_bits(keys: int, rate: float) -> float:
    """The size that a ribbon filter of this many keys will mostly have."""
    columns, parts = math.floor(limit_bits(rate)), _parts(keys)
    blocks = parts * int(_blocks(np.array([keys / parts]))[0])
    header = 8 * _HEADER.itemsize * _header_fields(parts)
    return blocks * WIDTH * (columns + 2 - rate * 2.0 ** (columns + 1)) + header


def _sizes(columns: int, parts: Parts) -> NDArray[np.int64]:
    """Words of the solution of each part."""
    fields = parts.astype(np.int64)
    sizes: NDArray[np.int64] = fields[:, BLOCKS] * (columns + 1) - fields[:, SHORT]
    return sizes
