"""The envelope: 40 bytes beside each encoded message, which may change at each hop.

    0  id: publisher u32, broker u32, time u48, counter u16; big-endian
    16 source u32, hop limit u8, flags u8, priority u8, 0
    24 expiry u64, length of the metadata block u32, 0 as u32

Numbers are little-endian except in the id, so that the bytes of ids sort as the ids do. This is the only module that
knows these offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device, kernel
from postroad.messages import faults
from postroad.messages.buffers import byte_array
from postroad.messages.columns import (
    BUFFER,
    ENVELOPE_COLUMNS,
    EXPIRY,
    FLAGS,
    HOP_LIMIT,
    KNOWN_FLAGS,
    METADATA,
    PRIORITY,
    SOURCE,
)
from postroad.messages.errors import MessageError
from postroad.messages.fields import integer_at, put_u32, span_at, u32_at
from postroad.messages.limits import MAX_METADATA_BYTES

if TYPE_CHECKING:
    from postroad.messages.batch import Batch
    from postroad.messages.buffers import Buffer
    from postroad.messages.columns import Bytes, Envelopes, Ids, Lengths, Spans

__all__ = [
    "ENVELOPE_BYTES",
    "LARGEST",
    "METADATA_LENGTH_AT",
    "decode_envelopes",
    "encode_envelopes",
    "put_envelope",
]

ENVELOPE_BYTES = 40

# Offsets in the envelope.
_SOURCE, _HOP_LIMIT, _FLAGS, _PRIORITY, _RESERVED_BYTE = 16, 20, 21, 22, 23
_EXPIRY, _METADATA, _RESERVED_WORD = 24, 32, 36
METADATA_LENGTH_AT = _METADATA

_COLUMNS = ("source", "hop limit", "flags", "priority", "expiry", "metadata length")
# The largest value of each column that its bytes can hold.
LARGEST = np.array([2**32 - 1, 255, KNOWN_FLAGS, 255, 2**63 - 1], dtype=np.int64)


def encode_envelopes(batch: Batch) -> Bytes:
    """Return the envelopes of a batch, 40 bytes each; `encode_metadata` returns the metadata blocks."""
    out = np.empty(len(batch) * ENVELOPE_BYTES, dtype=np.uint8)
    row, column = _write_envelopes(batch.ids, batch.envelopes, batch.spans, out)
    if row >= 0:
        raise MessageError(f"row {row}: the envelope's {_COLUMNS[column]} is outside what its bytes can hold")
    return out


def decode_envelopes(buffer: Buffer, count: int, start: int = 0) -> tuple[Ids, Envelopes, Lengths]:
    """Decode `count` envelopes, which begin at `start`: ids, envelope columns, metadata lengths.

    Raises `DecodeError` with row and offset if a reserved byte is set, a flag is unknown, a metadata length is over its
    limit, or the buffer is too short.
    """
    data = byte_array(buffer)
    if count < 0:
        raise MessageError(f"cannot read {count} envelopes; ask for 0 or more")
    if not 0 <= start <= len(data) - count * ENVELOPE_BYTES:
        missing = max(0, len(data) - max(0, start)) // ENVELOPE_BYTES
        raise faults.decode_error(faults.BEYOND_BUFFER, missing, min(max(0, start), len(data)))
    ids = np.empty((count, 2), dtype=np.uint64)
    envelopes = np.empty((count, ENVELOPE_COLUMNS), dtype=np.int64)
    lengths = np.empty(count, dtype=np.int32)
    fault, row, offset = _read_envelopes(data[start:], ids, envelopes, lengths)
    if fault:
        raise faults.decode_error(fault, row, start + offset)
    return ids, envelopes, lengths


@device
def _put_id_half(out: Bytes, at: int, half: np.uint64) -> None:
    for index in range(8):
        out[at + index] = half >> np.uint64(56 - 8 * index) & np.uint64(0xFF)


@device
def _id_half_at(buffer: Bytes, at: int) -> np.uint64:
    half = np.uint64(0)
    for index in range(8):
        half = half << np.uint64(8) | np.uint64(buffer[at + index])
    return half


@device
def put_envelope(out: Bytes, at: int, ids: Ids, envelopes: Envelopes, row: int, metadata: int) -> None:
    """Write the 40 bytes of one row's envelope from `at` on.

    The caller has checked that `out` has room for them, and that no value of the row is above `LARGEST`.
    """
    _put_id_half(out, at, ids[row, 0])
    _put_id_half(out, at + 8, ids[row, 1])
    put_u32(out, at + _SOURCE, int(envelopes[row, SOURCE]))
    out[at + _HOP_LIMIT] = envelopes[row, HOP_LIMIT]
    out[at + _FLAGS] = envelopes[row, FLAGS]
    out[at + _PRIORITY] = envelopes[row, PRIORITY]
    out[at + _RESERVED_BYTE] = 0
    put_u32(out, at + _EXPIRY, int(envelopes[row, EXPIRY]))
    put_u32(out, at + _EXPIRY + 4, int(envelopes[row, EXPIRY]) >> 32)
    put_u32(out, at + _METADATA, metadata)
    put_u32(out, at + _RESERVED_WORD, 0)


@kernel("UniTuple(int64, 2)(uint64[:, ::1], int64[:, ::1], int32[:, ::1], uint8[::1])")
def _write_envelopes(ids: Ids, envelopes: Envelopes, spans: Spans, out: Bytes) -> tuple[int, int]:
    """Return (row, column) of the first value that does not fit, or (-1, 0). `out` has 40 bytes for each row."""
    for row in range(len(envelopes)):
        at = row * ENVELOPE_BYTES
        for column in range(ENVELOPE_COLUMNS):
            if envelopes[row, column] < 0 or envelopes[row, column] > LARGEST[column]:
                return row, column
        start, end = span_at(spans, row, METADATA)
        metadata = end - start
        if metadata < 0 or metadata > MAX_METADATA_BYTES:
            return row, ENVELOPE_COLUMNS
        put_envelope(out, at, ids, envelopes, row, metadata)
    return -1, 0


@kernel(f"UniTuple(int64, 3)({BUFFER}, uint64[:, ::1], int64[:, ::1], int32[::1])")
def _read_envelopes(buffer: Bytes, ids: Ids, envelopes: Envelopes, lengths: Lengths) -> tuple[int, int, int]:
    """Fill all rows: (fault, row, offset). The caller has checked that `buffer` has 40 bytes for each."""
    for row in range(len(lengths)):
        at = row * ENVELOPE_BYTES
        if buffer[at + _FLAGS] > KNOWN_FLAGS:
            return faults.FLAGS_UNKNOWN, row, at + _FLAGS
        if buffer[at + _RESERVED_BYTE] != 0:
            return faults.RESERVED, row, at + _RESERVED_BYTE
        if u32_at(buffer, at + _RESERVED_WORD) != 0:
            return faults.RESERVED, row, at + _RESERVED_WORD
        if buffer[at + _EXPIRY + 7] > 0x7F:
            return faults.EXPIRY_RANGE, row, at + _EXPIRY
        metadata = u32_at(buffer, at + _METADATA)
        if metadata > MAX_METADATA_BYTES:
            return faults.METADATA_LONG, row, at + _METADATA
        ids[row, 0] = _id_half_at(buffer, at)
        ids[row, 1] = _id_half_at(buffer, at + 8)
        envelopes[row, SOURCE] = u32_at(buffer, at + _SOURCE)
        envelopes[row, HOP_LIMIT] = buffer[at + _HOP_LIMIT]
        envelopes[row, FLAGS] = buffer[at + _FLAGS]
        envelopes[row, PRIORITY] = buffer[at + _PRIORITY]
        envelopes[row, EXPIRY] = integer_at(buffer, at + _EXPIRY)
        lengths[row] = metadata
    return faults.FINE, 0, 0
