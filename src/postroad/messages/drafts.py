"""`Draft`: one message as Python values, and how drafts become the columns of a batch.

For clients, tests and benchmarks. Messages from a network become a batch without a draft.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.errors import LimitError
from postroad.messages.attributes import attribute_block
from postroad.messages.columns import ENVELOPE_COLUMNS, KNOWN_FLAGS, SPAN_COLUMNS
from postroad.messages.errors import MessageError
from postroad.messages.headers import header_block
from postroad.messages.identity import MessageId
from postroad.messages.limits import (
    DEFAULT_HOP_LIMIT,
    DEFAULT_PRIORITY,
    MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES,
    MAX_BATCH_BYTES,
    MAX_BODY_BYTES,
    MAX_METADATA_BYTES,
)
from postroad.messages.topics import topic_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.messages.columns import Bytes, Envelopes, Ids, Spans
    from postroad.messages.values import Value

__all__ = ["Draft", "pack"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NO_ID = MessageId(0, 0, 0, 0)

# (field, largest value that its bytes in the envelope can hold). Times are signed 64-bit in a batch.
_RANGES = (
    ("source", 2**32 - 1),
    ("hop_limit", 255),
    ("flags", KNOWN_FLAGS),
    ("priority", 255),
    ("expiry", 2**63 - 1),
)


class Draft(NamedTuple):
    """One message as Python values; only the topic is required."""

    topic: str
    attributes: Mapping[str, Value] = _NOTHING
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = _NOTHING
    body: bytes = b""
    id: MessageId = _NO_ID
    source: int = 0
    hop_limit: int = DEFAULT_HOP_LIMIT
    flags: int = 0
    priority: int = DEFAULT_PRIORITY
    expiry: int = 0
    metadata: Mapping[str, Value] = _NOTHING


def parts_of(draft: Draft) -> tuple[bytes, bytes, bytes, bytes]:
    """Return topic, attribute block, header lines and body of a draft, checked."""
    topic = topic_bytes(draft.topic)
    attributes = attribute_block(draft.attributes, MAX_ATTRIBUTE_BYTES) if draft.attributes else b""
    headers, lines = header_block(draft.headers) if draft.headers else (b"", 0)
    if len(draft.attributes) + lines > MAX_ATTRIBUTES:
        raise LimitError("the number of attributes", len(draft.attributes) + lines, MAX_ATTRIBUTES)
    body = draft.body
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise MessageError(f"a body is bytes, not {type(body).__name__}; encode text first")
    body = bytes(body)
    if len(body) > MAX_BODY_BYTES:
        raise LimitError("the body", len(body), MAX_BODY_BYTES, "bytes; send it in parts")
    return topic, attributes, headers, body


def pack(rows: Iterable[Draft | tuple[Any, ...]]) -> tuple[Bytes, Spans, Ids, Envelopes]:
    """Return the columns of a batch of these drafts; a tuple has the first fields of a `Draft`."""
    parts: list[bytes] = []
    bounds: list[int] = []
    ids: list[int] = []
    envelopes: list[int] = []
    position = 0
    for row in rows:
        draft = row if isinstance(row, Draft) else _draft(row)
        metadata = attribute_block(draft.metadata, MAX_METADATA_BYTES) if draft.metadata else b""
        for part in (*parts_of(draft), metadata):
            parts.append(part)
            bounds += (position, position + len(part))
            position += len(part)
        if not isinstance(draft.id, MessageId):
            raise MessageError(f"an id is a MessageId, not {type(draft.id).__name__}")
        ids += (draft.id.head, draft.id.tail)
        envelopes += _envelope(draft)
        if position > MAX_BATCH_BYTES:
            raise LimitError("a batch", position, MAX_BATCH_BYTES, "bytes; make several batches")
    # A bytearray, so that the array over it is writable and kernels of any signature take it.
    buffer = np.frombuffer(bytearray(b"").join(parts), dtype=np.uint8)
    return (
        buffer,
        np.array(bounds, dtype=np.int32).reshape(-1, SPAN_COLUMNS),
        np.array(ids, dtype=np.uint64).reshape(-1, 2),
        np.array(envelopes, dtype=np.int64).reshape(-1, ENVELOPE_COLUMNS),
    )


def _draft(row: tuple[Any, ...]) -> Draft:
    if not isinstance(row, tuple) or not 1 <= len(row) <= len(Draft._fields):
        raise MessageError(f"a row is a Draft or a tuple of its first fields, {Draft._fields}; not {row!r:.80}")
    return Draft(*row)


def _envelope(draft: Draft) -> tuple[int, ...]:
    values = (draft.source, draft.hop_limit, draft.flags, draft.priority, draft.expiry)
    for value, (field, largest) in zip(values, _RANGES, strict=True):
        if not isinstance(value, int) or not 0 <= value <= largest:
            raise MessageError(f"{field} is an integer between 0 and {largest:,}, not {value!r}")
    return values
