"""Admission: how much traffic a broker may take so that waits stay within a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["admitted_share", "highest_rate"]

_RELATIVE_PRECISION = 1e-4


def highest_rate(quantile: Callable[[float], float], promise: float, limit: float) -> float:
    """The largest rate at which a quantile of the wait keeps a promise.

    Args:
        quantile: the wait in seconds at a rate; it grows with the rate.
        promise: seconds that it may not exceed.
        limit: messages per second that no queue is stable at, such as 1 / E[B].

    Raises:
        CapacityError: the promise is negative.
    """
    if promise < 0:
        raise CapacityError(f"a wait cannot be at most {promise:g} s")
    low, high = 0.0, limit
    while high - low > _RELATIVE_PRECISION * limit:
        middle = (low + high) / 2
        if quantile(middle) <= promise:
            low = middle
        else:
            high = middle
    return low


def admitted_share(offered: float, measured: float, promise: float, highest: float) -> float:
    """The share of an offered rate that a broker should admit, from a live quantile and the model's highest rate.

    While the measured quantile keeps the promise, everything is admitted. Above it, the model's rate decides. If the
    model is too optimistic (the broker already receives less and still breaks the promise), the measurement decides:
    the share shrinks in proportion to how far the promise is missed.
    """
    if measured <= promise or offered <= 0:
        return 1.0
    by_model = highest / offered
    return min(1.0, by_model if by_model < 1 else promise / measured)
