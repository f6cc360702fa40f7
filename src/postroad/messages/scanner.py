"""Kernels that read untrusted messages: they check everything and set the spans of a batch.

`message_prefix` has the layout of an encoded message.

Lengths are added in 64 bits and compared with the buffer before a span is set. Spans have 32 bits, which is enough:
`decode_batch` and the codecs refuse buffers beyond MAX_BATCH_BYTES. A negative length is refused as too short for a
prefix, a negative span by `check_rows`: an index below 0 would count from the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device, kernel
from postroad.messages import faults
from postroad.messages.checks import check_entries, check_lines, check_topic
from postroad.messages.columns import ATTRIBUTES, BODY, BUFFER, HEADERS, METADATA, SPAN_COLUMNS, TOPIC
from postroad.messages.fields import span_at, u16_at, u32_at
from postroad.messages.limits import (
    MAX_ATTRIBUTE_BYTES,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_METADATA_BYTES,
    MAX_TOPIC_BYTES,
)
from postroad.messages.message_prefix import PREFIX_BYTES, VERSION

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes, Lengths, Spans


@device
def _set_spans(buffer: Bytes, at: int, length: int, spans: Spans, row: int) -> tuple[int, int]:
    """Read the prefix of one message, and set the spans of its four parts: (fault, offset)."""
    if length < PREFIX_BYTES:
        return faults.SHORT_PREFIX, at
    if at + length > len(buffer):
        return faults.BEYOND_BUFFER, at
    if buffer[at] != VERSION:
        return faults.VERSION, at
    if buffer[at + 1] != 0:
        return faults.RESERVED, at + 1
    topic = at + PREFIX_BYTES
    attributes = topic + u16_at(buffer, at + 2)
    headers = attributes + u32_at(buffer, at + 4)
    body = headers + u32_at(buffer, at + 8)
    end = body + u32_at(buffer, at + 12)
    if end != at + length:
        return faults.LENGTH_SUM, at
    spans[row, TOPIC], spans[row, TOPIC + 1] = topic, attributes
    spans[row, ATTRIBUTES], spans[row, ATTRIBUTES + 1] = attributes, headers
    spans[row, HEADERS], spans[row, HEADERS + 1] = headers, body
    spans[row, BODY], spans[row, BODY + 1] = body, end
    return faults.FINE, 0


@device
def _check_row(buffer: Bytes, spans: Spans, row: int) -> tuple[int, int]:
    """Check the four parts of a message whose spans lie in the buffer: (fault, offset)."""
    topic, topic_end = span_at(spans, row, TOPIC)
    if topic_end - topic > MAX_TOPIC_BYTES:
        return faults.TOPIC_LONG, topic
    attributes, attributes_end = span_at(spans, row, ATTRIBUTES)
    if attributes_end - attributes > MAX_ATTRIBUTE_BYTES:
        return faults.ATTRIBUTES_LONG, attributes
    headers, headers_end = span_at(spans, row, HEADERS)
    if headers_end - headers > MAX_HEADER_BYTES:
        return faults.HEADERS_LONG, headers
    body, body_end = span_at(spans, row, BODY)
    if body_end - body > MAX_BODY_BYTES:
        return faults.BODY_LONG, body
    fault, offset = check_topic(buffer, topic, topic_end)
    if fault:
        return fault, offset
    fault, offset, count = check_entries(buffer, attributes, attributes_end)
    if fault:
        return fault, offset
    return check_lines(buffer, headers, headers_end, count)


@device
def _check_metadata(buffer: Bytes, start: int, end: int) -> tuple[int, int]:
    if end - start > MAX_METADATA_BYTES:
        return faults.METADATA_LONG, start
    fault, offset, _ = check_entries(buffer, start, end)
    return fault, offset


@kernel(f"UniTuple(int64, 3)({BUFFER}, int64, int32[::1], int32[:, ::1])")
def decode_messages(buffer: Bytes, start: int, lengths: Lengths, spans: Spans) -> tuple[int, int, int]:
    """Read consecutive messages, the first at `start`, into the rows of `spans`: (fault, row, offset)."""
    at = start
    for row in range(len(lengths)):
        length = int(np.int64(lengths[row]))
        fault, offset = _set_spans(buffer, at, length, spans, row)
        if fault:
            return fault, row, offset
        fault, offset = _check_row(buffer, spans, row)
        if fault:
            return fault, row, offset
        at += length
    return faults.FINE, 0, 0


@kernel(f"UniTuple(int64, 3)({BUFFER}, int64, int32[::1], int32[:, ::1])")
def set_metadata(buffer: Bytes, start: int, lengths: Lengths, spans: Spans) -> tuple[int, int, int]:
    """Set the spans of consecutive metadata blocks, the first at `start`: (fault, row, offset)."""
    at = start
    for row in range(len(lengths)):
        end = at + int(lengths[row])
        if end < at or end > len(buffer):
            return faults.BEYOND_BUFFER, row, at
        fault, offset = _check_metadata(buffer, at, end)
        if fault:
            return fault, row, offset
        spans[row, METADATA], spans[row, METADATA + 1] = at, end
        at = end
    return faults.FINE, 0, 0


@kernel(f"UniTuple(int64, 3)({BUFFER}, int32[:, ::1])")
def check_rows(buffer: Bytes, spans: Spans) -> tuple[int, int, int]:
    """Check rows whose spans another module has set: (fault, row, offset)."""
    for row in range(len(spans)):
        for column in range(0, SPAN_COLUMNS, 2):
            start, end = span_at(spans, row, column)
            if start < 0 or end < start or end > len(buffer):
                return faults.SPAN_RANGE, row, start
        fault, offset = _check_row(buffer, spans, row)
        if fault:
            return fault, row, offset
        start, end = span_at(spans, row, METADATA)
        fault, offset = _check_metadata(buffer, start, end)
        if fault:
            return fault, row, offset
    return faults.FINE, 0, 0
