"""Decodes bytes into a batch: checks everything, copies nothing.

One kernel goes through the messages, checks each against `docs/formats.md`, and sets its spans. It stops at the first
fault; the caller then gets a `DecodeError` and no batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import faults
from postroad.messages.batch import Batch
from postroad.messages.buffers import byte_array, length_array
from postroad.messages.columns import ENVELOPE_COLUMNS, HOP_LIMIT, PRIORITY, SPAN_COLUMNS
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.limits import DEFAULT_HOP_LIMIT, DEFAULT_PRIORITY
from postroad.messages.scanner import check_rows, decode_messages, set_metadata

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from postroad.messages.buffers import Buffer
    from postroad.messages.columns import Bytes, Envelopes, Ids, Spans

__all__ = ["check_batch", "decode_batch"]


def decode_batch(
    buffer: Buffer,
    lengths: ArrayLike,
    *,
    start: int = 0,
    ids: Ids | None = None,
    envelopes: Envelopes | None = None,
    metadata: tuple[int, ArrayLike] | None = None,
) -> Batch:
    """Decode consecutive messages, which begin at `start` in a buffer, into one batch over that buffer.

    Args:
        buffer: the bytes. The batch refers to them, so they must not change while it lives.
        lengths: the length of each encoded message.
        start: where the first one begins.
        ids: the ids, from `decode_envelopes`; all zero when left out.
        envelopes: the envelope columns, from `decode_envelopes`; defaults when left out.
        metadata: where in the buffer the metadata blocks begin, and their lengths; none when left out.

    Raises:
        DecodeError: the first fault, with its row and its offset in the buffer.
    """
    data = byte_array(buffer)
    sizes = length_array(lengths)
    count = len(sizes)
    spans = np.zeros((count, SPAN_COLUMNS), dtype=np.int32)
    if not 0 <= start <= len(data):
        raise DecodeError(f"the messages are said to start at {start}, but the buffer has {len(data)} bytes")
    fault, row, offset = decode_messages(data, start, sizes, spans)
    if fault:
        raise _error(fault, row, offset, data)
    if metadata is not None:
        _place_metadata(data, metadata, spans)
    if ids is None:
        ids = np.zeros((count, 2), dtype=np.uint64)
    if envelopes is None:
        envelopes = np.zeros((count, ENVELOPE_COLUMNS), dtype=np.int64)
        envelopes[:, HOP_LIMIT] = DEFAULT_HOP_LIMIT
        envelopes[:, PRIORITY] = DEFAULT_PRIORITY
    if ids.shape != (count, 2) or envelopes.shape != (count, ENVELOPE_COLUMNS):
        raise MessageError(f"{count} messages need as many ids and envelopes, not {ids.shape} and {envelopes.shape}")
    return Batch(data, spans, ids, envelopes)


def check_batch(batch: Batch) -> None:
    """Check every row of a batch whose spans another module has set, as `decode_batch` does.

    For codecs whose spans point into a socket read. Raises `DecodeError`; the batch is not changed.
    """
    fault, row, offset = check_rows(batch.buffer, batch.spans)
    if fault:
        raise _error(fault, row, offset, batch.buffer)


def _place_metadata(data: Bytes, metadata: tuple[int, ArrayLike], spans: Spans) -> None:
    start, lengths = metadata
    sizes = length_array(lengths)
    if len(sizes) != len(spans):
        raise MessageError(f"{len(spans)} messages need as many metadata lengths, not {len(sizes)}")
    if not 0 <= start <= len(data):
        raise DecodeError(f"the metadata is said to start at {start}, but the buffer has {len(data)} bytes")
    fault, row, offset = set_metadata(data, start, sizes, spans)
    if fault:
        raise _error(fault, row, offset, data)


def _error(fault: int, row: int, offset: int, data: Bytes) -> DecodeError:
    error = faults.decode_error(fault, row, offset)
    if fault in (faults.VERSION, faults.TAG_UNKNOWN, faults.TAG_RESERVED) and 0 <= offset < len(data):
        return DecodeError(f"{error.reason}; found {int(data[offset])}", row, offset)
    return error
