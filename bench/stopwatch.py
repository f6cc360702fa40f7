"""Timing two sides on a machine that others use too: short rounds, turn about, the best round of each counts.

The best of several rounds is the one that was disturbed least. The clock is this thread's time on the processor: one
thread does all the work here and never waits, so on a quiet machine it is the elapsed time, and on a busy one it leaves
out the turns of others. What others do to the caches it cannot leave out. Both sides are treated alike.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from time import thread_time as clock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Side", "best_of", "clock", "without_collector"]


class Side:
    """One kind of work over a list of things, timed in rounds of about `seconds`.

    Args:
        work: what is done with each thing.
        things: taken in order, from the beginning again after the last.
        seconds: how long a round lasts at least, unless one thing takes longer.
    """

    def __init__(self, work: Callable[[Any], object], things: Sequence[Any], seconds: float) -> None:
        self._work = work
        self._things = things
        self._next = 0
        self._count = 1
        while self._run() < seconds and self._count < 10 * len(things):
            self._count *= 2

    def round(self) -> float:
        """Seconds per thing, over one round."""
        return self._run() / self._count

    def _run(self) -> float:
        chosen = [self._things[(self._next + step) % len(self._things)] for step in range(self._count)]
        self._next = (self._next + self._count) % len(self._things)
        work = self._work
        with without_collector():
            start = clock()
            for thing in chosen:
                work(thing)
            return clock() - start


def best_of(rounds: int, sides: dict[str, Side]) -> dict[str, float]:
    """Seconds per thing of each side, in its best round; the sides take turns."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, side in sides.items():
            best[name] = min(best[name], side.round())
    return best


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection in between: it would hit one side or the other by chance."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
