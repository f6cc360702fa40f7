"""What a hop changes in the envelopes of a batch. The batch that came in is left as it is: others may hold it.

Every function copies the envelopes, 40 bytes a row, and shares the other arrays. Three flags belong to brokers alone
and say how a copy travels: BROADCAST (to all, without a set), MAYBE_DUPLICATE (sent again after a fault) and OVERTAKING
(sent while routes change). They are cleared where a message enters, so that no client can set them, and after that only
`with_broadcast` takes one back.

The hop limit is what ends a message whose way has become a circle. A broker sends a row only while its limit is above
0, so an honest neighbour's rows arrive with 1 or more; a limit of 0 stays 0, because an envelope has no bytes for less
and a row that is for this broker may be stored here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import kernel
from postroad.messages import Batch
from postroad.messages.columns import BROADCAST, FLAGS, HOP_LIMIT, MAYBE_DUPLICATE, OVERTAKING, SOURCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.routing.destinations import Flags

__all__ = [
    "all_may_go_on",
    "any_broadcast",
    "arrived",
    "entering",
    "may_go_on",
    "overtaking",
    "returned_rows",
    "with_broadcast",
]

# Ways that change while a message travels can be longer than any way at one moment; twice round the network is plenty,
# and in a small network a few more do no harm.
_LEAST_HOP_LIMIT = 16


def entering(batch: Batch, number: int, brokers: int) -> Batch:
    """A batch that enters the network at broker `number`; the hop limit depends on how many brokers it knows."""
    envelopes = batch.envelopes.copy()
    _enter(envelopes, number, max(_LEAST_HOP_LIMIT, 2 * brokers))
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def arrived(batch: Batch) -> Batch:
    """A batch after one more hop."""
    envelopes = batch.envelopes.copy()
    _hop(envelopes)
    return Batch(batch.buffer, batch.spans, batch.ids, envelopes)


def returned_rows(batch: Batch) -> Batch:
    """A batch that a link gave back: it may have arrived anyway."""
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


# These are called for every read. numpy takes microseconds for a column of one row, these a tenth of one.
@kernel("void(int64[:, ::1], int64, int64)", allocates=False)
def _enter(envelopes: NDArray[np.int64], number: int, most_hops: int) -> None:
    """What broker `number` writes into the envelopes of rows that enter the network there."""
    for row in range(len(envelopes)):
        envelopes[row, SOURCE] = number
        # A publisher's own limit counts where it is the lower one.
        envelopes[row, HOP_LIMIT] = min(envelopes[row, HOP_LIMIT], most_hops)
        envelopes[row, FLAGS] &= ~(BROADCAST | MAYBE_DUPLICATE | OVERTAKING)


@kernel("void(int64[:, ::1])", allocates=False)
def _hop(envelopes: NDArray[np.int64]) -> None:
    """One hop less is left to every row, never less than none."""
    for row in range(len(envelopes)):
        envelopes[row, HOP_LIMIT] = max(envelopes[row, HOP_LIMIT] - 1, 0)


@kernel("boolean(int64[:, ::1])", allocates=False)
def all_may_go_on(envelopes: NDArray[np.int64]) -> bool:
    """Whether the hop limit of every row allows another hop."""
    for row in range(len(envelopes)):
        if envelopes[row, HOP_LIMIT] <= 0:
            return False
    return True


@kernel("boolean(int64[:, ::1])", allocates=False)
def any_broadcast(envelopes: NDArray[np.int64]) -> bool:
    """Whether any row goes to all brokers."""
    seen = np.int64(0)
    for row in range(len(envelopes)):
        seen |= envelopes[row, FLAGS]
    return bool(seen & BROADCAST != 0)
