"""Replication grades: how many copies of a message are sent.

The waiting time depends on the first three moments of the grade R, not on its mean alone. Each family gives them in
closed form, its probabilities for enumeration and simulation, and the generating function E[z^R], from which the exact
distribution of waiting times follows.

Three equations of the paper (Menth and Henjes) are printed wrongly and are right here: E[R³] of the scaled Bernoulli
family is p·n³, E[R²] of the binomial family is its variance plus its squared mean, and E[R³] of the binomial family
begins with E[R]² in the form that only uses the first two moments.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.moments import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Complex = NDArray[np.complex128]
    Floats = NDArray[np.float64]

__all__ = ["Binomial", "Constant", "Grade", "Measured", "ScaledBernoulli", "binomial_third_moment"]


class Grade(Protocol):
    """A distribution of the number of copies."""

    def moments(self) -> Moments:
        """E[R], E[R²] and E[R³]."""
        ...

    def probabilities(self) -> tuple[Floats, Floats]:
        """The values that R takes, and with which probability it takes each."""
        ...

    def transform(self, z: Complex) -> Complex:
        """E[z^R]."""
        ...


class Constant(NamedTuple):
    """Every message is sent `copies` times."""

    copies: float

    def moments(self) -> Moments:
        """E[R], E[R²] and E[R³]."""
        return Moments(self.copies, self.copies**2, self.copies**3)

    def probabilities(self) -> tuple[Floats, Floats]:
        """One value, for certain."""
        return np.array([self.copies]), np.array([1.0])

    def transform(self, z: Complex) -> Complex:
        """E[z^R]."""
        return np.power(z, self.copies)


class ScaledBernoulli(NamedTuple):
    """All `filters` match with probability `p`, else none: the family that varies most."""

    filters: float
    p: float

    @classmethod
    def of(cls, mean: float, second: float) -> ScaledBernoulli:
        """The member with these two moments.

        Raises:
            CapacityError: there is none: p would not be a probability.
        """
        if mean <= 0:
            raise CapacityError(f"a mean of {mean:g} copies does not determine how many filters match together")
        filters = second / mean
        p = mean / filters
        if not 0 < p <= 1:
            raise CapacityError(
                f"E[R] = {mean:g} and E[R²] = {second:g} need p = {p:g}: E[R²] must be E[R]² = {mean**2:g} or more"
            )
        return cls(filters, p)

    def moments(self) -> Moments:
        """E[R], E[R²] and E[R³]."""
        _check_probability(self.p)
        return Moments(self.p * self.filters, self.p * self.filters**2, self.p * self.filters**3)

    def probabilities(self) -> tuple[Floats, Floats]:
        """Nothing, or everything."""
        return np.array([0.0, self.filters]), np.array([1 - self.p, self.p])

    def transform(self, z: Complex) -> Complex:
        """E[z^R]."""
        return np.asarray(1 - self.p + self.p * np.power(z, self.filters))


class Binomial(NamedTuple):
    """Each of `filters` filters matches with probability `p`, independently of the others."""

    filters: int
    p: float

    def moments(self) -> Moments:
        """E[R], E[R²] and E[R³], from the factorial moments n(n-1)...(n-k+1) p^k."""
        _check_probability(self.p)
        n, p = self.filters, self.p
        once, twice, thrice = n * p, n * (n - 1) * p**2, n * (n - 1) * (n - 2) * p**3
        return Moments(once, twice + once, thrice + 3 * twice + once)

    def probabilities(self) -> tuple[Floats, Floats]:
        """0 to n copies. Logarithms of factorials keep large n from overflowing."""
        n, p = self.filters, self.p
        copies = np.arange(n + 1, dtype=np.float64)
        if p in (0.0, 1.0):
            return copies, (copies == n * p).astype(np.float64)
        ways = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
        return copies, np.exp(np.array(ways) + copies * math.log(p) + (n - copies) * math.log1p(-p))

    def transform(self, z: Complex) -> Complex:
        """E[z^R]."""
        return np.power(1 - self.p + self.p * z, self.filters)


class Measured(NamedTuple):
    """Measured counts: `counts[i]` messages were sent `copies[i]` times."""

    copies: Floats
    counts: Floats

    def moments(self) -> Moments:
        """E[R], E[R²] and E[R³]."""
        copies, probabilities = self.probabilities()
        return Moments(*(float(np.dot(copies**power, probabilities)) for power in (1, 2, 3)))

    def probabilities(self) -> tuple[Floats, Floats]:
        """The shares of the counts.

        Raises:
            CapacityError: nothing was counted, or a count is negative.
        """
        counts = np.asarray(self.counts, np.float64)
        if not counts.size or np.any(counts < 0) or not counts.sum() > 0:
            raise CapacityError("no message was counted: the replication grade is unknown")
        return np.asarray(self.copies, np.float64), counts / counts.sum()

    def transform(self, z: Complex) -> Complex:
        """E[z^R]."""
        copies, probabilities = self.probabilities()
        return np.asarray(np.power(np.asarray(z)[..., None], copies) @ probabilities)


def binomial_third_moment(mean: float, second: float) -> float:
    """E[R³] of a binomial grade from its first two moments (Eq. 18, corrected).

    The same form holds for Poisson and negative binomial grades, so it also serves where the variance exceeds the mean.
    """
    if mean <= 0:
        raise CapacityError("a grade that is always 0 has no family")
    return mean**2 - second - mean * second + 2 * second**2 / mean


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise CapacityError(f"{p:g} is not a probability")
