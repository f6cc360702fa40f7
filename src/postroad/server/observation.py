"""What is only counted while somebody looks: topics and latencies of a sample of what passes.

Nobody looks most of the time, and then it costs nothing: the dispatcher's timer is the broker's own. While a console
asks, this stands before it, looks at some rows of some batches, and goes away when the console has not asked for a
while.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Outbox
    from postroad.messages import Batch
    from postroad.sessions import Dispatcher
    from postroad.sessions.contract import BatchTimer

__all__ = ["LatencyPoint", "Observation"]

# Who has not asked for so long is gone.
WATCHED_MS = 10_000
# Batches that are looked at in a second, and rows of each: some 100 microseconds a second.
SAMPLES_PER_SECOND = 20
ROWS_PER_SAMPLE = 32
# Different topics that are counted; a publisher that invents topics does not fill the memory.
MOST_TOPICS = 1_000
SHOWN_TOPICS = 10
# Of latencies: one point for so long, and so many points, which are four minutes.
POINT_MS = 2_000
MOST_POINTS = 120
# Older counts of topics fade by a half after so many samples.
FADE_SAMPLES = 600

_COUNTER_BITS = np.uint64(16)


class LatencyPoint(NamedTuple):
    """Latencies of deliveries within a while, in ms: from the time in their ids until they were handed to sockets."""

    time: int
    messages: int
    p50: float
    p90: float
    p99: float


class Observation:
    """Looks at a sample of what a broker carries, while somebody asks.

    Args:
        dispatcher: whose batches are looked at.
        timer: what counts them otherwise.
    """

    def __init__(self, dispatcher: Dispatcher, timer: BatchTimer) -> None:
        self._dispatcher = dispatcher
        self._timer = timer
        self._clock: Callable[[], int] = dispatcher.clock
        self._asked_at = 0
        self._next_at = 0
        self._samples = 0
        self._topics: Counter[str] = Counter()
        self._latencies: list[int] = []
        self._points: deque[LatencyPoint] = deque(maxlen=MOST_POINTS)
        self._point_at = 0

    def ask(self) -> None:
        """Somebody looks, now."""
        self._asked_at = self._clock()
        self._dispatcher.timing = self

    def topics(self) -> list[dict[str, object]]:
        """The topics with most messages of late, and their shares of what was looked at."""
        total = self._topics.total()
        return [{"topic": topic, "share": count / total} for topic, count in self._topics.most_common(SHOWN_TOPICS)]

    def latencies(self) -> list[LatencyPoint]:
        """Latencies over time, oldest first."""
        self._close_point(self._clock())
        return list(self._points)

    # --- as the dispatcher's timer ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self._timer.begin()

    def end(self, source: int) -> None:
        self._timer.end(source)

    def count(self, batch: Batch, outbox: Outbox, relayed: bool = False) -> None:
        self._timer.count(batch, outbox, relayed)
        now = self._clock()
        if now < self._next_at:
            return
        if now - self._asked_at > WATCHED_MS:
            self._dispatcher.timing = self._timer
            return
        self._next_at = now + 1_000 // SAMPLES_PER_SECOND
        self._look(batch, outbox, now)

    def _look(self, batch: Batch, outbox: Outbox, now: int) -> None:
        for row in range(min(len(batch), ROWS_PER_SAMPLE)):
            topic = batch.message(row).topic
            if topic in self._topics or len(self._topics) < MOST_TOPICS:
                self._topics[topic] += 1
        self._samples += 1
        if self._samples % FADE_SAMPLES == 0:
            self._topics = Counter({topic: count // 2 for topic, count in self._topics.items() if count > 1})
        self._close_point(now)
        for delivery in outbox.deliveries[:ROWS_PER_SAMPLE]:
            times = delivery.batch.ids[delivery.rows[:ROWS_PER_SAMPLE], 1] >> _COUNTER_BITS
            self._latencies += [max(0, now - int(time)) for time in times]

    def _close_point(self, now: int) -> None:
        if now - self._point_at < POINT_MS:
            return
        if self._latencies:
            p50, p90, p99 = np.percentile(self._latencies, (50, 90, 99))
            self._points.append(LatencyPoint(now, len(self._latencies), float(p50), float(p90), float(p99)))
            self._latencies = []
        self._point_at = now
