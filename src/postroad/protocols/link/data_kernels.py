"""Kernels that write rows of a batch into a DATA frame, each byte once, and one that reads the columns of a frame.

To build a frame from `encode_batch(batch.take(rows))` and the like costs 1.5 times as much for 1,000 short messages, 2
times for one, and 10 times for 1,000 of 1,000 bytes: every part is an array in new pages, and is copied once more. Each
call of numpy takes 1 to 2 µs, which is what a frame of one message costs here.

A neighbour may send anything: counts and lengths of a frame are compared with its size before `read_columns` is called,
and are added in 64 bits, so that no sum overflows. Rows are measured before they are written: the kernel reports a row,
span or envelope that is negative or out of range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device, kernel
from postroad.messages.columns import (
    BODY,
    BUFFER,
    ENVELOPE_COLUMNS,
    METADATA,
    SPAN_COLUMNS,
    TOPIC,
)
from postroad.messages.envelope import ENVELOPE_BYTES, LARGEST, METADATA_LENGTH_AT, put_envelope
from postroad.messages.fields import put_u32, span_at, u16_at, u32_at
from postroad.messages.message_prefix import PREFIX_BYTES, SPAN_LIMITS, copy_part, put_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages.columns import Bytes, Envelopes, Ids, Spans

__all__ = ["LINE_OUTSIDE", "measure_rows", "read_columns", "write_rows"]

LINE_OUTSIDE = -1

_ROWS = "Array(int64, 1, 'C', readonly=True)"
_SPANS = "Array(int32, 2, 'C', readonly=True)"
_IDS = "Array(uint64, 2, 'C', readonly=True)"
_ENVELOPES = "Array(int64, 2, 'C', readonly=True)"


@kernel(f"int64({_SPANS}, {_ENVELOPES}, int64, {_ROWS}, int64[::1])", allocates=False)
def measure_rows(
    spans: Spans, envelopes: Envelopes, size: int, rows: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Set `sizes` to the bytes of each row's message and metadata together.

    Returns:
        the first index into `rows` whose row does not exist, or has a part or envelope that is not valid; -1 if none.
    """
    for index in range(len(rows)):
        row = rows[index]
        if row < 0 or row >= len(spans):
            return index
        total = PREFIX_BYTES
        for column in range(0, SPAN_COLUMNS, 2):
            start, end = span_at(spans, row, column)
            if start < 0 or end < start or end > size or end - start > SPAN_LIMITS[column // 2]:
                return index
            total += end - start
        for column in range(ENVELOPE_COLUMNS):
            if envelopes[row, column] < 0 or envelopes[row, column] > LARGEST[column]:
                return index
        sizes[index] = total
    return -1


@device
def _put_message(buffer: Bytes, spans: Spans, row: int, out: Bytes, at: int) -> int:
    """Write one encoded message; return the offset after it. The parts of a received message are consecutive."""
    whole = True
    for part in range(4):
        start, end = span_at(spans, row, 2 * part)
        put_length(out, at, part, end - start)
        whole &= part == 3 or spans[row, 2 * part + 2] == end
    at += PREFIX_BYTES
    if whole:
        return int(copy_part(buffer, int(np.int64(spans[row, TOPIC])), int(np.int64(spans[row, BODY + 1])), out, at))
    for part in range(4):
        start, end = span_at(spans, row, 2 * part)
        at = copy_part(buffer, start, end, out, at)
    return at


@kernel(
    f"int64({BUFFER}, {_SPANS}, {_IDS}, {_ENVELOPES}, {_ROWS}, {_ROWS}, int64[::1], uint8[::1], int64)",
    allocates=False,
)
def write_rows(
    buffer: Bytes,
    spans: Spans,
    ids: Ids,
    envelopes: Envelopes,
    rows: NDArray[np.int64],
    lines: NDArray[np.int64],
    sizes: NDArray[np.int64],
    out: Bytes,
    at: int,
) -> int:
    """Write the columns of a frame and its messages; `at` is where the lines of the rows begin.

    The rows have been measured, and `out` has room for them.

    Returns:
        the offset after the last message.
    """
    count = len(rows)
    envelope = at + 2 * count
    length = envelope + ENVELOPE_BYTES * count
    metadata = length + 4 * count
    for index in range(count):
        row = rows[index]
        out[at] = lines[index] & 0xFF
        out[at + 1] = lines[index] >> 8
        at += 2
        start, end = span_at(spans, row, METADATA)
        put_envelope(out, envelope, ids, envelopes, row, end - start)
        envelope += ENVELOPE_BYTES
        put_u32(out, length, sizes[index] - (end - start))
        length += 4
        metadata = copy_part(buffer, start, end, out, metadata)
    for index in range(count):
        metadata = _put_message(buffer, spans, rows[index], out, metadata)
    return metadata


@kernel(f"UniTuple(int64, 2)({BUFFER}, int64, int64, int64[::1], int32[::1])", allocates=False)
def read_columns(
    frame: Bytes, at: int, distinct: int, lines: NDArray[np.int64], lengths: NDArray[np.int32]
) -> tuple[int, int]:
    """Read the lines and the lengths of a frame; the caller has checked that all columns, from `at` on, are in it.

    Returns:
        the bytes of all metadata blocks and of all messages, by the frame's lengths; or (`LINE_OUTSIDE`, row) if the
        line of a row is not below `distinct`. A length of more than 31 bits is stored wrongly, but then the sum fits no
        frame.
    """
    count = len(lines)
    envelopes = at + 2 * count
    lengths_at = envelopes + ENVELOPE_BYTES * count
    metadata = messages = 0
    for row in range(count):
        line = u16_at(frame, at + 2 * row)
        if line >= distinct:
            return LINE_OUTSIDE, row
        lines[row] = line
        length = u32_at(frame, lengths_at + 4 * row)
        lengths[row] = length
        messages += length
        metadata += u32_at(frame, envelopes + ENVELOPE_BYTES * row + METADATA_LENGTH_AT)
    return metadata, messages
