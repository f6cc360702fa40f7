"""The service time of a broker, fitted to sampled batches.

A message costs a share for being received, one for each resident subscription, and one for each copy sent:
E[B] = receive + subscriptions * match + copies * send (the model of Menth and Henjes for JMS servers). A sampled batch
tells its messages, subscriptions, copies and seconds, so that all three shares follow by least squares.

Errors of measurement grow with what is measured, so each batch counts by its relative error: it is divided by its own
seconds. The sums that this needs add up over batches, files and brokers, in any order: Spark can make them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.capacity.moments import Moments
    from postroad.capacity.replication import Grade

    Complex = NDArray[np.complex128]
    Floats = NDArray[np.float64]

__all__ = ["Fit", "NormalEquations", "ServiceTime", "fit", "normal_equations"]

_SHARES = 3
# Beyond this condition number the batches do not tell the shares apart: the digits of the sums are used up.
_WORST_CONDITION = 1e10


class ServiceTime(NamedTuple):
    """Seconds that a message costs."""

    receive: float
    match: float
    send: float

    def mean(self, subscriptions: float, copies: float) -> float:
        """E[B], the mean seconds for a message with so many subscriptions resident and so many copies."""
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
        """Below this probability of a match, so many filters of one consumer raise the capacity; 0 if they never do."""
        return max(0.0, 1 - filters * self.match / self.send)

    def greatest_variation(self) -> float:
        """The largest coefficient of variation of B that scaled Bernoulli grades reach, over all filters and p.

        With a = match / send the supremum is 1 / (2 sqrt(a (1 + a))), for many filters and p = a / (1 + 2 a).
        """
        ratio = self.match / self.send
        return 1 / (2 * math.sqrt(ratio * (1 + ratio)))


class NormalEquations(NamedTuple):
    """Sums over batches, each divided by its seconds; those of several sets of batches add up.

    Attributes:
        batches: how many.
        squares: float64[3, 3], sums of products of the three regressors.
        products: float64[3], sums of the regressors (the target is 1 for each batch).
    """

    batches: int
    squares: Floats
    products: Floats

    def __add__(self, other: object) -> NormalEquations:
        if not isinstance(other, NormalEquations):
            return NotImplemented
        return NormalEquations(
            self.batches + other.batches, self.squares + other.squares, self.products + other.products
        )


class Fit(NamedTuple):
    """A fitted model.

    Attributes:
        estimates: the shares.
        errors: their standard errors.
        relative_error: the standard deviation of a batch around the model, as a part of its seconds.
        batches: how many were fitted.
    """

    estimates: ServiceTime
    errors: ServiceTime
    relative_error: float
    batches: int


def normal_equations(messages: Floats, subscriptions: Floats, copies: Floats, seconds: Floats) -> NormalEquations:
    """The sums of some batches; batches that took no time are left out."""
    took = seconds > 0
    regressors = np.stack([messages, messages * subscriptions, copies])[:, took] / seconds[took]
    return NormalEquations(int(took.sum()), regressors @ regressors.T, regressors.sum(axis=1))


def fit(equations: NormalEquations) -> Fit:
    """Solve for the shares.

    Raises:
        CapacityError: there are too few batches, or they are too much alike to tell the shares apart.
    """
    if equations.batches <= _SHARES:
        raise CapacityError(f"{equations.batches} batches cannot tell {_SHARES} costs; record more of them")
    scale = np.sqrt(np.diag(equations.squares))
    if not np.all(scale > 0):
        raise CapacityError("no batch had copies or subscriptions: their costs cannot be told")
    scaled = equations.squares / np.outer(scale, scale)
    if np.linalg.cond(scaled) > _WORST_CONDITION:
        raise CapacityError("the batches are too much alike to tell the costs apart; vary subscriptions and copies")
    estimates = np.linalg.solve(scaled, equations.products / scale) / scale
    residual = max(0.0, equations.batches - float(estimates @ equations.products))
    variance = residual / (equations.batches - _SHARES)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(scaled))) / scale
    return Fit(ServiceTime(*estimates.tolist()), ServiceTime(*errors.tolist()), variance**0.5, equations.batches)
