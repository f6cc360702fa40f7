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

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import check_probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["WakingServer", "fit_waking"]

# Messages to take a quantile from: 2,000 are beyond the 99 % one, half a second of work.
_PLAYED = 200_000
# A fit does not try utilisations beyond this.
_HIGHEST = 0.995


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


def fit_waking(rates: Floats, seconds: Floats) -> WakingServer:
    """Return the loop with these processor seconds per message at these rates; its own rate is the highest of them.

    Args:
        rates: messages per second of each load.
        seconds: processor seconds of a message under it.

    Raises:
        CapacityError: fewer than two loads.
    """
    from scipy.optimize import least_squares

    if len(rates) < 2:
        raise CapacityError("what waking up costs takes loads of two different rates at least: measure more")
    fastest = float(rates.max())
    highest = _HIGHEST / fastest

    def errors(logs: Floats) -> Floats:
        wake, each = np.exp(logs)
        told = each + wake * np.clip(1 - rates * each, 0, None) / (1 + rates * wake)
        return np.asarray(np.log(told / seconds))

    least, most = float(seconds.min()), float(seconds.max())
    start = [math.log(max(most - least, 0.1 * most)), math.log(min(0.9 * least, 0.9 * highest))]
    found = least_squares(errors, start, bounds=([-30.0, -30.0], [2.0, math.log(highest)]))
    wake, each = np.exp(found.x)
    return WakingServer(fastest, float(wake), float(each))
