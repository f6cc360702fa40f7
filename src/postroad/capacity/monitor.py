"""Compares a live broker with the model: predicted and measured waits, and how much of its limit it uses.

The broker times some of its reads (from the system call until the bytes of the messages are with other sockets) and
reports them here. The latest reads give the cost of a read and of a further message. With the rate of messages and the
number of their sockets, `BatchServer` predicts the wait. The measured wait is how much later than planned the event
loop runs probes that are due at random times: messages that arrive at random times see the same (Poisson arrivals see
time averages).

Nothing here reads a clock or does I/O. What is kept is bounded: the latest reads, and counts in buckets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.admission import highest_rate
from postroad.capacity.batches import BatchServer
from postroad.capacity.quantiles import sketch_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "LIMIT_UTILISATION",
    "LIMIT_WAIT_SECONDS",
    "PROBE_RESOLUTION_SECONDS",
    "Assessment",
    "CapacityMonitor",
    "Observations",
    "ReadCosts",
    "assess",
    "fit_reads",
    "limit_rate",
]

# A broker is at its limit if it uses this share of what batches of any size could carry. The rest is for bursts, for
# neighbours that fail, and for what samples miss (timers, the record, writes that a socket did not take at once).
LIMIT_UTILISATION = 0.8
# Or if a turn of its loop takes this long, because many sockets have something in each.
LIMIT_WAIT_SECONDS = 0.1
# Event loops round timers up to whole milliseconds: shorter waits look like none.
PROBE_RESOLUTION_SECONDS = 1e-3
# Reads that are remembered: enough for costs within some percent, few enough to follow a change of traffic.
READS_KEPT = 512
# With fewer reads, no assessment.
FEWEST_READS = 32
# Probes are counted for at least this long, and at most twice as long.
PROBE_WINDOW_SECONDS = 150.0
# A bucket is 9 % wider than the one before; the first ends at 0.1 ms, the last at 100 s.
_BUCKETS = 161
_BUCKETS_PER_DOUBLING = 8
_FIRST_BUCKET_SECONDS = 1e-4
# Below this squared sine of the angle between reads and messages, their costs cannot be separated.
_LEAST_ANGLE = 0.01
QUANTILE = 0.99


class ReadCosts(NamedTuple):
    """What reads cost.

    Attributes:
        fixed: seconds of a read, however few messages it has.
        marginal: further seconds of each message.
        identified: whether reads differ enough to separate the two; if not, all is charged to messages, which errs on
            the safe side.
    """

    fixed: float
    marginal: float
    identified: bool


def fit_reads(reads: Floats, messages: Floats, seconds: Floats) -> ReadCosts:
    """Fit by non-negative least squares of relative errors, over single reads or over sums of several.

    Args:
        reads: how many, in each row.
        messages: that they had.
        seconds: that they took, above 0.
    """
    fixed, each = reads / seconds, messages / seconds
    a, b, c = float(fixed @ fixed), float(fixed @ each), float(each @ each)
    p, q = float(fixed.sum()), float(each.sum())
    if a * c - b * b > _LEAST_ANGLE * a * c:
        determinant = a * c - b * b
        apart = ReadCosts((p * c - q * b) / determinant, (q * a - p * b) / determinant, True)
        if apart.fixed >= 0 and apart.marginal > 0:
            return apart
        if apart.fixed < 0:
            return ReadCosts(0.0, q / c, True)
    return ReadCosts(0.0, q / c, False)


def limit_rate(costs: ReadCosts, sources: float) -> float:
    """Return the most messages per second that a broker should carry; see the constants above."""
    most = 1 / costs.marginal
    by_wait = highest_rate(
        lambda rate: BatchServer(rate, costs.fixed, costs.marginal, sources).turn_seconds(), LIMIT_WAIT_SECONDS, most
    )
    return min(LIMIT_UTILISATION * most, by_wait)


class Observations(NamedTuple):
    """What was seen of a broker.

    Attributes:
        rate: messages per second since the last look.
        messages: of each remembered read.
        seconds: that each took.
        sources: the effective number of sockets that messages come from, as if all sent equally; at least 1.
        lateness: how often a probe was this late, by bucket.
    """

    rate: float
    messages: Floats
    seconds: Floats
    sources: float
    lateness: NDArray[np.int64]


class Assessment(NamedTuple):
    """The state of a broker, by the model and by measurement. NaN: not known yet.

    Attributes:
        rate: messages per second.
        sources: sockets that they come from.
        costs: of reads and messages; None while too few were timed.
        utilisation: the share used of what batches of any size could carry.
        load: the rate as a share of the highest that it should carry: 1 is the limit.
        predicted_p99: seconds that 99 % of messages wait at most, by the model; infinite beyond the capacity.
        measured_p99: the same of probes, rounded up to `PROBE_RESOLUTION_SECONDS` and the end of a bucket.
        probes: how many.
    """

    rate: float
    sources: float
    costs: ReadCosts | None
    utilisation: float
    load: float
    predicted_p99: float
    measured_p99: float
    probes: int


def assess(seen: Observations) -> Assessment:
    """Compare model and measurement. Takes some 10 ms at most: not for an event loop."""
    measured = sketch_quantile(seen.lateness, _bucket_ends(), QUANTILE)
    late = max(measured.value, PROBE_RESOLUTION_SECONDS) if measured.total else math.nan
    if len(seen.seconds) < FEWEST_READS:
        return Assessment(seen.rate, seen.sources, None, math.nan, math.nan, math.nan, late, measured.total)
    costs = fit_reads(np.ones(len(seen.seconds)), seen.messages, seen.seconds)
    used = seen.rate * costs.marginal
    load = seen.rate / limit_rate(costs, seen.sources)
    if seen.rate <= 0:
        predicted = 0.0
    elif used < 1:
        predicted = BatchServer(seen.rate, costs.fixed, costs.marginal, seen.sources).wait_quantile(QUANTILE)
    else:
        predicted = math.inf
    return Assessment(seen.rate, seen.sources, costs, used, load, predicted, late, measured.total)


class CapacityMonitor:
    """Collects what a broker reports, within bounds."""

    def __init__(self) -> None:
        self._messages = np.zeros(READS_KEPT)
        self._seconds = np.zeros(READS_KEPT)
        self._sources = np.zeros(READS_KEPT, np.int64)
        self.reads_timed = 0
        self._late = np.zeros(_BUCKETS, np.int64)
        self._late_before = np.zeros(_BUCKETS, np.int64)
        self._window_began = -math.inf
        self._total = 0
        self._looked_at = math.nan

    def timed(self, messages: int, seconds: float, source: int) -> None:
        """Record a read that was timed; `source` is any number that identifies its socket."""
        if messages <= 0 or seconds <= 0:
            return
        place = self.reads_timed % READS_KEPT
        self._messages[place] = messages
        self._seconds[place] = seconds
        self._sources[place] = source
        self.reads_timed += 1

    def probed(self, late: float, now: float) -> None:
        """Record that a probe ran `late` seconds after it was due, at `now` seconds of a monotonic clock."""
        if now - self._window_began > PROBE_WINDOW_SECONDS:
            self._late, self._late_before = self._late_before, self._late
            self._late[:] = 0
            self._window_began = now
        self._late[_bucket(late)] += 1

    def look(self, total: int, now: float) -> Observations | None:
        """Return what was seen since the last look; None at the first.

        Args:
            total: messages since the start.
            now: seconds of the clock of `probed`.
        """
        elapsed, came = now - self._looked_at, total - self._total
        self._looked_at, self._total = now, total
        if not elapsed > 0:
            return None
        kept = min(self.reads_timed, READS_KEPT)
        messages, sources = self._messages[:kept].copy(), self._sources[:kept]
        return Observations(
            came / elapsed,
            messages,
            self._seconds[:kept].copy(),
            _effective(messages, sources),
            self._late + self._late_before,
        )


def _effective(messages: Floats, sources: NDArray[np.int64]) -> float:
    """Return how many equal sources would vary as much: the inverse of the sum of squared shares."""
    if not len(messages):
        return 1.0
    _, place = np.unique(sources, return_inverse=True)
    shares = np.bincount(place, weights=messages) / messages.sum()
    return max(1.0, 1 / float(shares @ shares))


def _bucket(late: float) -> int:
    if late <= _FIRST_BUCKET_SECONDS:
        return 0
    return min(_BUCKETS - 1, math.ceil(_BUCKETS_PER_DOUBLING * math.log2(late / _FIRST_BUCKET_SECONDS)))


def _bucket_ends() -> Floats:
    return np.asarray(_FIRST_BUCKET_SECONDS * 2 ** (np.arange(_BUCKETS) / _BUCKETS_PER_DOUBLING))
