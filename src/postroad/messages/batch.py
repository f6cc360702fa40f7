"""`Batch`: many messages as one buffer and a few integer columns.

A batch is the unit of work. There is no object per message: message i is row i of each column. Text and bytes stay in
the buffer in which they arrived; a *span* is a pair of offsets into it. Kernels take the four arrays as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.errors import LimitError
from postroad.messages.columns import (
    ATTRIBUTES,
    BODY,
    EXPIRY,
    FLAGS,
    HEADERS,
    HOP_LIMIT,
    METADATA,
    PRIORITY,
    SOURCE,
    TOPIC,
    Bytes,
)
from postroad.messages.drafts import pack
from postroad.messages.errors import MessageError
from postroad.messages.limits import MAX_BATCH_BYTES
from postroad.messages.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from postroad.messages.columns import Envelopes, Ids, Spans
    from postroad.messages.drafts import Draft

__all__ = [
    "ATTRIBUTES",
    "BODY",
    "EXPIRY",
    "FLAGS",
    "HEADERS",
    "HOP_LIMIT",
    "METADATA",
    "PRIORITY",
    "SOURCE",
    "TOPIC",
    "Batch",
    "Bytes",
]


class Batch:
    """Rows of messages over one buffer.

    Attributes:
        buffer: uint8[:], contiguous; every span points into it. It may be read-only, so kernels
            declare it as `columns.BUFFER`.
        spans: int32[n, 10]; topic, typed attributes, header lines, body and metadata, as (start, end) pairs.
        ids: uint64[n, 2]; (publisher << 32 | broker, time << 16 | counter): the big-endian halves of the id.
        envelopes: int64[n, 5]; source broker, hop limit, flags, priority, expiry (Unix ms, 0 = never). Rows whose
            topic has the same span all have the flag `QUEUED`, or none has: a renderer reads it once for them.
        run: head and tail of the first id if the ids are known to be consecutive, else None. With it, recorders need
            not look at each id.
    """

    __slots__ = ("buffer", "envelopes", "ids", "run", "spans")

    def __init__(self, buffer: Bytes, spans: Spans, ids: Ids, envelopes: Envelopes) -> None:
        self.buffer = buffer
        self.spans = spans
        self.ids = ids
        self.envelopes = envelopes
        self.run: tuple[int, int] | None = None

    @classmethod
    def build(cls, rows: Iterable[Draft | tuple[Any, ...]]) -> Batch:
        """Build a batch from drafts; a tuple has the first fields of one: `Batch.build([("a.b", {"price": 7})])`."""
        return cls(*pack(rows))

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """Join the rows of all batches, in order. The buffer is copied unless all batches share one."""
        filled = [batch for batch in batches if len(batch)]
        if not filled:
            return cls.build(())
        first = filled[0].buffer
        if all(batch.buffer is first for batch in filled):
            buffer, spans = first, np.concatenate([batch.spans for batch in filled])
        else:
            buffer, spans = _joined(filled)
        ids = np.concatenate([batch.ids for batch in filled])
        return cls(buffer, spans, ids, np.concatenate([batch.envelopes for batch in filled]))

    def take(self, rows: ArrayLike) -> Batch:
        """Return the given rows, in the given order, over the same buffer. A boolean mask selects as in numpy."""
        chosen = np.asarray(rows)
        if chosen.ndim != 1:
            raise MessageError(f"rows are a list or a mask, not an array of shape {chosen.shape}")
        if chosen.size == 0:
            chosen = chosen.astype(np.intp)
        return Batch(self.buffer, self.spans[chosen], self.ids[chosen], self.envelopes[chosen])

    def message(self, row: int) -> Message:
        """Return a view of one row; negative rows count from the end."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a batch of {len(self)}")
        return Message(self, row % len(self))

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Message]:
        return (Message(self, row) for row in range(len(self)))

    def __repr__(self) -> str:
        return f"<Batch of {len(self):,} messages over {len(self.buffer):,} bytes>"


def _joined(batches: Sequence[Batch]) -> tuple[Bytes, Spans]:
    sizes = [len(batch.buffer) for batch in batches]
    if sum(sizes) > MAX_BATCH_BYTES:
        raise LimitError("a batch", sum(sizes), MAX_BATCH_BYTES, "bytes; keep them apart")
    starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64).astype(np.int32)
    spans = np.concatenate([batch.spans + start for batch, start in zip(batches, starts, strict=True)])
    return np.concatenate([batch.buffer for batch in batches]), spans
