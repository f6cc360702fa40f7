"""The first three moments of a random variable that is never negative."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Moments"]


class Moments(NamedTuple):
    """E[X], E[X²] and E[X³]."""

    first: float
    second: float
    third: float

    @property
    def variance(self) -> float:
        """Return Var[X]. Rounding may leave it slightly below zero, which counts as zero."""
        return max(0.0, self.second - self.first**2)

    @property
    def variation(self) -> float:
        """The coefficient of variation: standard deviation over mean; 0 for a variable that is always 0."""
        return math.sqrt(self.variance) / self.first if self.first else 0.0

    def shifted_and_scaled(self, shift: float, factor: float) -> Moments:
        """The moments of shift + factor · X (Eqs. 7 to 9 of Menth and Henjes, with the missing factor 2 in Eq. 8)."""
        first = factor * self.first
        second = factor**2 * self.second
        third = factor**3 * self.third
        return Moments(
            shift + first,
            shift**2 + 2 * shift * first + second,
            shift**3 + 3 * shift**2 * first + 3 * shift * second + third,
        )
