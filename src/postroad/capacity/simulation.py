"""Waits at several servers with one queue, by simulation: exact for any service time, up to a stated random error.

There is no formula for M/G/k, and the wait depends on more of the service time than its moments. So many queues with
the same parameters are simulated side by side: the free times of each queue's servers are a row of an array (the
recursion of Kiefer and Wolfowitz). A hundred million messages take some seconds. The queues are independent, so the
spread of their means gives the error of the whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import check_probability

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["SimulatedWaits", "simulate_waits"]

QUEUES = 4_000
# Buckets of waits are 0.5 % wider than those before: quantiles are within a quarter of a percent of the sample's.
_GROWTH = 1.005
_BUCKETS = 6_000
# The end of the first bucket, as a part of the mean service; shorter waits count as none.
_FIRST = 1e-6
# Queues begin empty. After this many messages in units of 1 / (1 - rho)² they have forgotten that: the slowest memory
# falls by a factor e in fewer than four units.
_FORGOTTEN = 40.0
# One in this many messages of a queue is put into a bucket: neighbouring messages wait about as long.
_COUNTED_EVERY = 4
# Random numbers are drawn for this many messages of all queues at once: some 30 MiB.
_CHUNK = 500


class SimulatedWaits(NamedTuple):
    """What was found.

    Attributes:
        mean: seconds of waiting.
        error: the standard error of the mean.
        waiting: the share that waited at all.
        counts: some of the messages, by bucket of their waits.
        unit: the end of the first bucket, in seconds.
    """

    mean: float
    error: float
    waiting: float
    counts: NDArray[np.int64]
    unit: float

    def quantile(self, p: float) -> float:
        """The wait that a share `p` of messages does not exceed."""
        check_probability(p)
        place = int(np.searchsorted(np.cumsum(self.counts), p * self.counts.sum()))
        return 0.0 if place == 0 else self.unit * _GROWTH ** (place - 0.5)


def simulate_waits(
    servers: int,
    rate: float,
    services: Callable[[np.random.Generator, tuple[int, int]], Floats],
    messages: int = 20_000_000,
    seed: int = 0,
) -> SimulatedWaits:
    """Simulate messages that arrive at random and are served by whichever server is free first.

    Args:
        servers: how many.
        rate: messages per second, for all of them.
        services: draws service times in seconds, as an array of this shape.
        messages: that count, over all queues; as many as needed come before them, so that the queues forget their
            beginning.
        seed: of the random numbers.

    Raises:
        CapacityError: the servers cannot carry the rate.
    """
    random = np.random.default_rng(seed)
    mean_service = float(services(random, (QUEUES, _CHUNK)).mean())
    busy = rate * mean_service / servers
    if not 0 < busy < 1:
        raise CapacityError(f"{servers} servers would be busy {100 * busy:.4g} % of the time: no wait is typical")
    warm_up = math.ceil(_FORGOTTEN * servers / (1 - busy) ** 2)
    steps = max(1, messages // QUEUES)
    unit = _FIRST * mean_service
    free = np.zeros((QUEUES, servers))
    sums, counts = np.zeros(QUEUES), np.zeros(_BUCKETS, np.int64)
    for number in range(warm_up + steps):
        at = number % _CHUNK
        if at == 0:
            gaps = random.exponential(1 / rate, (_CHUNK, QUEUES))
            drawn = services(random, (_CHUNK, QUEUES))
        waits = free[:, 0].copy()
        if number >= warm_up:
            sums += waits
        if number >= warm_up and number % _COUNTED_EVERY == 0:
            places = np.log(np.maximum(waits, unit) / unit) * (1 / math.log(_GROWTH))
            counts += np.bincount(np.minimum(np.ceil(places).astype(np.int64), _BUCKETS - 1), minlength=_BUCKETS)
        free[:, 0] += drawn[at]
        np.maximum(free - gaps[at][:, None], 0.0, out=free)
        if servers > 1:
            free.sort(axis=1)
    means = sums / steps
    error = float(means.std(ddof=1) / math.sqrt(QUEUES))
    return SimulatedWaits(float(means.mean()), error, 1 - int(counts[0]) / int(counts.sum()), counts, unit)
