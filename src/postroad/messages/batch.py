"""`Batch`: many messages as one buffer and a few integer columns.

The unit of the hot path. Nothing here is an object per message: a row is a line in each column. Text and bytes stay in
the buffer they arrived in; a *span* is a pair of offsets into it. Kernels take the four arrays as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
]

Bytes: TypeAlias = "NDArray[np.uint8]"

# Columns of `Batch.spans`: each span is (start, end) at the named column and the next one.
TOPIC, ATTRIBUTES, HEADERS, BODY, METADATA = 0, 2, 4, 6, 8
SPAN_COLUMNS = 10

# Columns of `Batch.envelopes`.
SOURCE, HOP_LIMIT, FLAGS, PRIORITY, EXPIRY = 0, 1, 2, 3, 4
ENVELOPE_COLUMNS = 5


class Batch:
    """Rows of messages over one buffer.

    Attributes:
        buffer: uint8[:]; every span points into it.
        spans: int32[n, 10]; topic, typed attributes, header lines, body and metadata, as (start, end) pairs.
        ids: uint64[n, 2]; (publisher << 32 | broker, time << 16 | counter): the big-endian halves of the id.
        envelopes: int64[n, 5]; source broker, hop limit, flags, priority, expiry (Unix ms, 0 = never).
    """

    __slots__ = ("buffer", "envelopes", "ids", "spans")

    def __init__(
        self, buffer: Bytes, spans: NDArray[np.int32], ids: NDArray[np.uint64], envelopes: NDArray[np.int64]
    ) -> None:
        self.buffer = buffer
        self.spans = spans
        self.ids = ids
        self.envelopes = envelopes

    def __len__(self) -> int:
        return len(self.spans)
