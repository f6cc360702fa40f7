"""What filters cost against the limit of log2(1 / rate) bits per key, and whether they err as often as promised."""

from __future__ import annotations

import math
from time import process_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.filters import (
    TABLE_2,
    BloomFilter,
    RibbonFilter,
    false_positive_rate,
    limit_bits,
    rate_for,
    shape_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["build_costs", "error_rate_measured", "partial_fill", "sizes_against_the_limit"]

EFFECTIVE = 1e-5  # 99.999 %, for a matching set of two
PROBES = 400_000_000
_CHUNK = 4_000_000
FULL = TABLE_2["135K 99.999%"]


def sizes_against_the_limit(seed: int = 1) -> dict[str, Any]:
    """Bits per key over log2(1 / rate) at n = 38,836, for the paper's shape, the best k, and a static filter."""
    rate = rate_for(EFFECTIVE)
    limit = limit_bits(rate) * FULL.n
    keys = np.random.default_rng(seed).integers(0, 2**64, FULL.n, np.uint64)
    static = RibbonFilter.build(keys, rate)
    if not static.contains(keys).all():
        raise SystemExit("the static filter denies a key it was built of")
    return {
        "bloom_full_vs_limit": round(FULL.m / limit, 3),
        "bloom_best_k_vs_limit": round(shape_for(FULL.n, rate).m / limit, 3),
        "static_vs_limit": round(8 * len(bytes(static)) / limit, 3),
    }


def partial_fill(seed: int = 2) -> dict[str, Any]:
    """Bytes per message at a tenth of the capacity over those when full: fixed shape, and sized at the seal."""
    random, rate = np.random.default_rng(seed), rate_for(EFFECTIVE)
    tenth = FULL.n // 10
    few, many = (
        len(bytes(RibbonFilter.build(random.integers(0, 2**64, n, np.uint64), rate))) / n for n in (tenth, FULL.n)
    )
    return {
        "partial_fill_penalty_bloom": round((FULL.m / tenth) / (FULL.m / FULL.n), 2),
        "partial_fill_penalty_sealed": round(few / many, 3),
    }


def error_rate_measured(probes: int = PROBES, filters: int = 20, seed: int = 3) -> dict[str, Any]:
    """The first row of the paper's Table 2, asked very often: how far from Eq. 1, in standard errors."""
    shape = TABLE_2["10K 99.999%"]
    random = np.random.default_rng(seed)
    wrong = asked = 0
    for _ in range(filters):
        made = BloomFilter(shape.m, shape.k)
        made.add(random.integers(0, 2**64, shape.n, np.uint64))
        left = probes // filters
        while left:
            some = min(left, _CHUNK)
            wrong += int(made.contains(random.integers(0, 2**64, some, np.uint64)).sum())
            asked, left = asked + some, left - some
    rate = false_positive_rate(*shape)
    error = math.sqrt(rate * (1 - rate) / asked)
    return {
        "first_row_probes": asked,
        "first_row_rate": wrong / asked,
        "first_row_equation": rate,
        "first_row_standard_errors": round((wrong / asked - rate) / error, 2),
    }


def build_costs(seed: int = 4, rounds: int = 7) -> dict[str, Any]:
    """Processor time per key, the least of some rounds: built, and asked about keys that are not in it."""
    rate = rate_for(EFFECTIVE)
    random = np.random.default_rng(seed)
    keys, others = (random.integers(0, 2**64, FULL.n, np.uint64) for _ in range(2))
    shape = shape_for(FULL.n, rate)

    def build_bloom() -> BloomFilter:
        made = BloomFilter(shape.m, shape.k)
        made.add(keys)
        return made

    def least(work: Callable[[], object]) -> float:
        spent = []
        for _ in range(rounds):
            begun = process_time_ns()
            work()
            spent.append(process_time_ns() - begun)
        return round(min(spent) / FULL.n, 1)

    bloom, ribbon = build_bloom(), RibbonFilter.build(keys, rate)
    return {
        "bloom_build_ns": least(build_bloom),
        "bloom_probe_ns": least(lambda: bloom.contains(others)),
        "ribbon_build_ns": least(lambda: RibbonFilter.build(keys, rate)),
        "ribbon_probe_ns": least(lambda: ribbon.contains(others)),
    }
