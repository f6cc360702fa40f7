"""The figures of Menth and Henjes, recomputed: the curves of their printed formulas after correction.

Each figure is data, a few named curves over one axis; `report.figures_report` draws them. The paper prints no tables of
its figures, so tests can only check what its text says about them: end points, order and crossings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.grid import paper_ssr_capacity, publisher_side, subscriber_side
from postroad.capacity.moments import Moments
from postroad.capacity.replication import Binomial, ScaledBernoulli, binomial_third_moment
from postroad.capacity.service_time import ServiceTime
from postroad.capacity.single_server import SingleServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["CORRELATION", "PROPERTY", "Curve", "Figure", "paper_figures"]

# Table I of the paper: seconds to receive a message, to test one filter, and to send one copy.
CORRELATION = ServiceTime(8.52e-7, 7.02e-6, 1.70e-5)
PROPERTY = ServiceTime(4.10e-6, 1.46e-5, 1.62e-5)
_KINDS = {"correlation id": CORRELATION, "application property": PROPERTY}

# The paper's measured grid (Figure 4), and the variations of the service time that its later figures compare.
_MEASURED_COPIES = (1, 2, 5, 10, 20, 40)
_MEASURED_EXTRA = (5, 10, 20, 40, 80, 160)
_MEAN_COPIES = (1, 10, 100, 1_000)
_PROBABILITIES = (0.01, 0.1, 0.226, 0.5, 0.9)
_VARIATIONS = (0.0, 0.2, 0.4)
_UTILISATION = 0.9
_FILTERS_PER_SUBSCRIBER = 10


class Curve(NamedTuple):
    """One line of a figure."""

    name: str
    across: Floats
    up: Floats


class Figure(NamedTuple):
    """What one figure of the paper shows.

    Attributes:
        number: the paper's.
        title: what is shown.
        across: what the horizontal axis is, with its unit.
        up: what the vertical axis is.
        curves: the lines.
        logarithmic: which axes have a logarithmic scale: "", "x", "y" or "xy".
        remark: where the paper contradicts its own formulas; empty if it does not.
    """

    number: int
    title: str
    across: str
    up: str
    curves: tuple[Curve, ...]
    logarithmic: str
    remark: str = ""


def paper_figures() -> tuple[Figure, ...]:
    """Figures 4 to 6, 8 to 12 and 15, in order."""
    return (
        _throughput(),
        _service_times(),
        _capacities(),
        _bernoulli_variations(),
        _binomial_variations(),
        _mean_waits(),
        _wait_tails(),
        _wait_quantiles(),
        _architectures(),
    )


def _throughput() -> Figure:
    curves = []
    for kind, costs in _KINDS.items():
        for copies in _MEASURED_COPIES:
            extra = np.array(_MEASURED_EXTRA, np.float64)
            rates = [(copies + 1) / costs.mean(filters + copies, copies) for filters in extra]
            curves.append(Curve(f"{kind}, R = {copies}", extra + copies, np.array(rates)))
    remark = (
        "The text puts property filters at about 50 % of correlation ids. By Table I it is 48 to 76 %, and 50 % only"
        " where filters dominate."
    )
    return Figure(4, "Overall throughput", "filters", "messages/s in and out", tuple(curves), "x", remark)


def _service_times() -> Figure:
    filters = np.logspace(0, 4, 60)
    curves = [
        Curve(f"{kind}, E[R] = {copies:,}", filters, np.array([costs.mean(count, copies) for count in filters]))
        for kind, costs in _KINDS.items()
        for copies in _MEAN_COPIES
    ]
    return Figure(5, "Mean service time", "filters", "E[B] in s", tuple(curves), "xy")


def _capacities() -> Figure:
    filters = np.logspace(0, 4, 60)
    curves = [
        Curve(
            f"E[R] = {copies:,}",
            filters,
            np.array([CORRELATION.capacity(count, copies, _UTILISATION) for count in filters]),
        )
        for copies in _MEAN_COPIES
    ]
    remark = (
        "Ten unfiltered copies cost as much as 21.8 filters with one copy, a hundred as much as 239.7: the printed 22"
        " and 240."
    )
    return Figure(6, "Capacity at 90 %, correlation ids", "filters", "messages/s", tuple(curves), "xy", remark)


def _bernoulli_variations() -> Figure:
    remark = (
        "The largest value is 0.6546, for correlation ids and p = 0.226; 0.382 for properties. Eq. 8 as printed lacks"
        " a factor 2 and would give negative variances."
    )
    curves = _variations(lambda filters, p: ScaledBernoulli(float(filters), p).moments())
    return Figure(8, "Variation of the service time: all filters or none", *_VARIATION_AXES, curves, "x", remark)


def _binomial_variations() -> Figure:
    remark = "The text has values fall to 0.064 and 0.033. There is no such limit: they fall as 1 / sqrt(filters)."
    curves = _variations(lambda filters, p: Binomial(filters, p).moments())
    return Figure(9, "Variation of the service time: independent filters", *_VARIATION_AXES, curves, "x", remark)


_VARIATION_AXES = ("filters", "coefficient of variation of B")


def _variations(grade: Callable[[int, float], Moments]) -> tuple[Curve, ...]:
    filters = np.unique(np.logspace(0, 4, 60).astype(np.int64))
    curves = []
    for kind, costs in _KINDS.items():
        for p in _PROBABILITIES:
            up = []
            for count in filters.tolist():
                copies = grade(count, p)
                fixed = costs.receive + count * costs.match
                up.append(copies.shifted_and_scaled(fixed, costs.send).variation)
            curves.append(Curve(f"{kind}, p = {p:g}", filters.astype(np.float64), np.array(up)))
    return tuple(curves)


def _service(variation: float, family: str) -> Moments:
    """A service of mean 1 with this variation: D + s · R, with R of a family and of mean 1, as in Figure 10's scenario.

    The scenario has 100 correlation-id filters and one copy, so that sending is a share of 0.0236 of the service.
    With it no grade reaches a variation of 0.2 unless E[R²] is large; the family extrapolates its third moment.
    """
    sending = CORRELATION.send / CORRELATION.mean(100, 1)
    second = 1 + (variation / sending) ** 2
    if family == "binomial":
        third = binomial_third_moment(1.0, second)
    elif family == "scaled Bernoulli":
        third = second**2
    else:
        raise CapacityError(f"there is no family {family!r} in the paper")
    return Moments(1.0, second, third).shifted_and_scaled(1 - sending, sending)


def _utilisations() -> Floats:
    return np.linspace(0.02, 0.95, 60)


def _mean_waits() -> Figure:
    used = _utilisations()
    curves = [
        Curve(
            f"c = {variation:g}",
            used,
            np.array([SingleServer(rho, _service(variation, "binomial")).mean_wait() for rho in used]),
        )
        for variation in _VARIATIONS
    ]
    remark = (
        "At 90 %: 4.50, 4.68 and 5.22. The text takes this for the mean queue length, which is utilisation times as"
        " much. With 100 filters and one copy on average, no replication grade reaches c = 0.4."
    )
    return Figure(10, "Mean wait", "utilisation", "E[W] / E[B]", tuple(curves), "", remark)


def _wait_tails() -> Figure:
    waits = np.linspace(0, 60, 121)
    curves = []
    for variation in _VARIATIONS:
        for family in ("binomial", "scaled Bernoulli"):
            wait = SingleServer(_UTILISATION, _service(variation, family)).wait()
            up = np.array([1 - wait.at_most(float(at)) for at in waits])
            curves.append(Curve(f"c = {variation:g}, {family}", waits, up))
    remark = "The shape of the Gamma distribution is 1 / c², not 1 / c as Eq. 20 prints."
    return Figure(11, "Messages that wait longer, at 90 %", "W / E[B]", "P(W > t)", tuple(curves), "y", remark)


def _wait_quantiles() -> Figure:
    used = _utilisations()
    curves = [
        Curve(f"{100 * p:g} %, c = {variation:g}", used, np.array(_quantiles(used, p, variation)))
        for p in (0.99, 0.9999)
        for variation in _VARIATIONS
    ]
    remark = "The 99.99 % quantile at 90 % stays below 50 services for c = 0 and 0.2, not for c = 0.4."
    return Figure(12, "Quantiles of the wait", "utilisation", "W / E[B]", tuple(curves), "", remark)


def _quantiles(used: Iterable[float], p: float, variation: float) -> list[float]:
    return [SingleServer(rho, _service(variation, "binomial")).quantile(p) for rho in used]


def _architectures() -> Figure:
    publishers = np.unique(np.logspace(0, 4, 60).astype(np.int64))
    across = publishers.astype(np.float64)
    curves = []
    for subscribers in (10, 100, 1_000, 10_000):
        up = [
            publisher_side(CORRELATION, count, subscribers, _FILTERS_PER_SUBSCRIBER, 1).capacity(_UTILISATION)
            for count in publishers.tolist()
        ]
        curves.append(Curve(f"publisher side, {subscribers:,} subscribers", across, np.array(up)))
    printed = paper_ssr_capacity(CORRELATION, _FILTERS_PER_SUBSCRIBER, 1, _UTILISATION)
    curves.append(Curve("subscriber side, as printed", across, np.full(len(across), printed)))
    own = subscriber_side(CORRELATION, 1, 10_000, _FILTERS_PER_SUBSCRIBER, 1).capacity(_UTILISATION)
    curves.append(Curve("subscriber side, own copies only", across, np.full(len(across), own)))
    remark = (
        "Lines cross at 8.2, 80, 797 and 7,973 publishers by the printed equations; at 9.9, 99, 988 and 9,880 when a"
        " subscriber's server is charged its own copies only. With 10,000 subscribers a publisher's server carries"
        " 1.28 messages/s, not 7."
    )
    return Figure(15, "Servers at publishers or subscribers", "publishers", "messages/s", tuple(curves), "xy", remark)
