"""How long messages wait at one server that serves them one by one: the M/G/1 queue.

Messages arrive at random (Poisson) at `rate` per second; a service takes B. With the utilisation rho = rate · E[B]
below 1, the moments of the waiting time W follow from those of B (Pollaczek and Khinchine; Eqs. 4 to 6 of Menth and
Henjes).

A message waits at all with probability rho. The wait of those that do, W₁, is well described by a Gamma distribution
with its first two moments: shape 1 / c², not 1 / c as the paper prints (Eq. 20). `tails` has the exact distribution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from postroad.capacity.moments import Moments

__all__ = ["GammaWait", "SingleServer", "check_probability"]


def check_probability(p: float) -> None:
    """Refuse a value that is not the probability of a quantile.

    Raises:
        CapacityError: p is not at least 0 and below 1.
    """
    if not 0 <= p < 1:
        raise CapacityError(f"{p:g} is not the probability of a quantile: at least 0 and below 1")


class GammaWait(NamedTuple):
    """Waiting times of which a share `waiting` is Gamma-distributed and the rest is zero."""

    waiting: float
    shape: float
    scale: float

    def at_most(self, seconds: float) -> float:
        """P(W <= seconds)."""
        from scipy import special

        if seconds < 0:
            return 0.0
        below = 1.0 if self.scale == 0 else float(special.gammainc(self.shape, seconds / self.scale))
        return 1 - self.waiting + self.waiting * below

    def quantile(self, p: float) -> float:
        """The seconds that a share `p` of all messages does not exceed."""
        from scipy import special

        check_probability(p)
        if p <= 1 - self.waiting or self.scale == 0:
            return 0.0
        return self.scale * float(special.gammaincinv(self.shape, (p - 1 + self.waiting) / self.waiting))


class SingleServer(NamedTuple):
    """One server, messages at random, one at a time.

    Attributes:
        rate: arrivals per second.
        service: moments of the service time in seconds.
    """

    rate: float
    service: Moments

    @property
    def utilisation(self) -> float:
        """rho, the share of time in which the server is busy."""
        return self.rate * self.service.first

    def mean_wait(self) -> float:
        """E[W], service not included."""
        self._check_stable()
        return self.rate * self.service.second / (2 * (1 - self.utilisation))

    def second_moment_of_wait(self) -> float:
        """E[W²]."""
        return 2 * self.mean_wait() ** 2 + self.rate * self.service.third / (3 * (1 - self.utilisation))

    def wait(self) -> GammaWait:
        """The approximate distribution of the waiting time."""
        mean, second = self.mean_wait(), self.second_moment_of_wait()
        if mean == 0:
            return GammaWait(0.0, 1.0, 0.0)
        delayed, delayed_second = mean / self.utilisation, second / self.utilisation
        variation_squared = delayed_second / delayed**2 - 1
        return GammaWait(self.utilisation, 1 / variation_squared, delayed * variation_squared)

    def quantile(self, p: float) -> float:
        """The approximate p-quantile of the waiting time."""
        return self.wait().quantile(p)

    def _check_stable(self) -> None:
        if self.rate < 0 or self.service.first < 0:
            raise CapacityError("rates and service times cannot be negative")
        if not self.utilisation < 1:
            highest = 1 / self.service.first
            raise CapacityError(
                f"{self.rate:g} messages/s would keep the server busy {100 * self.utilisation:.4g} % of the time, and "
                f"the queue would grow without end; it carries fewer than {highest:.6g} messages/s"
            )
        if math.isnan(self.utilisation):
            raise CapacityError("a rate or a service time is not a number")
