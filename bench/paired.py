"""Figures that stand against a drifting machine: each turn is compared with the turns beside it, not with all."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Spread", "against_neighbours", "spread"]


class Spread(NamedTuple):
    """The middle of some values, and the quarter and three quarters below which they lie."""

    low: float
    middle: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Quartiles; a single value is all three.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("quartiles need a value")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(low, median(values), high)


def against_neighbours(turns: Sequence[tuple[str, float]], base: str) -> dict[str, list[float]]:
    """Each turn over the mean of the turns of `base` right before and right after it, by who had the turn.

    A machine that gets slower or faster evenly during three turns does not change such a ratio.

    Args:
        turns: who had it and what came of it, in order; those of `base` stand between all others.
        base: whom the others are compared with.

    Raises:
        ValueError: somebody's turn lacks one of `base` right before or right after.
    """
    found: dict[str, list[float]] = {name: [] for name, _ in turns if name != base}
    for place, (name, value) in enumerate(turns):
        if name == base:
            continue
        beside = [turns[at][1] for at in (place - 1, place + 1) if 0 <= at < len(turns) and turns[at][0] == base]
        if len(beside) != 2:
            raise ValueError(f"turn {place + 1}, of {name}, does not stand between two of {base}")
        found[name].append(2 * value / sum(beside))
    return found
