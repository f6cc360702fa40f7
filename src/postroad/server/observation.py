"""What is only counted while the console is open: topics and latencies of a sample of what passes.

Where nobody looks it costs nothing: the dispatcher's timer is the broker's own. While a console asks, or a scraper
comes by, this is put before it, looks at some rows of some batches, and goes away when nobody has asked for a while.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.messages.id_columns import TIME_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Outbox
    from postroad.messages import Batch
    from postroad.sessions.contract import BatchTimer

__all__ = ["LatencyHistogram", "LatencyPoint", "Observation"]

# A console that has not asked for this long is gone.
WATCHED_MS = 10_000
# The same of a scraper, which comes every minute or more often.
SCRAPED_MS = 300_000
# Upper bounds of the histogram's buckets, in seconds; ids have the time in milliseconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
# Batches that are looked at in a second, and rows of each: some 100 microseconds a second.
SAMPLES_PER_SECOND = 20
ROWS_PER_SAMPLE = 32
# Different topics that are counted; a publisher that invents topics does not fill the memory.
MOST_TOPICS = 1_000
SHOWN_TOPICS = 10
# Of latencies: the time of one point, and the number of points, which are four minutes.
POINT_MS = 2_000
MOST_POINTS = 120
# Older counts of topics are halved after this many samples.
FADE_SAMPLES = 600

_BUCKETS_MS = np.array(BUCKETS) * 1_000


class LatencyPoint(NamedTuple):
    """Latencies of deliveries within a while, in ms: from the time in their ids until they were written to sockets."""

    time: int
    messages: int
    p50: float
    p90: float
    p99: float


class LatencyHistogram(NamedTuple):
    """Latencies of the deliveries that were looked at.

    Attributes:
        bounds: upper bounds of the buckets, in seconds.
        counts: deliveries in each bucket, and beyond the last bound.
        sum_seconds: of all of them.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float


class Observation:
    """Looks at a sample of what a broker carries, while there are requests.

    Args:
        timer: what counts batches otherwise.
        install: has batches counted by this, or by the timer again.
        clock: the time in ms.

    Attributes:
        clock: the same.
    """

    def __init__(self, timer: BatchTimer, install: Callable[[BatchTimer], None], clock: Callable[[], int]) -> None:
        self._timer = timer
        self._install = install
        self.clock = clock
        self._asked_until = 0
        self._buckets = np.zeros(len(BUCKETS) + 1, np.int64)
        self._latency_ms = 0
        self._next_at = 0
        self._samples = 0
        self._topics: Counter[str] = Counter()
        self._latencies: list[int] = []
        self._points: deque[LatencyPoint] = deque(maxlen=MOST_POINTS)
        self._point_at = 0

    def ask(self) -> None:
        """Somebody looks, now."""
        self._look_until(self.clock() + WATCHED_MS)

    def scraped(self) -> None:
        """A scraper came by, and will again."""
        self._look_until(self.clock() + SCRAPED_MS)

    def _look_until(self, time: int) -> None:
        self._asked_until = max(self._asked_until, time)
        self._install(self)

    def histogram(self) -> LatencyHistogram:
        """All latencies so far."""
        return LatencyHistogram(BUCKETS, tuple(self._buckets.tolist()), self._latency_ms / 1_000)

    def topics(self) -> list[dict[str, object]]:
        """The topics that had most messages recently, and their shares of what was looked at."""
        total = self._topics.total()
        return [{"topic": topic, "share": count / total} for topic, count in self._topics.most_common(SHOWN_TOPICS)]

    def latencies(self) -> list[LatencyPoint]:
        """Latencies over time, oldest first."""
        self._close_point(self.clock())
        return list(self._points)

    # --- as the dispatcher's timer ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self._timer.begin()

    def end(self, source: int) -> None:
        self._timer.end(source)

    def count(self, batch: Batch, outbox: Outbox, relayed: bool = False) -> None:
        self._timer.count(batch, outbox, relayed)
        now = self.clock()
        if now < self._next_at:
            return
        if now > self._asked_until:
            self._install(self._timer)
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
            times = (delivery.batch.ids[delivery.rows[:ROWS_PER_SAMPLE], 1] >> TIME_SHIFT).astype(np.int64)
            latencies = np.maximum(0, now - times)
            self._latencies += latencies.tolist()
            self._latency_ms += int(latencies.sum())
            np.add.at(self._buckets, np.searchsorted(_BUCKETS_MS, latencies), 1)

    def _close_point(self, now: int) -> None:
        if now - self._point_at < POINT_MS:
            return
        if self._latencies:
            p50, p90, p99 = np.percentile(self._latencies, (50, 90, 99))
            self._points.append(LatencyPoint(now, len(self._latencies), float(p50), float(p90), float(p99)))
            self._latencies = []
        self._point_at = now
