"""What batches cost this broker, for the capacity model: one in some, so that measuring costs next to nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking import BatchCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Outbox
    from postroad.messages import Batch
    from postroad.tracking import TrackingRecorder

__all__ = ["BATCHES_PER_SAMPLE", "Sampler"]

# Two looks at a clock and a line in the record are some 3 microseconds; a batch is 35 or more: far below one percent.
BATCHES_PER_SAMPLE = 64


class Sampler:
    """Times one batch in `BATCHES_PER_SAMPLE`, from its arrival in the core until its bytes are handed to the sockets.

    Args:
        recorder: keeps the timings.
        core: whose subscriptions are counted.
        clock: the broker's time in ms.
        stopwatch: nanoseconds that only go forward.
    """

    def __init__(
        self,
        recorder: TrackingRecorder,
        core: Broker,
        clock: Callable[[], int],
        stopwatch: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._recorder = recorder
        self._core = core
        self._clock = clock
        self._stopwatch = stopwatch
        self._left = 1

    def begin(self) -> int:
        """A batch arrives; answers when, or 0 if it is not to be timed."""
        self._left -= 1
        if self._left:
            return 0
        self._left = BATCHES_PER_SAMPLE
        return self._stopwatch()

    def end(self, began: int, batch: Batch, outbox: Outbox) -> None:
        """The batch that began then is done with."""
        took = self._stopwatch() - began
        # Each span is a start and an end: what they hold is the sum of all ends less that of all starts.
        size = int(batch.spans[:, 1::2].sum(dtype=np.int64) - batch.spans[:, ::2].sum(dtype=np.int64))
        sent = [len(one.rows) for one in outbox.deliveries]
        sent += [len(one.rows) for one in outbox.parcels]
        cost = BatchCost(len(batch), len(self._core.index), sum(sent), len(sent), size, took)
        self._recorder.timed(cost, self._clock())
