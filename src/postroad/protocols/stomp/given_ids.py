"""Ids that senders gave to their messages, decoded from the `message-id` headers of a batch by one kernel.

An id is written as 32 lowercase hexadecimal digits and three dashes, before digits 8, 16 and 28: two halves of 64 bits,
which become one row of `ids`. A span of `texts` is (start, end) in the buffer, or begins with -1 where a row has no
such header. The decoder of frames made the spans, so they lie in the buffer; only a span of exactly 35 bytes is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, device, kernel
from postroad.messages.columns import BUFFER
from postroad.messages.fields import ID_TEXT_BYTES

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.messages.columns import Bytes, Ids
    from postroad.protocols.stomp.columns import Columns

__all__ = ["given_id_text", "read_ids"]

_ZERO, _NINE, _LETTER_A, _LETTER_F, _DASH = ord("0"), ord("9"), ord("a"), ord("f"), ord("-")

# How much of something that is not an id an error shows.
_SHOWN_BYTES = 60


@device
def _digit(byte: Int) -> Int:
    if _ZERO <= byte <= _NINE:
        return np.int64(byte) - _ZERO
    if _LETTER_A <= byte <= _LETTER_F:
        return np.int64(byte) - _LETTER_A + 10
    return -1


@kernel(f"int64({BUFFER}, int32[:, ::1], uint64[:, ::1])", allocates=False)
def _read(buffer: Bytes, texts: Columns, ids: Ids) -> Int:
    """Set the ids of rows up to the first whose text is not an id; return their number."""
    for row in range(len(texts)):
        at, end = np.int64(texts[row, 0]), np.int64(texts[row, 1])
        if at < 0 or end - at != ID_TEXT_BYTES:
            return row
        head, tail = np.uint64(0), np.uint64(0)
        # `at` moves by 35 bytes at most, digits and dashes, and so never reaches `end`.
        for number in range(32):
            if number in (8, 16, 28):
                if buffer[at] != _DASH:
                    return row
                at += 1
            digit = _digit(buffer[at])
            if digit < 0:
                return row
            if number < 16:
                head = head << np.uint64(4) | np.uint64(digit)
            else:
                tail = tail << np.uint64(4) | np.uint64(digit)
            at += 1
        ids[row, 0], ids[row, 1] = head, tail
    return len(texts)


def read_ids(batch: Batch, message_ids: Columns) -> int:
    """Set the ids of a batch to those that its senders gave, up to the first row without; return the number of rows.

    Args:
        batch: the batch of a `Received`, or some rows of it over the same buffer.
        message_ids: the `message_ids` of the same rows.
    """
    return int(_read(batch.buffer, np.ascontiguousarray(message_ids), batch.ids))


def given_id_text(batch: Batch, message_ids: Columns, row: int) -> str | None:
    """Return the `message-id` header of a row, cut off for an error; None without one."""
    start, end = message_ids[row].tolist()
    if start < 0:
        return None
    return batch.buffer[start : min(end, start + _SHOWN_BYTES)].tobytes().decode("utf-8", "replace")
