"""The service time of a broker, fitted to sampled batches.

A message costs a share for being received, one for each resident subscription, and one for each copy sent:
E[B] = receive + subscriptions * match + copies * send (the model of Menth and Henjes for JMS servers). A sampled batch
tells its messages, subscriptions, copies and seconds, so that all three shares follow by least squares.

Errors of measurement grow with what is measured, so each batch counts by its relative error: it is divided by its own
seconds. The sums that this needs add up over batches, files and brokers, in any order: Spark can make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["CapacityError", "Fit", "NormalEquations", "ServiceTime", "fit", "normal_equations"]

_SHARES = 3
# Beyond this condition number the batches do not tell the shares apart: the digits of the sums are used up.
_WORST_CONDITION = 1e10


class CapacityError(PostroadError):
    """A model cannot be fitted to, or computed from, what was given."""


class ServiceTime(NamedTuple):
    """Seconds that a message costs."""

    receive: float
    match: float
    send: float

    def mean(self, subscriptions: float, copies: float) -> float:
        """E[B], the mean seconds for a message with so many subscriptions resident and so many copies."""
        return self.receive + subscriptions * self.match + copies * self.send

    def capacity(self, subscriptions: float, copies: float, utilisation: float = 0.9) -> float:
        """Messages per second that keep a broker busy for the given share of its time."""
        return utilisation / self.mean(subscriptions, copies)


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
