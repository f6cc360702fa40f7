"""Queues simulated message by message: the slow twins of the formulas."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WARM_UP = 2_000


def several_servers_waits(servers: int, rate: float, services: Floats, seed: int) -> Floats:
    """Waits before whichever of several servers is free first."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, len(services))).tolist()
    free = [0.0] * servers
    waits = []
    for arrival, service in zip(arrivals, services.tolist(), strict=True):
        begin = max(arrival, free[0])
        waits.append(begin - arrival)
        heapq.heapreplace(free, begin + service)
    return np.array(waits[WARM_UP:])


def batch_server_times(rate: float, fixed: float, marginal: float, count: int, seed: int) -> tuple[Floats, Floats]:
    """Waits and response times at a server that takes all that wait as one batch."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
    waits, responses = np.empty(count), np.empty(count)
    done, now = 0, 0.0
    while done < count:
        now = max(now, float(arrivals[done]))
        end = max(done + 1, int(np.searchsorted(arrivals, now, side="right")))
        waits[done:end] = now - arrivals[done:end]
        now += fixed + marginal * (end - done)
        responses[done:end] = now - arrivals[done:end]
        done = end
    return waits[WARM_UP:], responses[WARM_UP:]
