"""The columns of a `Batch`, for kernels and for the modules that fill them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bytes: TypeAlias = "NDArray[np.uint8]"
Spans: TypeAlias = "NDArray[np.int32]"
Ids: TypeAlias = "NDArray[np.uint64]"
Envelopes: TypeAlias = "NDArray[np.int64]"
Lengths: TypeAlias = "NDArray[np.int32]"

# How kernel signatures name a batch's buffer. Bytes that came as `bytes` make a read-only array; a signature of
# `uint8[::1]` refuses those, this one takes both kinds at the same cost.
BUFFER = "Array(uint8, 1, 'C', readonly=True)"

# Columns of `Batch.spans`: each span is (start, end) at the named column and the next one.
TOPIC, ATTRIBUTES, HEADERS, BODY, METADATA = 0, 2, 4, 6, 8
SPAN_COLUMNS = 10

# Columns of `Batch.envelopes`.
SOURCE, HOP_LIMIT, FLAGS, PRIORITY, EXPIRY = 0, 1, 2, 3, 4
ENVELOPE_COLUMNS = 5

# Bits of the FLAGS column.
BROADCAST, MAYBE_DUPLICATE, CUSTODY, OVERTAKING, QUEUED = 1, 2, 4, 8, 16
KNOWN_FLAGS = BROADCAST | MAYBE_DUPLICATE | CUSTODY | OVERTAKING | QUEUED
