"""The service time of a message, in the paper's form.

A message costs a share for being received, one for each resident filter, and one for each copy sent:
E[B] = receive + filters * match + E[R] * send (Menth and Henjes, for JMS servers).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.capacity.moments import Moments
    from postroad.capacity.replication import Grade

    Complex = NDArray[np.complex128]
    Floats = NDArray[np.float64]

__all__ = ["ServiceTime"]


class ServiceTime(NamedTuple):
    """Seconds that a message costs."""

    receive: float
    match: float
    send: float

    def mean(self, subscriptions: float, copies: float) -> float:
        """E[B], the mean seconds for a message with this many subscriptions resident and this many copies."""
        return self.receive + subscriptions * self.match + copies * self.send

    def moments(self, subscriptions: float, grade: Grade) -> Moments:
        """E[B], E[B²] and E[B³] when the number of copies is random (Eqs. 7 to 9)."""
        return grade.moments().shifted_and_scaled(self.receive + subscriptions * self.match, self.send)

    def transform(self, subscriptions: float, grade: Grade) -> Callable[[Complex], Complex]:
        """E[exp(-s B)] as a function of s."""
        fixed = self.receive + subscriptions * self.match

        def laplace(s: Complex) -> Complex:
            return np.exp(-s * fixed) * grade.transform(np.exp(-s * self.send))

        return laplace

    def capacity(self, subscriptions: float, copies: float, utilisation: float = 0.9) -> float:
        """Messages per second that keep a broker busy for the given share of its time."""
        return utilisation / self.mean(subscriptions, copies)

    def filters_pay(self, filters: float, match_probability: float) -> bool:
        """Whether a consumer's filters raise the capacity (Eq. 3): they cost less than the copies they save."""
        return filters * self.match < (1 - match_probability) * self.send

    def paying_probability(self, filters: float) -> float:
        """Return the match probability below which this many filters of one consumer raise the capacity; 0 if never."""
        return max(0.0, 1 - filters * self.match / self.send)

    def greatest_variation(self) -> float:
        """The largest coefficient of variation of B that scaled Bernoulli grades reach, over all filters and p.

        With a = match / send the supremum is 1 / (2 sqrt(a (1 + a))), for many filters and p = a / (1 + 2 a).
        """
        ratio = self.match / self.send
        return 1 / (2 * math.sqrt(ratio * (1 + ratio)))
