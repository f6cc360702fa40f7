"""Rows of batches as rows of Parquet.

People read `id`, `time`, `topic`, `attributes` and `body`. What a selector sees is in `envelope` and `encoded`: the
message as it travels (formats.md) without its body, so that it can be matched in bulk as a broker would, types and all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from postroad.messages import Batch, Untyped, encode_batch, encode_envelopes
from postroad.messages.columns import BODY, EXPIRY, METADATA, PRIORITY, TOPIC
from postroad.messages.envelope import ENVELOPE_BYTES
from postroad.messages.id_columns import TIME_SHIFT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages import Value

__all__ = ["ARCHIVE_SCHEMA", "archive_table"]

ARCHIVE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("expires", pa.timestamp("ms", "UTC")),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("envelope", pa.binary(), nullable=False),
        pa.field("encoded", pa.binary(), nullable=False),
    ]
)

_ID_TEXT = 35
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
# Where the 32 digits of an id are in its text; the other places have dashes.
_DIGIT_PLACES = np.array([place for place in range(_ID_TEXT) if place not in (8, 17, 30)])


def archive_table(batch: Batch) -> pa.Table:
    """The rows of a batch."""
    count = len(batch)
    expiry = batch.envelopes[:, EXPIRY]
    bare = _without_bodies(batch)
    encoded, lengths = encode_batch(bare)
    times = (batch.ids[:, 1] >> TIME_SHIFT).astype(np.int64)
    columns = [
        _id_texts(batch),
        pa.array(times, pa.timestamp("ms", "UTC")),
        _texts(pa.string(), *_gathered(batch, TOPIC)),
        _attributes(batch),
        pa.array(batch.envelopes[:, PRIORITY].astype(np.int32)),
        pa.array(expiry, pa.timestamp("ms", "UTC"), mask=expiry == 0),
        _texts(pa.binary(), *_gathered(batch, BODY)),
        _texts(pa.binary(), encode_envelopes(bare), np.full(count, ENVELOPE_BYTES)),
        _texts(pa.binary(), encoded, lengths),
    ]
    return pa.Table.from_arrays(columns, schema=ARCHIVE_SCHEMA)


def _without_bodies(batch: Batch) -> Batch:
    spans = batch.spans.copy()
    spans[:, BODY + 1] = spans[:, BODY]
    spans[:, METADATA : METADATA + 2] = 0
    return Batch(batch.buffer, spans, batch.ids, batch.envelopes)


def _id_texts(batch: Batch) -> pa.Array:
    data = batch.ids.astype(">u8").view(np.uint8).reshape(len(batch), 16)
    text = np.full((len(batch), _ID_TEXT), ord("-"), np.uint8)
    text[:, _DIGIT_PLACES[::2]] = _DIGITS[data >> 4]
    text[:, _DIGIT_PLACES[1::2]] = _DIGITS[data & 15]
    return _texts(pa.string(), text.reshape(-1), np.full(len(batch), _ID_TEXT))


def _gathered(batch: Batch, column: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a span of all rows end to end, and the length of each."""
    starts = batch.spans[:, column].astype(np.int64)
    lengths = batch.spans[:, column + 1] - starts
    offsets = np.cumsum(lengths) - lengths
    places = np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))
    return batch.buffer[places], lengths


def _texts(kind: pa.DataType, data: NDArray[np.uint8], lengths: NDArray[np.integer]) -> pa.Array:
    """An array over bytes that are consecutive. A batch has fewer than 2**31 bytes, so the offsets fit."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        kind, len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _attributes(batch: Batch) -> pa.Array:
    """Attributes as text; types are in `encoded`."""
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for row in range(len(batch)):
        for name, value in batch.message(row).attributes.items():
            names.append(name)
            values.append(_text_of(value))
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


def _text_of(value: Value) -> str:
    if isinstance(value, Untyped | str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)
