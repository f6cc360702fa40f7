"""A sketch of delivery latencies: counts in buckets that grow by a tenth, so that sketches of any brokers add up.

A quantile read from it is off by at most half the growth, 5 %. The id's time is the publisher's clock as corrected by
its broker, so a latency across brokers contains their skew; what comes out negative counts as at most 1 ms.

A bucket comes from a search between 0 and the last one, whatever time an id claims: 48 bits, so no difference wraps.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, kernel
from postroad.messages.id_columns import TIME_SHIFT
from postroad.messages.identity import COUNTER_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking.contract import Rows

__all__ = ["LATENCY_BUCKETS", "LATENCY_GROWTH", "LatencySketch", "bucket_limits"]

LATENCY_GROWTH = 1.1
# 1.1 ** 255 ms is about a year: anything slower counts as that.
LATENCY_BUCKETS = 256


def bucket_limits() -> NDArray[np.int64]:
    """The largest latency, in whole ms, of each bucket. Whole ms skip some buckets below 10 ms: these stay empty."""
    return np.floor(LATENCY_GROWTH ** np.arange(LATENCY_BUCKETS, dtype=np.float64)).astype(np.int64)


@kernel(
    "void(uint64[:, ::1], int32[::1], int64, int64[::1], int64[::1])",
    "void(uint64[:, ::1], int64[::1], int64, int64[::1], int64[::1])",
    allocates=False,
)
def _count(ids: NDArray[np.uint64], rows: Rows, now: Int, limits: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    last, bucket = np.int64(-1), 0
    for index in range(len(rows)):
        time = np.int64(ids[rows[index], 1] >> TIME_SHIFT)
        # Ids of one batch mostly have the same few times.
        if time != last:
            last = time
            low, high = 0, len(limits) - 1
            while low < high:
                middle = (low + high) // 2
                if limits[middle] >= now - time:
                    high = middle
                else:
                    low = middle + 1
            bucket = low
        counts[bucket] += 1


class LatencySketch:
    """Counts of deliveries by latency, since it was last taken."""

    def __init__(self) -> None:
        self._limits = bucket_limits()
        self._limit_list = self._limits.tolist()
        self._counts = np.zeros(LATENCY_BUCKETS, np.int64)
        # The same for runs: a list is quicker where one number changes.
        self._run_counts = [0] * LATENCY_BUCKETS

    def add(self, ids: NDArray[np.uint64], rows: Rows, now: int) -> None:
        """Count rows of a batch that were written to a socket now."""
        _count(ids, rows, now, self._limits, self._counts)

    def add_run(self, tail: int, count: int, now: int) -> None:
        """The same for a run of consecutive ids, by the tail of the first."""
        while count > 0:
            time = tail >> COUNTER_BITS
            # Those with the same time.
            alike = min(count, ((time + 1) << COUNTER_BITS) - tail)
            self._run_counts[min(bisect_left(self._limit_list, now - time), LATENCY_BUCKETS - 1)] += alike
            tail += alike
            count -= alike

    def take(self) -> NDArray[np.int64]:
        """The counts by bucket; they begin again at zero."""
        counts = self._counts + np.array(self._run_counts, np.int64)
        self._counts, self._run_counts = np.zeros(LATENCY_BUCKETS, np.int64), [0] * LATENCY_BUCKETS
        return counts
