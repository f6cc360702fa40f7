"""Fits costs to sampled batches by weighted least squares, with honest intervals.

Measurement errors grow with what is measured, so each batch counts by its relative error: its regressors are divided by
its seconds, and the target is 1. A fit only needs sums over batches (`NormalEquations`), which add up over files and
brokers in any order: Spark computes the same sums as numpy. Costs are not negative; a cost that unconstrained least
squares would make negative is 0.

Intervals come from a bootstrap over groups of batches. Batches that follow each other are alike (the same caches, the
same neighbours on the machine), so whole groups are drawn, not batches: an interval from single batches would be too
narrow. A cost whose interval is wider than half of it on either side is reported as not identified by the data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.costs import FORMS, BatchCosts
from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.capacity.costs import BatchSamples, CostForm

    Floats = NDArray[np.float64]

__all__ = [
    "GROUPS",
    "CostFit",
    "NormalEquations",
    "compare",
    "fit_costs",
    "fit_every_form",
    "group_of",
    "normal_equations",
]

# Groups of batches for the bootstrap, by the second in which they were sampled. Some dozens are enough for an interval
# of 95 %; more would only make the groups smaller.
GROUPS = 64
_ROUNDS = 400
_FOLDS = 5
# A cost is not identified if its interval reaches further than this part of its estimate.
_IDENTIFIED = 0.5
# A standard error this many times as large as without the other terms: the terms are nearly proportional.
_INFLATED = 1e4
# Added to the diagonal of equations that are scaled to 1: exactly proportional terms (bytes and messages, if all
# messages have one size) get equal parts, whatever the rounding. Below `_INFLATED` to the power of -2.
_RIDGE = 1e-9


class NormalEquations(NamedTuple):
    """Sums over batches, each divided by its seconds; the sums of several sets of batches can be added.

    Attributes:
        batches: how many.
        squares: float64[k, k], sums of products of the regressors.
        products: float64[k], sums of the regressors (the target is 1 for each batch).
    """

    batches: int
    squares: Floats
    products: Floats

    @classmethod
    def empty(cls, terms: int) -> NormalEquations:
        """The sums over no batch."""
        return cls(0, np.zeros((terms, terms)), np.zeros(terms))

    def __add__(self, other: object) -> NormalEquations:
        if not isinstance(other, NormalEquations):
            return NotImplemented
        return NormalEquations(
            self.batches + other.batches, self.squares + other.squares, self.products + other.products
        )

    def squared_error(self, estimates: Floats) -> float:
        """Return the sum of squared relative errors of these costs."""
        left = self.batches - 2 * estimates @ self.products + estimates @ self.squares @ estimates
        return max(0.0, float(left))


class CostFit(NamedTuple):
    """A fitted form.

    Attributes:
        form: which.
        estimates: seconds by term.
        errors: standard errors by term, from the equations.
        low: the lower end of each term's 95 % interval, from the bootstrap.
        high: the upper end.
        relative_error: the standard deviation of a batch around the model, as a part of its seconds.
        predicted_error: the same for batches that the fit had not seen, by cross-validation.
        batches: how many were fitted.
        unidentified: terms that the data do not identify, each with the reason.
    """

    form: CostForm
    estimates: dict[str, float]
    errors: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    relative_error: float
    predicted_error: float
    batches: int
    unidentified: dict[str, str]

    def costs(self) -> BatchCosts:
        """The estimates as costs to compute with."""
        return BatchCosts.of(self.estimates)


def group_of(at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bootstrap group of a batch, by the second it was sampled in."""
    return np.asarray(at_ms // 1_000 % GROUPS)


def normal_equations(samples: BatchSamples, form: CostForm) -> NormalEquations:
    """The sums of some batches; batches that took no time are left out."""
    taken = samples.rows(samples.seconds > 0)
    scaled = form.regressors(taken) / taken.seconds
    return NormalEquations(len(taken.seconds), scaled @ scaled.T, scaled.sum(axis=1))


def fit_costs(groups: Sequence[NormalEquations], form: CostForm, seed: int = 0) -> CostFit:
    """Fit a form to groups of batches.

    Args:
        groups: the sums of each group; one group alone gives no intervals beyond the standard errors.
        form: what they are the sums for.
        seed: of the bootstrap.

    Raises:
        CapacityError: there are too few batches for the terms, or they carry no information.
    """
    filled = [group for group in groups if group.batches]
    whole = _sum(filled, len(form.terms))
    if whole.batches <= len(form.terms):
        raise CapacityError(
            f"{whole.batches} batches cannot tell the {len(form.terms)} costs of the form {form.name!r}: record more"
        )
    estimates = _solve(whole)
    variance = whole.squared_error(estimates) / (whole.batches - len(form.terms))
    errors = _standard_errors(whole, variance)
    low, high = _bootstrap(filled, len(form.terms), seed)
    named = dict(zip(form.terms, estimates.tolist(), strict=True))
    return CostFit(
        form,
        named,
        dict(zip(form.terms, errors.tolist(), strict=True)),
        dict(zip(form.terms, low.tolist(), strict=True)),
        dict(zip(form.terms, high.tolist(), strict=True)),
        math.sqrt(variance),
        _cross_validated(filled, len(form.terms)),
        whole.batches,
        _unidentified(form, whole, estimates, errors, (low, high)),
    )


def compare(fits: Sequence[CostFit]) -> CostFit:
    """Return the form that the data support: the one that predicts unseen batches best.

    A form with more terms must win by more than a percent of the error; otherwise the simpler one is chosen.
    """
    simplest_first = sorted(fits, key=lambda fit: len(fit.form.terms))
    best = simplest_first[0]
    for other in simplest_first[1:]:
        if other.predicted_error < 0.99 * best.predicted_error:
            best = other
    return best


def fit_every_form(samples: BatchSamples, groups: NDArray[np.int64], seed: int = 0) -> list[CostFit]:
    """A fit of each form to batches in memory."""
    fits = []
    for form in FORMS:
        sums = [normal_equations(samples.rows(groups == group), form) for group in np.unique(groups)]
        fits.append(fit_costs(sums, form, seed))
    return fits


def _sum(groups: Sequence[NormalEquations], terms: int) -> NormalEquations:
    total = NormalEquations.empty(terms)
    for group in groups:
        total = total + group
    return total


def _solve(sums: NormalEquations) -> Floats:
    """Return the non-negative costs with the least squared error."""
    from scipy.optimize import nnls

    scale = np.sqrt(np.diag(sums.squares))
    seen = scale > 0
    found = np.zeros(len(scale))
    if not seen.any():
        raise CapacityError("no batch had any message: there is nothing to fit")
    scaled = sums.squares[np.ix_(seen, seen)] / np.outer(scale[seen], scale[seen])
    factor = np.linalg.cholesky(scaled + _RIDGE * np.eye(len(scaled)))
    target = np.linalg.solve(factor, sums.products[seen] / scale[seen])
    found[seen] = nnls(factor.T, target)[0] / scale[seen]
    return found


def _standard_errors(sums: NormalEquations, variance: float) -> Floats:
    scale = np.sqrt(np.diag(sums.squares))
    errors = np.full(len(scale), math.inf)
    seen = scale > 0
    scaled = sums.squares[np.ix_(seen, seen)] / np.outer(scale[seen], scale[seen])
    # Columns that are nearly equal leave entries as large as 1 / ridge: errors which say that nothing is known.
    inverse = np.linalg.inv(scaled + _RIDGE * np.eye(len(scaled)))
    errors[seen] = np.sqrt(np.clip(variance * np.diag(inverse), 0, None)) / scale[seen]
    return errors


def _bootstrap(groups: Sequence[NormalEquations], terms: int, seed: int) -> tuple[Floats, Floats]:
    """95 % intervals of the costs, from groups drawn with replacement."""
    random = np.random.default_rng(seed)
    squares = np.stack([group.squares for group in groups])
    products = np.stack([group.products for group in groups])
    batches = np.array([group.batches for group in groups])
    found = np.empty((_ROUNDS, terms))
    for number in range(_ROUNDS):
        times = np.bincount(random.integers(0, len(groups), len(groups)), minlength=len(groups)).astype(np.float64)
        drawn = NormalEquations(
            int(times @ batches), np.tensordot(times, squares, axes=1), np.tensordot(times, products, axes=1)
        )
        found[number] = _solve(drawn)
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return low, high


def _cross_validated(groups: Sequence[NormalEquations], terms: int) -> float:
    """The relative error of batches that a fit to the other folds did not see; NaN with fewer groups than folds."""
    if len(groups) < _FOLDS:
        return math.nan
    squared, batches = 0.0, 0
    for fold in range(_FOLDS):
        seen = _sum([group for place, group in enumerate(groups) if place % _FOLDS != fold], terms)
        unseen = _sum(groups[fold::_FOLDS], terms)
        squared += unseen.squared_error(_solve(seen))
        batches += unseen.batches
    return math.sqrt(squared / batches)


def _unidentified(
    form: CostForm, sums: NormalEquations, estimates: Floats, errors: Floats, interval: tuple[Floats, Floats]
) -> dict[str, str]:
    found = {}
    low, high = interval
    deviation = math.sqrt(sums.squared_error(estimates) / sums.batches)
    for place, term in enumerate(form.terms):
        if not sums.squares[place, place] > 0:
            found[term] = "no batch had any of it"
        elif errors[place] * math.sqrt(sums.squares[place, place]) > _INFLATED * deviation:
            found[term] = "other terms grow in the same proportion in all batches; vary them apart"
        elif high[place] - low[place] > 2 * _IDENTIFIED * max(float(estimates[place]), 1e-300):
            found[term] = (
                f"between {low[place]:.3g} and {high[place]:.3g} s by the data; vary what it depends on, or record more"
            )
    return found
