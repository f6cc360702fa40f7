"""Samples what reads cost this broker, for the capacity model: few enough that measuring costs almost nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking import BATCHES_PER_SAMPLE, BatchCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Outbox
    from postroad.messages import Batch
    from postroad.tracking import TrackingRecorder

__all__ = ["Sampler"]


class Sampler:
    """Times one read in `BATCHES_PER_SAMPLE` of those with messages, from its system call until its work is done.

    What a read of a socket brings is a batch, or several if other frames are between messages: they count
    together. The record gets what clients sent; the monitor also gets what neighbours relayed.

    Args:
        core: whose subscriptions are counted.
        clock: the broker's time in ms.
        recorder: keeps the timings; None for none.
        monitor: takes the messages of a read, its seconds and its source; None for none.
        stopwatch: nanoseconds that only go forward.

    Attributes:
        messages: how many came so far, in all reads.
    """

    def __init__(
        self,
        core: Broker,
        clock: Callable[[], int],
        recorder: TrackingRecorder | None = None,
        monitor: Callable[[int, float, int], None] | None = None,
        stopwatch: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.messages = 0
        self._core = core
        self._clock = clock
        self._recorder = recorder
        self._monitor = monitor
        self._stopwatch = stopwatch
        # Reads with messages until the next that is timed, which is the one that makes it zero.
        self._left = 1
        # When the read that is timed began; 0 while none is.
        self._began = 0
        self._messages_before = 0
        self._batches: list[tuple[Batch, Outbox]] = []
        self._relayed = False

    def begin(self) -> None:
        """A socket is about to be read, or was read just now."""
        if self._left == 1:
            # A failed read leaves no state.
            self._batches.clear()
            self._relayed = False
            self._began = self._stopwatch()

    def count(self, batch: Batch, outbox: Outbox, relayed: bool = False) -> None:
        """A batch was carried out; `relayed` if a neighbour sent it."""
        self.messages += len(batch)
        if self._began:
            self._batches.append((batch, outbox))
            self._relayed |= relayed

    def end(self, source: int) -> None:
        """The read is done with; `source` identifies its socket. A read without messages does not count."""
        began, self._began = self._began, 0
        if self.messages == self._messages_before:
            return
        self._messages_before = self.messages
        if not began:
            # Work that was put off may leave reads between two samples uncounted, never more than one sample due.
            self._left = max(1, self._left - 1)
            return
        self._left = BATCHES_PER_SAMPLE
        took = self._stopwatch() - began
        if self._batches:
            if self._recorder is not None and not self._relayed:
                self._recorder.timed(self._cost(took), self._clock())
            if self._monitor is not None:
                self._monitor(sum(len(batch) for batch, _ in self._batches), took / 1e9, source)
            self._batches.clear()

    def _cost(self, nanoseconds: int) -> BatchCost:
        messages = size = copies = destinations = 0
        for batch, outbox in self._batches:
            messages += len(batch)
            # Each span is a start and an end: what they hold is the sum of all ends less that of all starts.
            size += int(batch.spans[:, 1::2].sum(dtype=np.int64) - batch.spans[:, ::2].sum(dtype=np.int64))
            copies += sum(len(one.rows) for one in outbox.deliveries) + sum(len(one.rows) for one in outbox.parcels)
            destinations += len(outbox.deliveries) + len(outbox.parcels)
        return BatchCost(messages, len(self._core.index), copies, destinations, size, nanoseconds)
