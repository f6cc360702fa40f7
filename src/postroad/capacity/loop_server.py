"""How long messages wait at a loop that falls asleep when there is nothing to do.

With many publishers that each send now and then, a read has one message and batches share nothing. Still, the cost of a
message falls with the load, because a sleeping loop must be woken: the kernel schedules it, its caches are cold, and a
turn of the loop begins. A message that finds the loop awake costs `each`; one that wakes it costs `wake` more. This is
the M/G/1 queue with an exceptional first service in each busy period (Welch, 1964).

- The share of messages that wake the loop is (1 - rate · each) / (1 + rate · wake).
- The mean wait is rate · each² / (2 (1 - rate · each)) + rate · ((each + wake)² - each²) / (2 (1 + rate · wake)).
- Quantiles have no short form; they come from a simulation of the queue with a fixed seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import check_probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["WakingServer"]

# Messages to take a quantile from: 2,000 are beyond the 99 % one, half a second of work.
_PLAYED = 200_000


class WakingServer(NamedTuple):
    """A loop that sleeps when it has nothing to do.

    Attributes:
        rate: arrivals per second, each with a read of its own.
        wake: the extra seconds of a message that finds the loop asleep.
        each: what a message costs a loop that is awake.
    """

    rate: float
    wake: float
    each: float

    @property
    def utilisation(self) -> float:
        """Return the used share of what the loop carries if it never sleeps."""
        return self.rate * self.each

    def waking_share(self) -> float:
        """The share of messages that find the loop asleep."""
        self._check()
        return (1 - self.utilisation) / (1 + self.rate * self.wake)

    def cost(self) -> float:
        """Processor seconds of a message at this rate."""
        return self.each + self.wake * self.waking_share()

    def mean_wait(self) -> float:
        """Mean seconds until a message's service begins."""
        self._check()
        first = self.each + self.wake
        awake = self.rate * self.each**2 / (2 * (1 - self.utilisation))
        return awake + self.rate * (first**2 - self.each**2) / (2 * (1 + self.rate * self.wake))

    def mean_response(self) -> float:
        """Mean seconds until it is served."""
        return self.mean_wait() + self.cost()

    def responses(self, messages: int = _PLAYED, seed: int = 0) -> Floats:
        """Simulate the response times of successive messages."""
        self._check()
        gaps = np.random.default_rng(seed).exponential(1 / self.rate, messages).tolist()
        found, left = [], 0.0
        each, first = self.each, self.each + self.wake
        for gap in gaps:
            left -= gap
            # The work left before this message; if none, the message wakes the loop.
            left = left + each if left > 0 else first
            found.append(left)
        return np.array(found)

    def response_quantile(self, p: float) -> float:
        """The response time that a share `p` of messages does not exceed."""
        check_probability(p)
        return float(np.quantile(self.responses(), p))

    def _check(self) -> None:
        if not self.rate > 0 or not self.wake >= 0 or not self.each > 0:
            raise CapacityError("a loop needs a positive rate, a positive time of a message and none that is negative")
        if not self.utilisation < 1:
            raise CapacityError(
                f"{self.rate:g} messages/s are more than the loop carries: fewer than {1 / self.each:.6g} messages/s"
            )
