"""Columns of runs in two codings of Parquet, without laying out their rows.

Source: the Apache Parquet format, "Encodings": the hybrid of run lengths and bit packing (RLE), of which only run
lengths are needed here, and differences in blocks (DELTA_BINARY_PACKED).

What is written comes from runs of the record, whose counts are 1 or more and whose starts have 32 bits; the room is
measured for the widest that they can give. Nothing here reads bytes from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = ["rising", "run_lengths"]

# As parquet-cpp and parquet-java write them, and every reader knows: blocks of 128 differences, in four parts.
BLOCK, PARTS = 128, 4
PART = BLOCK // PARTS
_MOST_VARINT = 10


@device
def _put(out: Bytes, at: Int, value: Int) -> Int:
    """A variable-length number; where it ends."""
    left = np.uint64(value)
    while left > np.uint64(0x7F):
        out[at] = np.uint8(left & np.uint64(0x7F) | np.uint64(0x80))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@device
def _folded(value: Int) -> Int:
    """Small numbers of either sign as small numbers without."""
    return value << 1 ^ value >> 63


@kernel("int64(int64[::1], int64[::1], int64, uint8[::1])", allocates=False)
def _run_lengths(values: Ints, counts: Ints, width: Int, out: Bytes) -> Int:
    at = np.int64(0)
    for run in range(len(values)):
        at = _put(out, at, counts[run] << 1)
        for byte in range(width):
            out[at] = np.uint8(values[run] >> (8 * byte) & 0xFF)
            at += 1
    return at


def run_lengths(values: Ints, counts: Ints, bits: int) -> bytes:
    """Values of a bit width, each with its number of repetitions, as RLE."""
    width = (bits + 7) // 8
    out = np.empty(len(values) * (_MOST_VARINT + width), np.uint8)
    return out[: _run_lengths(values, counts, width, out)].tobytes()


@device
def _pack(values: Ints, begin: Int, end: Int, bits: Int, out: Bytes, at: Int) -> Int:
    """One part: all values in a bit width, the first in the lowest bits; returns where it ends."""
    held, waiting = np.uint64(0), np.int64(0)
    for index in range(begin, begin + PART):
        value = values[index] if index < end else np.int64(0)
        held |= np.uint64(value) << np.uint64(waiting)
        waiting += bits
        while waiting >= 8:
            out[at] = np.uint8(held & np.uint64(0xFF))
            held >>= np.uint64(8)
            waiting -= 8
            at += 1
    return at


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], uint8[::1])", allocates=False)
def _rising(starts: Ints, counts: Ints, rows: Int, steps: Ints, out: Bytes) -> Int:
    """Encode runs of consecutive numbers as DELTA_BINARY_PACKED of Parquet; returns where it ends.

    Run i is starts[i], starts[i] + 1, … with counts[i] numbers; the counts add up to `rows`. A block holds BLOCK
    differences in PARTS parts: the least difference, the bit width of each part, then the differences above the least.
    `steps` holds the differences of one block, and `out` has room for the longest encoding.
    """
    at = _put(out, np.int64(0), np.int64(BLOCK))
    at = _put(out, at, np.int64(PARTS))
    at = _put(out, at, rows)
    at = _put(out, at, _folded(starts[0]))
    run, offset, left = 0, np.int64(0), rows - 1
    while left > 0:
        size = min(left, np.int64(BLOCK))
        left -= size
        if offset + size < counts[run]:
            # Inside a run every difference is one: nothing is left to pack.
            offset += size
            at = _put(out, at, _folded(np.int64(1)))
            out[at : at + PARTS] = 0
            at += PARTS
            continue
        least = np.int64(1)
        for index in range(size):
            if offset + 1 < counts[run]:
                offset += 1
                steps[index] = 1
            else:
                steps[index] = starts[run + 1] - starts[run] - offset
                run, offset = run + 1, np.int64(0)
            least = min(least, steps[index])
        at = _put(out, at, _folded(least))
        widths = at
        at += PARTS
        for part in range(PARTS):
            begin = part * PART
            most = np.int64(0)
            for index in range(begin, min(size, begin + PART)):
                steps[index] -= least
                most = max(most, steps[index])
            bits = np.int64(0)
            while most >> bits:
                bits += 1
            out[widths + part] = np.uint8(bits)
            if bits:
                at = _pack(steps, begin, size, bits, out, at)
    return at


def rising(starts: Ints, counts: Ints) -> bytes:
    """Runs of 32-bit numbers that rise by one, each from its start, as DELTA_BINARY_PACKED."""
    rows = int(counts.sum())
    # Differences of 32-bit numbers have 33 bits at most.
    out = np.empty(64 + (rows // BLOCK + 1) * (_MOST_VARINT + PARTS) + 5 * len(starts) * PART, np.uint8)
    steps = np.zeros(BLOCK, np.int64)
    return out[: _rising(starts, counts, rows, steps, out)].tobytes()
