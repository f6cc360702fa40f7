"""The traffic behind sampled batches: the starting point of a plan for more of the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.capacity.costs import BatchSamples

__all__ = ["Traffic", "observed_traffic"]

HOUR_MS = 3_600_000


class Traffic(NamedTuple):
    """What a network carried.

    Attributes:
        rate: messages per second in its busiest hour.
        mean_rate: over all the time from the first sample to the last.
        subscriptions: resident, at the busiest broker.
        copies: of a message, on average.
        size: bytes of a message, on average.
        hours: from the first sample to the last.
    """

    rate: float
    mean_rate: float
    subscriptions: float
    copies: float
    size: float
    hours: float


def observed_traffic(samples: BatchSamples, at_ms: NDArray[np.int64], every: int) -> Traffic:
    """Estimate traffic from samples of one batch in `every`.

    Samples are of what clients sent: a message that a broker relays is not counted again there.

    Raises:
        CapacityError: there are no samples.
    """
    total = float(samples.messages.sum())
    if not total:
        raise CapacityError(
            "the trail has no sampled batches: run its brokers for longer, or give the traffic yourself"
        )
    first = int(at_ms.min())
    hours = (at_ms - first) // HOUR_MS
    by_hour = np.bincount(hours, weights=samples.messages)
    span_s = max(1.0, (int(at_ms.max()) - first) / 1_000)
    # A record of less than an hour counts as one hour, which is not full.
    seconds = min(3_600.0, span_s)
    return Traffic(
        rate=float(by_hour.max()) * every / seconds,
        mean_rate=total * every / span_s,
        subscriptions=float(samples.subscriptions.max()),
        copies=float(samples.copies.sum()) / total,
        size=float(samples.bytes.sum()) / total,
        hours=span_s / 3_600,
    )
