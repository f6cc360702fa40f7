"""Header lines that a broker adds to a MESSAGE to say what it cannot promise of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch
from postroad.messages.columns import HEADERS
from postroad.messages.limits import MAX_HEADER_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

__all__ = ["LATE", "MAYBE_TWICE", "REDELIVERED", "have_room", "marked"]

# This broker may have delivered the message before: that would be so long ago that it does not remember.
MAYBE_TWICE = b"postroad-duplicate:maybe\n"
# This broker has handed out a later message of the same publisher before.
LATE = b"postroad-order:late\n"
# A durable subscription was, or may have been, sent the message before, and did not acknowledge it. The header that
# ActiveMQ and RabbitMQ use.
REDELIVERED = b"redelivered:true\n"


def have_room(batch: Batch, rows: Rows, line: bytes) -> NDArray[np.bool_]:
    """bool[rows]: whether the header lines of a row leave room for one more."""
    size = batch.spans[rows, HEADERS + 1] - batch.spans[rows, HEADERS]
    return np.asarray(size <= MAX_HEADER_BYTES - len(line))


def marked(batch: Batch, rows: Rows, line: bytes) -> Batch:
    """The batch with one more header line in these rows, which have room, before all others: the first one counts."""
    pieces, start = [batch.buffer], len(batch.buffer)
    spans = batch.spans.copy()
    for row in rows.tolist():
        first, end = spans[row, HEADERS : HEADERS + 2].tolist()
        pieces += [np.frombuffer(line, np.uint8), batch.buffer[first:end]]
        size = len(line) + end - first
        spans[row, HEADERS : HEADERS + 2] = start, start + size
        start += size
    made = Batch(np.concatenate(pieces), spans, batch.ids, batch.envelopes)
    made.run = batch.run
    return made
