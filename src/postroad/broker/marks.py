"""Header lines that a broker adds to a MESSAGE to say what it cannot promise about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch
from postroad.messages.columns import HEADERS
from postroad.messages.limits import MAX_HEADER_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.store import Taken

    Rows = NDArray[np.int64]

__all__ = ["LATE", "MAYBE_TWICE", "REDELIVERED", "have_room", "marked", "with_redelivery_marks"]

# This broker may have delivered the message before, but too long ago to remember.
MAYBE_TWICE = b"postroad-duplicate:maybe\n"
# This broker has delivered a later message of the same publisher before.
LATE = b"postroad-order:late\n"
# A durable subscription or a consumer was, or may have been, sent the message before, and did not acknowledge it.
# ActiveMQ and RabbitMQ use this header.
REDELIVERED = b"redelivered:true\n"
# How often a message was delivered, including this time, if that is known; the name is from JMS.
DELIVERY_COUNT = b"JMSXDeliveryCount:%d\n"


def have_room(batch: Batch, rows: Rows, line: bytes) -> NDArray[np.bool_]:
    """Return bool[rows]: whether the header lines of a row leave room for one more."""
    size = batch.spans[rows, HEADERS + 1] - batch.spans[rows, HEADERS]
    return np.asarray(size <= MAX_HEADER_BYTES - len(line))


def marked(batch: Batch, rows: Rows, line: bytes) -> Batch:
    """Return the batch with one more header line in these rows, before all others: the first line counts."""
    if not len(rows):
        return batch
    spans = batch.spans.copy()
    first = batch.spans[rows, HEADERS].astype(np.int64)
    sizes = batch.spans[rows, HEADERS + 1] - first
    # Each row's new line, then its own header lines, appended after all others.
    totals = sizes + len(line)
    ends = np.cumsum(totals)
    starts = ends - totals
    added = np.empty(int(ends[-1]), np.uint8)
    added[(starts[:, None] + np.arange(len(line))).reshape(-1)] = np.tile(np.frombuffer(line, np.uint8), len(rows))
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    added[np.repeat(starts + len(line), sizes) + within] = batch.buffer[np.repeat(first, sizes) + within]
    base = len(batch.buffer)
    spans[rows, HEADERS], spans[rows, HEADERS + 1] = base + starts, base + ends
    made = Batch(np.concatenate([batch.buffer, added]), spans, batch.ids, batch.envelopes)
    made.run = batch.run
    return made


def with_redelivery_marks(taken: Taken) -> Batch:
    """Return the batch of stored rows, with the marks of rows that are redelivered or come from another queue."""
    batch, rows = taken.batch, taken.rows
    lines: list[tuple[bytes, Rows]] = []
    if taken.tried is not None and taken.tried.any():
        lines.append((REDELIVERED, rows[taken.tried]))
    if taken.tries is not None:
        counts = np.unique(taken.tries[taken.tries > 0]).tolist()
        lines += [(DELIVERY_COUNT % (count + 1), rows[taken.tries == count]) for count in counts]
    lines += [(text, rows[at]) for text, at in taken.notes or () if len(at)]
    for line, chosen in lines:
        batch = marked(batch, chosen[have_room(batch, chosen, line)], line)
    return batch
