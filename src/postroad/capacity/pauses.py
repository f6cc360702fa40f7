"""Pauses of a broker's loop: seen under some loads, drawn for others.

In a pause the loop serves nobody: the thread that writes the record has the interpreter, or the machine is elsewhere.
Pauses do not come at random. A commit of the record brings several within some hundredths of a second, then there are
none for most of a second; and a commit of more messages takes longer. The loop meets them when it reads: a load in
bursts, with few reads, meets fewer than one whose messages come one by one. A model that spreads the same pauses evenly
promises quantiles that are too short, because two pauses in a row leave a queue that neither of them would alone.

So pauses are kept as a series in time, one for each load under which the loop was seen, and drawn as they were:
stretches of these series, taken at random, one after the other. Loads with about as many arrivals count most.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["PauseSeries", "arrival_rate", "drawn_pauses"]

# Stretches are several times as long as what a commit of the record takes, so that its pauses stay together, and far
# shorter than a series, so that there are many of them.
STRETCH_SECONDS = 0.25
# How near in rate a load has to be: at a third more or less it counts for a sixth.
NEARNESS = 0.15


class PauseSeries(NamedTuple):
    """The pauses of a loop under one load.

    Attributes:
        rate: arrivals per second; messages that come at once are one arrival.
        seconds: for how long the loop was seen.
        begins: when pauses began, in order; seconds since the beginning.
        lengths: how long each was.
    """

    rate: float
    seconds: float
    begins: Floats
    lengths: Floats


def arrival_rate(times: Floats) -> float:
    """Arrivals per second; messages that come at once are one arrival."""
    return len(np.unique(times)) / max(float(times[-1] - times[0]), 1e-9)


def drawn_pauses(
    series: Sequence[PauseSeries], rate: float, random: np.random.Generator
) -> Iterator[tuple[float, float]]:
    """When pauses begin and how long they are, for ever, under a load of this rate."""
    seen = [one for one in series if one.seconds > 0]
    if not any(len(one.begins) for one in seen):
        return itertools.repeat((math.inf, 0.0))
    # All equally far away are equally near: only differences count.
    far = np.array([(math.log(max(one.rate, 1e-9) / max(rate, 1e-9)) / NEARNESS) ** 2 / 2 for one in seen])
    weights = np.array([one.seconds for one in seen]) * np.exp(far.min() - far)
    return _stretches(seen, weights / weights.sum(), random)


def _stretches(
    series: Sequence[PauseSeries], weights: Floats, random: np.random.Generator
) -> Iterator[tuple[float, float]]:
    at = 0.0
    while True:
        one = series[random.choice(len(series), p=weights)]
        length = min(STRETCH_SECONDS, one.seconds)
        start = random.uniform(0, one.seconds)
        # Behind the end of a series comes its beginning, so that all parts of it are drawn equally often.
        over = start + length - one.seconds
        for since, until, shift in ((start, start + length, at - start), (0.0, over, at - start + one.seconds)):
            first, last = np.searchsorted(one.begins, [since, until]).tolist()
            for place in range(first, last):
                yield float(one.begins[place]) + shift, float(one.lengths[place])
        at += length
        # A stretch without pauses says so: a simulation must not wait for one that never comes.
        yield at, 0.0
