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

import numpy as np

from postroad.errors import LimitError
from postroad.filters import hash_bytes
from postroad.matching.encoding.bits import pack, packed_size, unpack
from postroad.matching.encoding.errors import EncodingError
from postroad.matching.encoding.predicates import MAX_ROWS, EncodedPredicates
from postroad.matching.encoding.scheme import Scheme

__all__ = ["VERSION", "from_bytes", "to_bytes"]

VERSION = 1

_HEADER = struct.Struct("<BBBBIHBBII")
_CHECKSUM = struct.Struct("<Q")
_TOPICS, _PRIORITY = 1, 2
_THRESHOLD_BYTES = 8


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
    predicates = _rows(data, ladder_end, scheme, rows, places, width)
    if to_bytes(predicates) != data:
        raise EncodingError(_difference(to_bytes(predicates), data))
    return predicates


def _rows(data: bytes, start: int, scheme: Scheme, rows: int, places: int, width: int) -> EncodedPredicates:
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
    counts = unpack(data[start:middle], rows, width)
    if int(counts.sum()) != places:
        raise EncodingError(f"offset {start}: the rows count {counts.sum()} positions, the header {places}")
    if np.count_nonzero(counts == 0) > 1:
        raise EncodingError(f"offset {start}: more than one row without positions; they would all be the same row")
    flat = unpack(data[middle:end], places, place_width).tolist()
    if flat and max(flat) >= scheme.bits:
        raise EncodingError(f"offset {middle}: position {max(flat)} in vectors of {scheme.bits} bits")
    edges = [0, *np.cumsum(counts).tolist()]
    return EncodedPredicates(scheme, (tuple(sorted(set(flat[first:last]))) for first, last in pairwise(edges)))


def _difference(expected: bytes, found: bytes) -> str:
    """Where non-canonical bytes first differ; a list that lost rows or positions on reading had them twice."""
    place = next((at for at, (one, two) in enumerate(zip(expected, found, strict=False)) if one != two), len(expected))
    return f"offset {place}: not canonical (rows and positions ascend without repeats, unused bits are zero)"


def _count_width(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return int(counts.max()).bit_length() if len(counts) else 0


def _position_width(scheme: Scheme) -> int:
    return (scheme.bits - 1).bit_length()
