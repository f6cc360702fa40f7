"""Quantiles of counts in buckets, each with the interval that its rank leaves open.

Sketches are merged by adding their counts; percentiles are never averaged. Of n independent values the p-quantile has a
rank between n p - z s and n p + z s, s = sqrt(n p (1 - p)); the values at both ranks bound it. Bursts make values
depend on each other and the true interval wider.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Quantile", "sketch_quantile"]

# The 0.975-quantile of the normal distribution: two-sided 95 %.
Z_95 = 1.959964


class Quantile(NamedTuple):
    """A quantile and its 95 % interval: upper limits of buckets."""

    value: float
    low: float
    high: float
    total: int


def sketch_quantile(counts: NDArray[np.int64], limits: NDArray[np.int64] | NDArray[np.float64], p: float) -> Quantile:
    """The p-quantile of values counted in buckets.

    Args:
        counts: values in each bucket.
        limits: the largest value of each bucket, ascending.
        p: between 0 and 1.
    """
    total = int(counts.sum())
    if not total:
        return Quantile(math.nan, math.nan, math.nan, 0)
    below = np.cumsum(counts)
    spread = Z_95 * math.sqrt(total * p * (1 - p))
    ranks = [min(total, max(1, math.ceil(total * p + shift))) for shift in (0.0, -spread, spread)]
    value, low, high = (float(limits[int(np.searchsorted(below, rank))]) for rank in ranks)
    return Quantile(value, low, high, total)
