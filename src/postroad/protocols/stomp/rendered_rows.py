"""Renders rows of a batch as MESSAGE and RECEIPT frames.

A message for ten subscriptions is rendered once and copied ten times: `render_rows` writes the part that they share,
and `Rendered.for_subscription` copies it after each subscription's own beginning. For a single subscription,
`render_messages` writes both in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import PostroadError
from postroad.messages.columns import ATTRIBUTES
from postroad.messages.fields import ID_TEXT_BYTES
from postroad.messages.headers import escape
from postroad.protocols.stomp.ack_header import ACK_TEXT_BYTES
from postroad.protocols.stomp.frame_kernels import (
    measure_common,
    measure_receipts,
    measure_rows,
    put_common,
    put_receipts,
    put_rows,
)
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from postroad.messages import Batch, Message, Value
    from postroad.messages.columns import Bytes
    from postroad.protocols.stomp.columns import Columns, Numbers

__all__ = ["Rendered", "render_messages", "render_receipts", "render_rows"]

_ACK_LINE_BYTES = len("ack:") + ACK_TEXT_BYTES + len("\n")
_LARGEST_NUMBER = 2**32 - 1

# A MESSAGE has these headers anyway; an attribute of the same name is left out.
_OWN = {"subscription", "message-id", "destination", "ack", "content-length"}

_ID_END = len("message-id:") + ID_TEXT_BYTES
_FIRST: Numbers = np.zeros(1, dtype=np.int64)

_INT64 = np.dtype(np.int64)
_NO_BLOCKS: Bytes = np.empty(0, dtype=np.uint8)
_NO_SPANS: Numbers = np.empty((0, 2), dtype=np.int64)
_NO_PLACES = _NO_SPANS


class Rendered:
    """The shared parts of MESSAGE frames, for all subscriptions of one version.

    Attributes:
        buffer: uint8[:]; the shared parts, one after the other.
        places: int64[n, 2]; for each row of the batch, start and end of its part in `buffer`; -1 if not rendered.
        version: of STOMP.
    """

    __slots__ = ("buffer", "places", "version")

    def __init__(self, buffer: Bytes, places: Numbers, version: Version) -> None:
        self.buffer = buffer
        self.places = places
        self.version = version

    def for_subscription(self, prefix: bytes, rows: ArrayLike, number: int | None = None) -> Bytes:
        """Return the MESSAGE frames of these rows for one subscription, in one array; write its `.data` to a socket.

        Args:
            prefix: from `message_prefix`.
            rows: row numbers of the batch, all of them rendered.
            number: the subscription's number, for an `ack` header; None for none, as in mode `auto`.

        Raises:
            PostroadError: a row was not rendered, or the number does not fit in 32 bits.
        """
        chosen = _row_numbers(rows)
        number = _checked_number(number)
        total, place = measure_rows(self.places, chosen)
        if total < 0:
            raise PostroadError(f"row {chosen[place]} was not rendered; name it in render_rows first")
        out = np.empty(total + _own_bytes(prefix, number) * len(chosen), dtype=np.uint8)
        put_rows(self.buffer, self.places, chosen, np.frombuffer(prefix, dtype=np.uint8), number, out)
        return out

    def parts(self, prefix: bytes, rows: ArrayLike, number: int | None = None) -> Iterator[tuple[Bytes, Bytes]]:
        """Yield the same frame by frame, as what only the subscription gets and a view of what is shared.

        Raises:
            PostroadError: as `for_subscription`.
        """
        own = _own_bytes(prefix, _checked_number(number))
        for row in _row_numbers(rows).tolist():
            frame_head = self._head(prefix, row, number, own)
            start, end = self.places[row].tolist()
            yield frame_head, self.buffer[start:end]

    def _head(self, prefix: bytes, row: int, number: int | None, size: int) -> Bytes:
        """Return the beginning of one frame, without a copy of the rest."""
        places = self.places[row : row + 1].copy()
        if not len(places) or places[0, 0] < 0:
            raise PostroadError(f"row {row} was not rendered; name it in render_rows first")
        out = np.empty(size + _ID_END, dtype=np.uint8)
        # The shared part begins with the id, which the `ack` header repeats: as much of it is written, and cut off.
        places[0, 1] = places[0, 0] + _ID_END
        put_rows(self.buffer, places, _FIRST, np.frombuffer(prefix, dtype=np.uint8), _checked_number(number), out)
        return out[:size]


def _checked_number(number: int | None) -> int:
    """Return a subscription's number for kernels: -1 for none."""
    if number is None:
        return -1
    if not 0 <= number <= _LARGEST_NUMBER:
        raise PostroadError(f"a subscription's number is between 0 and {_LARGEST_NUMBER:,}, not {number:,}")
    return number


