"""Several equal servers with one queue: M/G/k.

Several brokers with one directory each take a share of the clients. The best that spreading can reach is one queue for
all of them, which this module describes; k separate queues, each with 1/k of the traffic, are the worst
(`SingleServer`).

There is no closed form. The mean lies between that of exponential services (M/M/k, by Erlang's formula C) and that of
constant ones (M/D/k, by the approximation of Cosmetatos), in proportion to c²; above c = 1 it is that of M/M/k times
(1 + c²) / 2 (Lee and Longton). Of those who wait, the wait is taken as Gamma with the shape that the single server of
the same utilisation has. The tests compare both with simulations for utilisations from 0.5 to 0.9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import GammaWait, SingleServer

if TYPE_CHECKING:
    from postroad.capacity.moments import Moments

__all__ = ["SeveralServers", "erlang_c"]


def erlang_c(servers: int, load: float) -> float:
    """The probability that an M/M/k customer waits, at a load of rate / (rate of one server) Erlang."""
    if not 0 <= load < servers:
        raise CapacityError(f"{servers} servers cannot carry a load of {load:g} Erlang")
    # Erlang's formula B by its recursion, which neither overflows nor cancels.
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


class SeveralServers(NamedTuple):
    """k servers with one queue.

    Attributes:
        servers: how many.
        rate: arrivals per second, for all of them.
        service: moments of the service time in seconds.
    """

    servers: int
    rate: float
    service: Moments

    @property
    def utilisation(self) -> float:
        """The share of time in which each server is busy."""
        return self.rate * self.service.first / self.servers

    def waiting_probability(self) -> float:
        """The share of messages that wait."""
        return erlang_c(self.servers, self.rate * self.service.first)

    def mean_wait(self) -> float:
        """E[W], service not included."""
        memoryless = self.waiting_probability() * self.service.first / (self.servers * (1 - self.utilisation))
        squared = self.service.variation**2
        if squared >= 1:
            return memoryless * (1 + squared) / 2
        return memoryless * (squared + (1 - squared) * self._constant_over_memoryless())

    def _constant_over_memoryless(self) -> float:
        """The mean wait of M/D/k as a part of that of M/M/k (Cosmetatos); 1/2 for a single server."""
        k, busy = self.servers, self.utilisation
        if busy == 0:
            return 0.5
        return 0.5 * (1 + (1 - busy) * (k - 1) * (math.sqrt(4 + 5 * k) - 2) / (16 * busy * k))

    def wait(self) -> GammaWait:
        """The approximate distribution of the waiting time."""
        waiting = self.waiting_probability()
        if self.servers == 1:
            return SingleServer(self.rate, self.service).wait()
        if waiting == 0 or math.isclose(self.rate, 0):
            return GammaWait(0.0, 1.0, 0.0)
        shape = SingleServer(self.rate / self.servers, self.service).wait().shape
        return GammaWait(waiting, shape, self.mean_wait() / waiting / shape)

    def quantile(self, p: float) -> float:
        """The approximate p-quantile of the waiting time."""
        return self.wait().quantile(p)
