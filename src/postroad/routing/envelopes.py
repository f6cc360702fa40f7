"""What a hop changes in the envelopes of a batch. The batch that came in is left as it is: others may hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch
from postroad.messages.columns import BROADCAST, FLAGS, HOP_LIMIT, MAYBE_DUPLICATE, OVERTAKING, SOURCE

if TYPE_CHECKING:
    from postroad.routing.sets import Flags

__all__ = ["arrived", "entering", "may_go_on", "overtaking", "returned_rows", "with_broadcast"]

# Ways that change while a message travels can be longer than any way at one moment; twice round the network is plenty,
# and in a small network a few more do no harm.
_LEAST_HOP_LIMIT = 16


def entering(batch: Batch, number: int, brokers: int) -> Batch:
    """A batch that enters the network at broker `number`, which knows of so many brokers."""
    envelopes = batch.envelopes.copy()
    envelopes[:, SOURCE] = number
    np.minimum(envelopes[:, HOP_LIMIT], max(_LEAST_HOP_LIMIT, 2 * brokers), out=envelopes[:, HOP_LIMIT])
    envelopes[:, FLAGS] &= ~(BROADCAST | MAYBE_DUPLICATE | OVERTAKING)
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def arrived(batch: Batch) -> Batch:
    """A batch after one more hop."""
    envelopes = batch.envelopes.copy()
    envelopes[:, HOP_LIMIT] -= 1
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def returned_rows(batch: Batch) -> Batch:
    """A batch that a link gave back: it may have arrived all the same."""
    envelopes = batch.envelopes.copy()
    envelopes[:, FLAGS] |= MAYBE_DUPLICATE
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def overtaking(batch: Batch) -> Batch:
    """A batch that may come before earlier messages of its publishers, because ways have changed."""
    envelopes = batch.envelopes.copy()
    envelopes[:, FLAGS] |= OVERTAKING
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def with_broadcast(batch: Batch, rows: Flags, value: bool) -> Batch:
    """The batch with the broadcast flag of these rows set or cleared."""
    if not rows.any():
        return batch
    envelopes = batch.envelopes.copy()
    if value:
        envelopes[rows, FLAGS] |= BROADCAST
    else:
        envelopes[rows, FLAGS] &= ~BROADCAST
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def may_go_on(batch: Batch) -> Flags:
    """bool[rows]: the hop limit allows another hop."""
    return np.asarray(batch.envelopes[:, HOP_LIMIT] > 0)
