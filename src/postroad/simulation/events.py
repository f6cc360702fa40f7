"""Virtual time: a queue of future actions, and a clock that jumps from one to the next."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MICROSECONDS", "Timeline"]

# Microseconds in a millisecond: cores count milliseconds, processors and links microseconds.
MICROSECONDS = 1_000


class Timeline:
    """Runs actions in the order of their times; actions of the same time run in the order they were planned.

    Attributes:
        now: the time in microseconds.
        done: how many actions have run.
    """

    def __init__(self) -> None:
        self.now = 0
        self.done = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()

    @property
    def now_ms(self) -> int:
        """The time in whole milliseconds, as cores get it."""
        return self.now // MICROSECONDS

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Plan an action for a time in microseconds, now at the earliest."""
        heappush(self._waiting, (time if time > self.now else self.now, next(self._serial), action))

    def run_until(self, time: int) -> None:
        """Run everything that is due up to a time in microseconds, which then is the present time."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= time:
            self.now, _, action = heappop(waiting)
            self.done += 1
            action()
        self.now = max(self.now, time)
