"""Records of the log: their frame, their checksum, and how they are found again in the bytes of a segment.

```
segment: "PRstore1", number of the segment u64, then records
record:  marker u32, length of the payload u32, CRC-32 u32, kind u8, flags u8, reserved u16,
         number u64, synced u64, payload
```

All integers are little-endian. The CRC-32 covers the number of the segment, the header (with 0 in its place) and the
payload, so a record that a file system puts into another segment is not accepted there. `number` rises by one from
record to record. `synced` is the number of the last record that was known to be on disk when this one was written: a
record up to the largest `synced` that cannot be read is *damaged*; one beyond it was perhaps never written.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from postroad.store.row_sets import MAX_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Piece = bytes | bytearray | memoryview

__all__ = [
    "HEADER_BYTES",
    "MAX_PAYLOAD_BYTES",
    "SEGMENT_HEADER_BYTES",
    "Kind",
    "LogHole",
    "Record",
    "frame",
    "frames_in",
    "is_unfinished",
    "payload_of",
    "segment_header",
    "segment_name",
]

MAGIC = b"PRstore1"
SEGMENT_HEADER_BYTES = 16
MARKER = b"PRr\x01"
_HEADER = struct.Struct("<4sIIBBHQQ")
HEADER_BYTES = _HEADER.size
# The length is 32 bits, and a payload becomes the buffer of a batch, whose offsets are signed.
MAX_PAYLOAD_BYTES = 2**31 - 1


class Kind(IntEnum):
    """What a record holds."""

    BATCH = 1  # rows, and which cursors they matched
    SETTLED = 2  # rows that cursors have settled
    CURSOR = 3  # a cursor begins, changes or ends
    CHECKPOINT = 4  # all cursors, and where the rows they wait for are
    MOVED = 5  # what is left of an earlier batch, copied out of a segment that will be removed
    TRIED = 6  # rows that returned to their cursors, and how often
    TRANSFERRED = 7  # rows that wait for another cursor from now on
    ADOPTED = 8  # rows that were stored before wait for a cursor too, from now on


class Record(NamedTuple):
    """One record in the bytes of its segment.

    Attributes:
        number: of the record; for MOVED too, whose payload names the record that it stands for.
        start: where its header begins in the segment.
        length: of header and payload.
    """

    kind: Kind
    number: int
    synced: int
    start: int
    length: int

    def payload(self, data: memoryview) -> memoryview:
        """Return its payload in the bytes of the segment."""
        return data[self.start + HEADER_BYTES : self.start + self.length]


def segment_name(segment: int) -> str:
    """Return the name of the file of a segment."""
    return f"{segment:012d}.segment"


def segment_header(segment: int) -> bytes:
    """Return the bytes that a segment begins with."""
    return MAGIC + segment.to_bytes(8, "little")


def _seed(segment: int) -> int:
    return zlib.crc32(segment.to_bytes(8, "little"))


def frame(segment: int, kind: Kind, number: int, synced: int, payload: Sequence[Piece]) -> bytes:
    """Return the header for a payload, which may come in pieces."""
    length = sum(map(len, payload))
    blank = _HEADER.pack(MARKER, length, 0, kind, 0, 0, number, synced)
    crc = zlib.crc32(blank, _seed(segment))
    for piece in payload:
        crc = zlib.crc32(piece, crc)
    return _HEADER.pack(MARKER, length, crc, kind, 0, 0, number, synced)


def _record_at(data: memoryview, segment: int, start: int) -> Record | None:
    """Return the record whose header begins here; None if it is not whole, or not what was written."""
    if start + HEADER_BYTES > len(data):
        return None
    marker, length, crc, kind, flags, reserved, number, synced = _HEADER.unpack_from(data, start)
    end = start + HEADER_BYTES + length
    if marker != MARKER or flags or reserved or length > MAX_PAYLOAD_BYTES or end > len(data) or kind not in _KINDS:
        return None
    if number >= MAX_NUMBER or synced >= MAX_NUMBER:
        return None
    blank = _HEADER.pack(marker, length, 0, kind, 0, 0, number, synced)
    if zlib.crc32(data[start + HEADER_BYTES : end], zlib.crc32(blank, _seed(segment))) != crc:
        return None
    return Record(Kind(kind), number, synced, start, HEADER_BYTES + length)


_KINDS = frozenset(Kind)


def payload_of(data: bytes | memoryview, segment: int, number: int) -> memoryview | None:
    """Return the payload of one record, read by itself; None if these are not the bytes that were written for it."""
    view = memoryview(data)
    record = _record_at(view, segment, 0)
    if record is None or record.number != number or record.length != len(view):
        return None
    return record.payload(view)


class LogHole(NamedTuple):
    """Bytes of a segment that are not a record: torn, damaged or never written."""

    start: int
    end: int


def frames_in(data: memoryview, segment: int) -> Iterator[Record | LogHole]:
    """Yield the records of a segment in order, with the holes between and after them.

    A damaged header of the segment is a hole too: each record proves by its checksum that it belongs to this segment.
    After a hole, the next record is searched for by its marker; its checksum says whether it is one. The search is
    linear in the bytes: a marker in a body that is followed by a plausible length costs one checksum of that length,
    and bodies cannot make this happen more often than there are holes times markers, each of which is examined once.
    """
    size, start = len(data), SEGMENT_HEADER_BYTES
    if bytes(data[:SEGMENT_HEADER_BYTES]) != segment_header(segment):
        first = _next_record(data, segment, 0)
        start = size if first is None else first.start
        if start:
            yield LogHole(0, start)
    while start < size:
        record = _record_at(data, segment, start)
        if record is not None:
            yield record
            start += record.length
            continue
        found = _next_record(data, segment, start + 1)
        end = size if found is None else found.start
        yield LogHole(start, end)
        start = end


def _next_record(data: memoryview, segment: int, start: int) -> Record | None:
    raw = data.obj if isinstance(data.obj, bytes | bytearray) and len(data) == len(data.obj) else bytes(data)
    while (at := raw.find(MARKER, start)) >= 0:
        record = _record_at(data, segment, at)
        if record is not None:
            return record
        start = at + 1
    return None


def is_unfinished(data: memoryview, start: int) -> bool:
    """Return whether what begins here looks like a write that a crash cut short, with nothing after it.

    That is the beginning of a record that is longer than the segment, or bytes that were never written.
    """
    left = data[start:]
    if len(left) < HEADER_BYTES or bytes(left).count(0) == len(left):
        return True
    marker, length, *_ = _HEADER.unpack_from(left)
    return bool(marker == MARKER and HEADER_BYTES + length > len(left))
