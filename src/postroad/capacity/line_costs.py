"""What reads cost brokers in a line on one processor, from the times at which messages went in and came out at its end.

What happens between the brokers does not show in these times, so costs are found by playing: those are chosen with
which `loop_ends` gives the same distribution of times as was seen under each load. Quantiles up to 85 % count, because
pauses are beyond them. All brokers of a line are taken to cost the same.

With these costs each load is played again at its own times of arrival. Where messages took much longer than that, there
was a pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.loop_costs import LoopCosts, fit_loop
from postroad.capacity.loop_queue import loop_ends
from postroad.capacity.pauses import PauseSeries, arrival_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.capacity.loop_costs import TimedLoad

    Floats = NDArray[np.float64]

__all__ = ["fit_line"]

# A message that took this many seconds more at each broker than the costs say, and this part of all of them as well,
# met a pause. Costs that are a little off let a message miss a read now and then: that is shorter.
PAUSE_SECONDS = 250e-6
PAUSE_PART = 0.5
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.85)
# Messages of a load that are played to compare: enough for its 85 % quantile to within some percent.
_PLAYED = 1_500
# How often a set of costs is tried. The search begins within a factor of two and ends within a percent by then.
_TRIES = 120


def fit_line(loads: Sequence[TimedLoad], brokers: int) -> LoopCosts:
    """The costs of each of this many brokers in a line on one processor.

    Raises:
        CapacityError: too few messages.
    """
    # Scipy is an extra of this package.
    from scipy.optimize import minimize

    played = [_begin(load) for load in loads if load.counted.sum() >= len(_QUANTILES)]
    if not played:
        raise CapacityError("no load has enough messages to tell what they cost the brokers of a line")
    seen = [np.quantile((load.out - load.sent)[load.counted], _QUANTILES) for load in played]
    whole = fit_loop(loads)

    def off(logarithms: Floats) -> float:
        costs = LoopCosts(*np.exp(logarithms).tolist())
        total = 0.0
        for load, meant in zip(played, seen, strict=True):
            took = (loop_ends(costs, load.sent, brokers=brokers) - load.sent)[load.counted]
            # Not squares: a load that was disturbed as a whole is not to draw all costs towards it.
            total += float(np.abs(np.log(np.quantile(took, _QUANTILES) / meant)).sum())
        return total

    # As if the line were one loop: a third of it for each of three brokers.
    start = np.log(np.maximum([whole.first, whole.further / 4, whole.wake], 1e-7) / brokers)
    found = minimize(off, start, method="Nelder-Mead", options={"maxfev": _TRIES, "xatol": 0.005, "fatol": 1e-5})
    costs = LoopCosts(*np.exp(found.x).tolist())
    return costs._replace(pauses=[_pauses(costs, load, brokers) for load in loads])


def _begin(load: TimedLoad) -> TimedLoad:
    return load._replace(sent=load.sent[:_PLAYED], out=load.out[:_PLAYED], counted=load.counted[:_PLAYED])


def _pauses(costs: LoopCosts, load: TimedLoad, brokers: int) -> PauseSeries:
    """A message that took longer than at these costs met a pause; the first one of a pause shows its length.

    Those after it meet what is left of the same pause, and what piled up in it.
    """
    expected = loop_ends(costs, load.sent, brokers=brokers) - load.sent
    excess = (load.out - load.sent) - expected
    met = excess > PAUSE_PART * expected + brokers * PAUSE_SECONDS
    # Seconds that count: a message that does not count takes none of them.
    clock = np.cumsum(np.diff(load.sent, prepend=float(load.sent[0])) * load.counted)
    begins, lengths, left, before = [], [], 0.0, 0.0
    for place in np.flatnonzero(met & load.counted).tolist():
        at, over = float(clock[place]), float(excess[place])
        left = max(0.0, left - (at - before))
        if over - left > brokers * PAUSE_SECONDS:
            begins.append(at)
            lengths.append(over - left)
        left, before = max(left, over), at
    return PauseSeries(arrival_rate(load.sent), float(clock[-1]), np.array(begins), np.array(lengths))
