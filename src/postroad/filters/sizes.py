"""How large a filter must be, and how sure its answers are.

The two equations are those of Jun and Astley's message tracking: the false-positive rate of one filter, and that of the
*matching set*, the filters of a history whose time ranges all contain the time asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "TABLE_2",
    "Shape",
    "best_hashes",
    "bits_for",
    "capacity_for",
    "effective_rate",
    "false_positive_rate",
    "filled_rate",
    "limit_bits",
    "rate_for",
    "shape_for",
]


class Shape(NamedTuple):
    """The three numbers of a Bloom filter: bits m, positions per key k, and the keys n it is made for."""

    m: int
    k: int
    n: int


# The paper's Table 2: limits of 10,000 and 135,000 bytes, accuracies of 99.999, 99 and 95 % with a matching set of two.
# Its k follows from how many positions one MD5 digest gives (8 of 16 bits, 6 of 20), not from the best error rate.
TABLE_2 = {
    "10K 99.999%": Shape(1 << 16, 16, 2521),
    "10K 99%": Shape(1 << 16, 8, 5461),
    "10K 95%": Shape(1 << 16, 8, 7281),
    "135K 99.999%": Shape(1 << 20, 12, 38836),
    "135K 99%": Shape(1 << 20, 6, 87381),
    "135K 95%": Shape(1 << 20, 6, 131072),
}

# Eq. 1 falls with k up to the best k and rises after it; no sensible error rate needs more.
_MOST_HASHES = 64
_LEAST_BITS = 64


def false_positive_rate(m: int, k: int, n: float) -> float:
    """Eq. 1: the rate at which a filter of m bits with n keys of k positions each says yes to a key it never got."""
    return (-math.expm1(k * n * math.log1p(-1 / m))) ** k


def filled_rate(m: int, k: int, ones: int) -> float:
    """The false-positive rate of a filter as it is: `ones` of its m bits are set."""
    return float((ones / m) ** k)


def effective_rate(rate: float, matching_set: int = 2) -> float:
    """Eq. 2: the rate at which at least one filter of a matching set errs."""
    return -math.expm1(matching_set * math.log1p(-rate)) if rate < 1 else 1.0


def rate_for(effective: float, matching_set: int = 2) -> float:
    """The inverse of Eq. 2: the rate each filter may have.

    Raises:
        ValueError: the rate is not between 0 and 1, or the set is empty.
    """
    if not 0 < effective < 1 or matching_set < 1:
        raise ValueError(
            f"an error rate of {effective} over {matching_set} filters: want one between 0 and 1, over 1 or more"
        )
    return -math.expm1(math.log1p(-effective) / matching_set)


def limit_bits(rate: float) -> float:
    """The bits per key below which no filter of that error rate can go: log2(1 / rate)."""
    return -math.log2(rate)


def best_hashes(m: int, n: float) -> int:
    """The k of the least error rate for m bits and n keys."""
    near = m / n * math.log(2)
    candidates = {min(max(1, choice), _MOST_HASHES) for choice in (math.floor(near), math.ceil(near))}
    return min(candidates, key=lambda k: false_positive_rate(m, k, n))


def bits_for(n: int, rate: float, k: int) -> int:
    """The fewest bits, of a whole word or more, that keep n keys of k positions each within an error rate."""
    # Eq. 1 solved for m: (1 - 1/m)^(kn) = 1 - rate^(1/k).
    m = max(_LEAST_BITS, math.ceil(-1 / math.expm1(math.log1p(-(rate ** (1 / k))) / (k * max(n, 1)))))
    while m > _LEAST_BITS and false_positive_rate(m - 1, k, n) <= rate:
        m -= 1
    while false_positive_rate(m, k, n) > rate:
        m += 1
    return m


def capacity_for(m: int, k: int, rate: float) -> int:
    """The most keys of k positions each that m bits hold within an error rate."""
    n = math.floor(math.log1p(-(rate ** (1 / k))) / (k * math.log1p(-1 / m)))
    while n > 0 and false_positive_rate(m, k, n) > rate:
        n -= 1
    while false_positive_rate(m, k, n + 1) <= rate:
        n += 1
    return n


def shape_for(n: int, rate: float) -> Shape:
    """The smallest Bloom filter for n keys within an error rate."""
    # The best k is near log2(1 / rate); bits differ by less than a thousandth around it.
    near = limit_bits(rate)
    ks = {min(max(1, choice), _MOST_HASHES) for choice in (math.floor(near), math.ceil(near))}
    m, k = min((bits_for(n, rate, k), k) for k in ks)
    return Shape(m, k, n)
