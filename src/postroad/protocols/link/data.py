"""Encodes and decodes DATA frames: rows of a batch, and the brokers they are for, as columns.

Decoding does not copy messages: the batch of a frame refers to the bytes of the frame.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from postroad.errors import LimitError, PostroadError
from postroad.messages import decode_batch, decode_envelopes, encode_batch, encode_envelopes, encode_metadata
from postroad.messages.envelope import ENVELOPE_BYTES
from postroad.protocols.link.data_kernels import LINE_OUTSIDE, measure_rows, read_columns, write_rows
from postroad.protocols.link.errors import LinkError
from postroad.protocols.link.frames import DATA, HEADER_BYTES, LARGEST_COUNT, header
from postroad.protocols.link.limits import MAX_ROWS_PER_FRAME, MAX_WORDS_PER_SET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.messages.columns import Bytes

    Sets: TypeAlias = NDArray[np.uint64]
    Lines: TypeAlias = NDArray[np.int64]

__all__ = [
    "DATA_HEAD_BYTES",
    "ROW_BYTES",
    "Data",
    "check_destinations",
    "decode_data",
    "encode_checked",
    "encode_data",
    "row_sizes",
]

# Frame number, membership epoch, rows, sets, words per set, reserved.
_HEAD = struct.Struct("<QQIIII")
DATA_HEAD_BYTES = HEADER_BYTES + _HEAD.size
_LINE_BYTES, _LENGTH_BYTES = 2, 4
# Bytes of a row besides its message and its metadata: its line, its envelope, its length.
ROW_BYTES = _LINE_BYTES + ENVELOPE_BYTES + _LENGTH_BYTES


class Data(NamedTuple):
    """A DATA frame.

    Attributes:
        number: of the frame, counted from one sender to one neighbour.
        epoch: the membership epoch of the destination sets.
        batch: the rows.
        sets: uint64[distinct, words]; bit n is broker n.
        lines: int64[rows]; the line of each row in `sets`.
        mark: an object that the sender keeps with the frame and returns with it; it is not encoded.
    """

    number: int
    epoch: int
    batch: Batch
    sets: Sets
    lines: Lines
    mark: object = None


def encode_data(batch: Batch, rows: Lines, sets: Sets, lines: Lines, epoch: int, number: int) -> memoryview:
    """Encode rows of a batch as one frame.

    Args:
        batch: where the rows are.
        rows: which rows, in their order in the frame.
        sets: uint64[distinct, words].
        lines: for each of `rows`, its line in `sets`.
        epoch: the membership epoch.
        number: of the frame.

    Raises:
        LimitError: the frame would be too large, or have too many rows.
        LinkError: a row is not in the batch, or the destinations do not fit.
        MessageError: a row is not a valid message.
    """
    if not 1 <= len(rows) <= MAX_ROWS_PER_FRAME:
        raise LimitError("the rows of a DATA frame", len(rows), MAX_ROWS_PER_FRAME, "and 1 at least; cut the batch")
    check_destinations(len(rows), sets, lines)
    return encode_checked(batch, rows, sets, lines, epoch, number, row_sizes(batch, rows))


def encode_checked(
    batch: Batch, rows: Lines, sets: Sets, lines: Lines, epoch: int, number: int, sizes: Lines
) -> memoryview:
    """Encode as `encode_data` does, for rows and destinations that are checked; `row_sizes` gave the sizes."""
    count = len(rows)
    if len(sets) > count:
        sets, lines = sets[lines], np.arange(count)
    lines_at = DATA_HEAD_BYTES + sets.size * 8
    length = lines_at + count * ROW_BYTES + int(sizes.sum())
    head = header(DATA, length) + _HEAD.pack(number, epoch, count, len(sets), sets.shape[1], 0)
    frame = np.empty(length, np.uint8)
    whole = frame.data
    whole[:DATA_HEAD_BYTES] = head
    whole[DATA_HEAD_BYTES:lines_at] = sets.astype("<u8", copy=False).tobytes()
    rows, lines = _row_array(rows), _row_array(lines)
    write_rows(batch.buffer, batch.spans, batch.ids, batch.envelopes, rows, lines, sizes, frame, lines_at)
    return whole


def row_sizes(batch: Batch, rows: Lines) -> Lines:
    """Return the bytes of message and metadata of each row in a frame; the columns take `ROW_BYTES` more.

    Raises:
        LinkError: a row is not in the batch.
        PostroadError: a row is not a valid message.
    """
    sizes = np.empty(len(rows), np.int64)
    bad = measure_rows(batch.spans, batch.envelopes, len(batch.buffer), _row_array(rows), sizes)
    if bad >= 0:
        raise _refusal(batch, int(rows[bad]))
    return sizes


def _row_array(rows: Lines) -> Lines:
    return np.ascontiguousarray(rows, np.int64)


def _refusal(batch: Batch, row: int) -> PostroadError:
    """Return why a row cannot be sent, in the words of the encoders of messages."""
    if not 0 <= row < len(batch):
        return LinkError(f"row {row} of a batch of {len(batch)} cannot be sent")
    one = batch.take([row])
    try:
        encode_batch(one)
        encode_metadata(one)
        encode_envelopes(one)
    except PostroadError as error:
        return error
    return LinkError(f"row {row} cannot be sent")


def check_destinations(count: int, sets: Sets, lines: Lines) -> None:
    """Check the destinations of `count` rows; no rows need no destinations.

    Raises:
        LinkError: their number is not that of the rows, or a line is not in `sets`.
    """
    if sets.ndim != 2 or not 1 <= sets.shape[1] <= MAX_WORDS_PER_SET or len(lines) != count:
        raise LinkError(f"destinations: {len(lines)} lines into sets of shape {sets.shape} for {count} rows")
    if count and (int(lines.min()) < 0 or int(lines.max()) >= len(sets)):
        raise LinkError(f"destinations: the line of a row is outside the {len(sets)} sets")


def decode_data(frame: bytes | bytearray | memoryview) -> Data:
    """Decode a whole frame, header included. The batch refers to the bytes, which must not change while it lives.

    Raises:
        LinkError: the frame is not as the format requires; the text names the fault.
    """
    size = len(frame)
    if size < DATA_HEAD_BYTES:
        raise LinkError(f"DATA: {size} bytes are too few for its head")
    number, epoch, count, distinct, words, zero = _HEAD.unpack_from(frame, HEADER_BYTES)
    if zero:
        raise LinkError("DATA: a reserved byte is not 0")
    if not 1 <= number <= LARGEST_COUNT or epoch > LARGEST_COUNT:
        raise LinkError(f"DATA: frame number {number} or membership epoch {epoch} is out of range")
    if not 1 <= count <= MAX_ROWS_PER_FRAME:
        raise LinkError(f"DATA {number}: {count:,} rows; 1 to {MAX_ROWS_PER_FRAME:,} are allowed")
    if not 1 <= distinct <= count or not 1 <= words <= MAX_WORDS_PER_SET:
        raise LinkError(
            f"DATA {number}: {distinct:,} sets of {words:,} words for {count:,} rows; there are 1 to as many sets as "
            f"rows, of 1 to {MAX_WORDS_PER_SET:,} words"
        )
    lines_at = DATA_HEAD_BYTES + distinct * words * 8
    if size < lines_at + count * ROW_BYTES:
        raise LinkError(f"DATA {number}: {size:,} bytes are too few for {distinct:,} sets and {count:,} rows")
    sets = np.frombuffer(frame, "<u8", distinct * words, DATA_HEAD_BYTES).astype(np.uint64).reshape(distinct, words)
    lines = np.empty(count, np.int64)
    return Data(number, epoch, _rows(np.frombuffer(frame, np.uint8), number, distinct, lines, lines_at), sets, lines)


def _rows(frame: Bytes, number: int, distinct: int, lines: Lines, at: int) -> Batch:
    """Return the batch of a frame whose columns begin at `at`, and fill `lines`."""
    count = len(lines)
    lengths = np.empty(count, np.int32)
    metadata, messages = read_columns(frame, at, distinct, lines, lengths)
    if metadata == LINE_OUTSIDE:
        raise LinkError(f"DATA {number}: the line of row {messages:,} is outside the {distinct:,} sets")
    metadata_at = at + count * ROW_BYTES
    if metadata_at + metadata + messages != len(frame):
        raise LinkError(f"DATA {number}: its lengths do not add up to its {len(frame):,} bytes")
    try:
        ids, envelopes, sizes = decode_envelopes(frame, count, at + count * _LINE_BYTES)
        return decode_batch(
            frame,
            lengths,
            start=metadata_at + metadata,
            ids=ids,
            envelopes=envelopes,
            metadata=(metadata_at, sizes),
        )
    except PostroadError as error:
        raise LinkError(f"DATA {number}: {error}") from None
