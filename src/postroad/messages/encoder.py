"""Encodes messages. The encoded message travels unchanged through the network.

A kernel measures first, so that the output is allocated once. It checks each span against the buffer and its limit;
the kernel that copies then needs no checks: it reads the same spans, and writes as many bytes as were measured.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.kernels import device, kernel
from postroad.messages import faults
from postroad.messages.columns import BODY, BUFFER, METADATA, TOPIC
from postroad.messages.drafts import Draft, parts_of
from postroad.messages.errors import MessageError
from postroad.messages.fields import span_at
from postroad.messages.limits import MAX_BATCH_BYTES
from postroad.messages.message_prefix import PREFIX_BYTES, SPAN_LIMITS, VERSION, copy_part, put_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.messages.batch import Batch
    from postroad.messages.columns import Bytes, Lengths, Spans
    from postroad.messages.values import Value

__all__ = ["encode", "encode_batch", "encode_metadata"]

_PREFIX = struct.Struct("<BBHIII")

_PARTS = ("topic", "attribute block", "header lines", "body", "metadata")


def encode(
    topic: str,
    attributes: Mapping[str, Value] | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes = b"",
) -> bytes:
    """Encode one message."""
    parts = parts_of(Draft(topic, attributes or {}, headers, body))
    return _PREFIX.pack(VERSION, 0, *map(len, parts)) + b"".join(parts)


def encode_batch(batch: Batch) -> tuple[Bytes, Lengths]:
    """Return the encoded messages of a batch, one after the other, and the length of each.

    The spans may point anywhere in the buffer, for example into a socket read. Their sizes are checked, their contents
    are not: use `check_batch` for what came from outside.
    """
    lengths = np.empty(len(batch), dtype=np.int32)
    total = _checked(batch, _measure_messages(batch.spans, len(batch.buffer), lengths))
    encoded = np.empty(total, dtype=np.uint8)
    _gather_messages(batch.buffer, batch.spans, encoded)
    return encoded, lengths


def encode_metadata(batch: Batch) -> tuple[Bytes, Lengths]:
    """Return the metadata blocks of a batch, one after the other, and the length of each."""
    lengths = np.empty(len(batch), dtype=np.int32)
    total = _checked(batch, _measure_metadata(batch.spans, len(batch.buffer), lengths))
    blocks = np.empty(total, dtype=np.uint8)
    _gather_metadata(batch.buffer, batch.spans, blocks)
    return blocks, lengths


def _checked(batch: Batch, measured: tuple[int, int, int]) -> int:
    """Return the total size, or raise the error for what a measuring kernel returned.

    `measured` is (fault, row, column of the span), or without a fault (FINE, 0, total size).
    """
    fault, row, total = measured
    if fault == faults.FINE:
        if total > MAX_BATCH_BYTES:
            raise LimitError("the encoded batch", total, MAX_BATCH_BYTES, "bytes; encode fewer rows at a time")
        return total
    start, end = batch.spans[row, total : total + 2].tolist()
    if fault == faults.SPAN_RANGE:
        raise MessageError(f"row {row}: the span {start}..{end} does not lie in a buffer of {len(batch.buffer)} bytes")
    raise LimitError(f"row {row}: the {_PARTS[total // 2]}", end - start, int(SPAN_LIMITS[total // 2]), "bytes")


@device
def _measure(spans: Spans, size: int, row: int, column: int) -> tuple[int, int]:
    """Return (fault, length) of one span of a buffer of `size` bytes."""
    start, end = span_at(spans, row, column)
    if start < 0 or end < start or end > size:
        return faults.SPAN_RANGE, 0
    if end - start > SPAN_LIMITS[column // 2]:
        return faults.BODY_LONG, 0
    return faults.FINE, end - start


@kernel("UniTuple(int64, 3)(int32[:, ::1], int64, int32[::1])")
def _measure_messages(spans: Spans, size: int, lengths: Lengths) -> tuple[int, int, int]:
    total = 0
    for row in range(len(spans)):
        length = PREFIX_BYTES
        for column in range(TOPIC, BODY + 2, 2):
            fault, part = _measure(spans, size, row, column)
            if fault:
                return fault, row, column
            length += part
        lengths[row] = length
        total += length
    return faults.FINE, 0, total


@kernel("UniTuple(int64, 3)(int32[:, ::1], int64, int32[::1])")
def _measure_metadata(spans: Spans, size: int, lengths: Lengths) -> tuple[int, int, int]:
    total = 0
    for row in range(len(spans)):
        fault, length = _measure(spans, size, row, METADATA)
        if fault:
            return fault, row, METADATA
        lengths[row] = length
        total += length
    return faults.FINE, 0, total


@kernel(f"void({BUFFER}, int32[:, ::1], uint8[::1])")
def _gather_messages(buffer: Bytes, spans: Spans, out: Bytes) -> None:
    at = 0
    for row in range(len(spans)):
        for part in range(4):
            start, end = span_at(spans, row, 2 * part)
            put_length(out, at, part, end - start)
        at += PREFIX_BYTES
        for column in range(TOPIC, BODY + 2, 2):
            start, end = span_at(spans, row, column)
            at = copy_part(buffer, start, end, out, at)


@kernel(f"void({BUFFER}, int32[:, ::1], uint8[::1])")
def _gather_metadata(buffer: Bytes, spans: Spans, out: Bytes) -> None:
    at = 0
    for row in range(len(spans)):
        start, end = span_at(spans, row, METADATA)
        at = copy_part(buffer, start, end, out, at)
