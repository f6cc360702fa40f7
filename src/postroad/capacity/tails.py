"""Exact distributions of waiting times, by numerical inversion of their Laplace transforms.

The Pollaczek-Khinchine formula gives the transform of the waiting time from that of the service time:
E[exp(-s W)] = (1 - rho) s / (s - rate + rate · E[exp(-s B)]). Euler summation (Abate and Whitt, 1995) turns the
transform of P(W > t) into values: a Fourier series on a vertical line, whose alternating tail is averaged with binomial
weights. Its discretisation error is about exp(-`_LINE`); what is left is rounding, some 1e-9. Service times that take a
few fixed values leave kinks in the distribution, and near a kink (the first few service times) the error can reach
1e-3. Quantiles of the tail lie far beyond.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import check_probability

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Complex = NDArray[np.complex128]

__all__ = ["invert", "waiting_quantile", "waiting_tail"]

Transform: TypeAlias = "Callable[[Complex], Complex]"

# exp(-18.4) = 1e-8: beyond that, rounding dominates discretisation.
_LINE = 18.4
# Terms summed plainly, and terms whose partial sums are averaged. Kinks need more than the 15 and 11 of the paper.
_PLAIN_TERMS = 400
_AVERAGED_TERMS = 12
# Bisection ends when the quantile is known to this part of itself.
_RELATIVE_PRECISION = 1e-6


def invert(transform: Transform, at: float) -> float:
    """The value at `at` > 0 of a bounded function with this Laplace transform."""
    terms = np.arange(_PLAIN_TERMS + _AVERAGED_TERMS + 1)
    real = _LINE / (2 * at)
    values = transform((real + 1j * np.pi * terms / at).astype(np.complex128)).real
    signed = np.where(terms % 2, -1.0, 1.0) * values
    signed[0] /= 2
    sums = np.cumsum(signed)[_PLAIN_TERMS:]
    weights = np.array([math.comb(_AVERAGED_TERMS, k) for k in range(_AVERAGED_TERMS + 1)]) / 2**_AVERAGED_TERMS
    return float(math.exp(_LINE / 2) / at * np.dot(weights, sums))


def waiting_tail(rate: float, service: Transform, utilisation: float, seconds: float) -> float:
    """P(W > seconds) of an M/G/1 queue.

    Args:
        rate: arrivals per second.
        service: E[exp(-s B)] as a function of s.
        utilisation: rho = rate · E[B], below 1.
        seconds: at least 0.
    """
    if not 0 <= utilisation < 1:
        raise CapacityError(f"at a utilisation of {utilisation:g} the waiting time has no distribution")
    if seconds <= 0:
        return utilisation

    def tail(s: Complex) -> Complex:
        wait = (1 - utilisation) * s / (s - rate + rate * service(s))
        return (1 - wait) / s

    return min(utilisation, max(0.0, invert(tail, seconds)))


def waiting_quantile(rate: float, service: Transform, utilisation: float, p: float, guess: float) -> float:
    """The p-quantile of the waiting time, found by bisection; `guess` is any positive time of the right order."""
    check_probability(p)
    if p <= 1 - utilisation:
        return 0.0
    low, high = 0.0, guess
    while waiting_tail(rate, service, utilisation, high) > 1 - p:
        low, high = high, 2 * high
    while high - low > _RELATIVE_PRECISION * high:
        middle = (low + high) / 2
        if waiting_tail(rate, service, utilisation, middle) > 1 - p:
            low = middle
        else:
            high = middle
    return high
