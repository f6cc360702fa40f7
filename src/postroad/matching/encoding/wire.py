"""The canonical bytes of encoded predicates, as they travel between brokers.

All numbers little-endian. A header of 20 bytes, the ladder, two packed columns, a checksum:

    version u8 (1), flags u8 (1 topics, 2 priority), k u8, gram u8, M u32, thresholds u16, width of a count u8,
    reserved u8 (0), rows u32, positions u32
    thresholds, f64 each
    the number of positions of each row, in the width given (the least that holds the largest)
    the positions of all rows, in the least width that holds M - 1
    XXH64 of all bytes before, u64

There is one byte string for each list, and a decoder refuses every other.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters import hash_bytes
from postroad.matching.encoding.bits import pack, packed_size, unpack
from postroad.matching.encoding.errors import EncodingError
from postroad.matching.encoding.predicates import MAX_ROWS, EncodedPredicates
from postroad.matching.encoding.scheme import Scheme

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

__all__ = ["VERSION", "from_bytes", "from_bytes_in_steps", "to_bytes"]

VERSION = 1

_HEADER = struct.Struct("<BBBBIHBBII")
_CHECKSUM = struct.Struct("<Q")
_TOPICS, _PRIORITY = 1, 2
_THRESHOLD_BYTES = 8
# Numbers that are decoded in one step: some 3 ms. A multiple of 8.
STEP = 8_192
# A position fits in 16 bits.
_ROW_SHIFT = 16


def to_bytes(predicates: EncodedPredicates) -> bytes:
    """The canonical bytes of a list."""
    scheme = predicates.scheme
    flat = predicates.flat()
    counts = np.array([len(row) for row in predicates.rows], np.int64)
    width = _count_width(counts)
    flags = _TOPICS * scheme.topics | _PRIORITY * scheme.priority
    header = _HEADER.pack(
        VERSION,
        flags,
        scheme.hashes,
        scheme.gram,
        scheme.bits,
        len(scheme.thresholds),
        width,
        0,
        len(counts),
        len(flat),
    )
    ladder = struct.pack(f"<{len(scheme.thresholds)}d", *scheme.thresholds)
    body = header + ladder + pack(counts, width) + pack(flat, _position_width(scheme))
    return body + _CHECKSUM.pack(hash_bytes(body))


def from_bytes(data: bytes) -> EncodedPredicates:
    """Decode a list.

    Raises:
        EncodingError: the bytes are not the canonical form of any list; the text says where.
        LimitError: a parameter or the number of rows is above its limit.
    """
    steps = from_bytes_in_steps(data)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            predicates: EncodedPredicates = done.value
            return predicates


def from_bytes_in_steps(data: bytes) -> Generator[None, None, EncodedPredicates]:
    """As `from_bytes`, some thousand positions at a time, so that a long list delays no other work.

    Canonical bytes are recognised without encoding them again: the width of counts is the least, positions ascend in
    each row and rows in the list, and the bits that fill up the last bytes are zero.
    """
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise EncodingError(f"{len(data)} bytes of encoded predicates: too short for header and checksum")
    version, flags, hashes, gram, bits, thresholds, width, reserved, rows, places = _HEADER.unpack_from(data)
    if version != VERSION:
        raise EncodingError(f"offset 0: version {version} of encoded predicates; this decoder knows {VERSION}")
    if flags & ~(_TOPICS | _PRIORITY):
        raise EncodingError(f"offset 1: unknown flags {flags:#04x}")
    if reserved:
        raise EncodingError(f"offset 11: the reserved byte is {reserved}, not 0")
    if rows > MAX_ROWS:
        raise LimitError("the number of encoded conjunctions", rows, MAX_ROWS)
    ladder_end = _HEADER.size + thresholds * _THRESHOLD_BYTES
    if ladder_end + _CHECKSUM.size > len(data):
        raise EncodingError(f"offset {_HEADER.size}: {thresholds} thresholds do not fit in {len(data)} bytes")
    ladder = struct.unpack_from(f"<{thresholds}d", data, _HEADER.size)
    scheme = Scheme(bits, hashes, ladder, gram, topics=bool(flags & _TOPICS), priority=bool(flags & _PRIORITY))
    if struct.pack(f"<{thresholds}d", *scheme.thresholds) != data[_HEADER.size : ladder_end]:
        raise EncodingError(_not_canonical(_HEADER.size))
    return (yield from _rows(data, ladder_end, scheme, rows, places, width))


def _rows(
    data: bytes, start: int, scheme: Scheme, rows: int, places: int, width: int
) -> Generator[None, None, EncodedPredicates]:
    if rows > 1 and width == 0:
        raise EncodingError(f"offset 12: {rows} rows without positions; they would all be the same row")
    if width > scheme.bits.bit_length():
        raise EncodingError(f"offset 10: counts of {width} bits, more than a row of {scheme.bits} bits needs")
    place_width = _position_width(scheme)
    middle = start + packed_size(rows, width)
    end = middle + packed_size(places, place_width)
    if end + _CHECKSUM.size != len(data):
        raise EncodingError(f"{rows} rows with {places} positions need {end + _CHECKSUM.size} bytes, not {len(data)}")
    if _CHECKSUM.unpack_from(data, end)[0] != hash_bytes(data[:end]):
        raise EncodingError(f"offset {end}: the checksum does not fit the bytes before it")
    counts = yield from _unpacked(data, start, rows, width)
    if int(counts.sum()) != places:
        raise EncodingError(f"offset {start}: the rows count {counts.sum()} positions, the header {places}")
    if np.count_nonzero(counts == 0) > 1:
        raise EncodingError(f"offset {start}: more than one row without positions; they would all be the same row")
    if _count_width(counts) != width:
        raise EncodingError(_not_canonical(10))
    flat = yield from _unpacked(data, middle, places, place_width)
    if len(flat) and int(flat.max()) >= scheme.bits:
        raise EncodingError(f"offset {middle}: position {flat.max()} in vectors of {scheme.bits} bits")
    return EncodedPredicates.canonical(scheme, (yield from _ascending(flat, counts, scheme, start)))


def _unpacked(data: bytes, start: int, count: int, width: int) -> Generator[None, None, NDArray[np.int32]]:
    """Packed numbers, a step at a time; a step begins at a whole byte, because it is a multiple of 8 numbers."""
    found = np.empty(count, np.int32)
    for first in range(0, count, STEP):
        if first:
            yield
        last = min(first + STEP, count)
        begin, end = start + first * width // 8, start + packed_size(last, width)
        found[first:last] = unpack(data[begin:end], last - first, width)
    spare = -(count * width) % 8
    if spare and data[start + packed_size(count, width) - 1] >> (8 - spare):
        raise EncodingError(_not_canonical(start + packed_size(count, width) - 1))
    return found


def _ascending(
    flat: NDArray[np.int32], counts: NDArray[np.int32], scheme: Scheme, start: int
) -> Generator[None, None, list[tuple[int, ...]]]:
    """The rows, if they and the positions in each ascend."""
    # One object for each position: millions of rows share them.
    pool = np.array(range(scheme.bits), object)
    edges = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    rows: list[tuple[int, ...]] = []
    before: tuple[int, ...] | None = None
    first = 0
    while first < len(counts):
        if first:
            yield
        # So many rows that they have a step's positions, and one at least: a row has no more than a vector has bits.
        last = max(first + 1, int(np.searchsorted(edges, edges[first] + STEP, "right")) - 1)
        last = min(last, first + STEP, len(counts))
        part = flat[edges[first] : edges[last]]
        keys = np.repeat(np.arange(last - first, dtype=np.int64), counts[first:last]) << _ROW_SHIFT | part
        if (np.diff(keys) <= 0).any():
            raise EncodingError(_not_canonical(start))
        shared = pool[part].tolist()
        for begin, end in pairwise((edges[first : last + 1] - edges[first]).tolist()):
            row = tuple(shared[begin:end])
            if before is not None and row <= before:
                raise EncodingError(_not_canonical(start))
            rows.append(row)
            before = row
        first = last
    return rows


def _not_canonical(place: int) -> str:
    return f"offset {place}: not canonical (rows and positions ascend without repeats, unused bits are zero)"


def _count_width(counts: NDArray[np.int64] | NDArray[np.int32]) -> int:
    return int(counts.max()).bit_length() if len(counts) else 0


def _position_width(scheme: Scheme) -> int:
    return (scheme.bits - 1).bit_length()
