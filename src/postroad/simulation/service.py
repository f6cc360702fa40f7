"""How long a simulated processor works on what a broker receives: the capacity model, applied to an outbox."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from postroad.capacity import BatchCosts

if TYPE_CHECKING:
    from postroad.broker import Outbox

__all__ = ["ServiceTimes"]

_MICROSECONDS_PER_SECOND = 1_000_000


class ServiceTimes(NamedTuple):
    """Processor time for each kind of work.

    Attributes:
        costs: of batches of messages, from `postroad capacity calibrate` and `fit`.
        control_us: microseconds for a control frame of a neighbour.
        subscribe_us: microseconds for a SUBSCRIBE of a client.
    """

    costs: BatchCosts = BatchCosts()
    control_us: int = 0
    subscribe_us: int = 0

    def batch_us(self, messages: int, size: int, subscriptions: int, outbox: Outbox) -> int:
        """Microseconds for a batch, given what the core made of it.

        Args:
            messages: how many came.
            size: their bytes.
            subscriptions: resident at the broker.
            outbox: what has to be written because of them.
        """
        costs = self.costs
        copies = 0
        for delivery in outbox.deliveries:
            copies += len(delivery.rows)
        for sending in outbox.parcels:
            copies += len(sending.rows)
        written = len(outbox.deliveries) + len(outbox.parcels)
        matched = costs.match * subscriptions + costs.lookup * math.log2(1 + subscriptions)
        seconds = costs.batch + costs.write * written + messages * (costs.receive + matched) + costs.send * copies
        each = copies / max(messages, 1)
        seconds += size * (costs.byte + costs.sent_byte * each + costs.rendered_byte * min(1.0, each))
        return round(seconds * _MICROSECONDS_PER_SECOND)