def _own_bytes(prefix: bytes, number: int) -> int:
    """Return the bytes of a MESSAGE that only its subscription gets."""
    return len(prefix) + (0 if number < 0 else _ACK_LINE_BYTES)


def render_rows(batch: Batch, rows: ArrayLike, version: Version = Version.V1_2) -> Rendered:
    """Render the shared part of these rows: from the message id to the end of the body.

    Raises:
        PostroadError: a row is not in the batch.
    """
    places = np.empty((len(batch), 2), dtype=np.int64)
    return Rendered(_put(batch, _row_numbers(rows), version, b"", -1, places), places, version)


def render_messages(batch: Batch, rows: ArrayLike, version: Version, prefix: bytes, number: int | None = None) -> Bytes:
    """Return the MESSAGE frames of these rows for a single subscription, written in one pass.

    Args:
        batch: the batch.
        rows: row numbers.
        version: the version of STOMP to write in.
        prefix, number: as for `Rendered.for_subscription`.

    Raises:
        PostroadError: a row is not in the batch, or the number does not fit in 32 bits.
    """
    own = -1 if number is None else _checked_number(number)
    return _put(batch, _row_numbers(rows), version, prefix, own, _NO_PLACES)


def _put(batch: Batch, rows: Numbers, version: Version, prefix: bytes, number: int, places: Numbers) -> Bytes:
    total, typed = measure_common(batch.spans, rows)
    if total < 0:
        raise PostroadError(f"row {rows[typed]} is not in a batch of {len(batch)}")
    blocks, block_spans = _typed_blocks(batch, rows) if typed else (_NO_BLOCKS, _NO_SPANS)
    out = np.empty(total + len(blocks) + _own_bytes(prefix, number) * len(rows), dtype=np.uint8)
    head = np.frombuffer(prefix, dtype=np.uint8)
    filled = put_common(
        batch.buffer,
        batch.spans,
        batch.ids,
        batch.envelopes,
        rows,
        int(version),
        blocks,
        block_spans,
        head,
        number,
        out,
        places,
    )
    return out[:filled]


def render_receipts(batch: Batch, receipts: Columns, rows: ArrayLike) -> Bytes:
    """Return the RECEIPT frames of the rows that ask for one, with the ids of their messages.

    Args:
        batch: the batch of a `Received`, with its ids set.
        receipts: the receipts of the same `Received`.
        rows: the rows to confirm, in order.
    """
    chosen = _row_numbers(rows)
    total = measure_receipts(receipts, chosen)
    if total < 0:
        raise PostroadError(f"a row is not in a batch of {len(receipts)}")
    out = np.empty(total, dtype=np.uint8)
    put_receipts(batch.buffer, receipts, batch.ids, chosen, out)
    return out


def _row_numbers(rows: ArrayLike) -> Numbers:
    if isinstance(rows, np.ndarray) and rows.dtype == _INT64 and rows.ndim == 1 and rows.flags.c_contiguous:
        return rows
    array = np.asarray(rows)
    # A mask would be read as rows 0 and 1.
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise PostroadError(f"rows are a list of row numbers, not {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _typed_blocks(batch: Batch, rows: Numbers) -> tuple[Bytes, Numbers]:
    """Return header lines for rows with typed attributes, and start and end of the lines of each row.

    Messages from STOMP clients have no typed attributes, so this is for messages of other sources.
    """
    spans = np.full((len(rows), 2), -1, dtype=np.int64)
    blocks = bytearray()
    lengths = batch.spans[rows, ATTRIBUTES + 1] - batch.spans[rows, ATTRIBUTES]
    for place in np.flatnonzero(lengths).tolist():
        spans[place, 0] = len(blocks)
        blocks += _lines(batch.message(int(rows[place])))
        spans[place, 1] = len(blocks)
    return np.frombuffer(bytes(blocks), dtype=np.uint8), spans


def _lines(message: Message) -> bytes:
    """Return all attributes of a message as header lines of 1.2; the first of each name."""
    lines = []
    for name, value in message.attributes.items():
        text = _text(value)
        if text is not None and name not in _OWN and "\0" not in name + text:
            lines.append(f"{escape(name)}:{escape(text)}\n")
    return "".join(lines).encode()


def _text(value: Value) -> str | None:
    """Return a value as the literal of a selector; None for bytes, which have no literal."""
    if isinstance(value, bytes):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else str(value)
