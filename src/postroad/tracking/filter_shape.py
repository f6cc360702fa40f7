"""The shape of the filters of `bloom`, from whatever an operator knows about it."""

from __future__ import annotations

from postroad.filters import (
    MAX_HASHES,
    MAX_POSITIONS,
    Shape,
    best_hashes,
    bits_for,
    capacity_for,
    effective_rate,
    false_positive_rate,
    rate_for,
    shape_for,
)
from postroad.tracking.settings import HistorySettings, TrackingError

__all__ = ["MAX_EFFECTIVE", "shape_of"]

# Above this rate an answer means nothing.
MAX_EFFECTIVE = 0.5
# So that a rate printed with three digits is never below the one meant.
_ROUNDING = 1.005
# The paper's largest filters, and what they are made for: 99.999 % over a matching set of two.
_DEFAULT = HistorySettings()


def shape_of(
    bits: int | None = None,
    hashes: int | None = None,
    keys: int | None = None,
    effective: float | None = None,
    matching_set: int = _DEFAULT.matching_set,
) -> Shape:
    """The m, k and n of a filter; what is None follows from the rest.

    An error rate and m, or n, give the best two others; with k the one other. m and n give the best k. Where an error
    rate is given besides m and n, they must keep to it.

    Args:
        bits: m.
        hashes: k.
        keys: n.
        effective: the error rate of a whole matching set; 99.999 % sure where it is needed and not given.
        matching_set: how many filters are expected to cover one id time.

    Raises:
        TrackingError: they contradict each other, or no filter can be so large.
    """
    wanted = _DEFAULT.effective if effective is None else effective
    rate = rate_for(wanted, matching_set)
    if (bits, hashes, keys, effective, matching_set) == (None, None, None, None, _DEFAULT.matching_set):
        return _DEFAULT.shape
    if bits is not None:
        shape = _within(bits, hashes, keys, rate)
        if keys is None or effective is not None:
            _check(shape, wanted, matching_set)
    else:
        n = _DEFAULT.shape.n if keys is None else keys
        shape = shape_for(n, rate) if hashes is None else Shape(bits_for(n, rate, hashes), hashes, n)
    if shape.m > MAX_POSITIONS:
        raise TrackingError(
            f"{shape.n:,} keys with an error rate of {wanted:g} over {matching_set} filters need {shape.m:,} bits; a "
            f"filter has {MAX_POSITIONS:,} at most: want fewer keys, another number of hashes, or a larger error rate"
        )
    return shape


def _within(bits: int, hashes: int | None, keys: int | None, rate: float) -> Shape:
    if keys is not None:
        return Shape(bits, best_hashes(bits, keys) if hashes is None else hashes, keys)
    if hashes is not None:
        return Shape(bits, hashes, max(1, capacity_for(bits, hashes, rate)))
    return max((Shape(bits, k, max(1, capacity_for(bits, k, rate))) for k in range(1, MAX_HASHES + 1)), key=_by_keys)


def _by_keys(shape: Shape) -> tuple[int, int]:
    # Of two that hold as much, the one with less work.
    return shape.n, -shape.k


def _check(shape: Shape, wanted: float, matching_set: int) -> None:
    """The inverse: what the three numbers give must be what is asked for."""
    given = effective_rate(false_positive_rate(*shape), matching_set)
    if given <= wanted:
        return
    rate = rate_for(wanted, matching_set)
    fitting = capacity_for(shape.m, shape.k, rate)
    ways = [f"at most {fitting:,} keys"] if fitting else []
    ways.append(f"{bits_for(shape.n, rate, shape.k):,} bits")
    if given < MAX_EFFECTIVE:
        ways.append(f"an error rate of {given * _ROUNDING:.3g}")
    raise TrackingError(
        f"filters of {shape.m:,} bits, {shape.k} hashes and {shape.n:,} keys err at a rate of {given:.3g} over "
        f"{matching_set} filters, and {wanted:g} is wanted: choose {', or '.join(ways)}"
    )
