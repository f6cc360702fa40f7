"""Virtual time: a queue of things that will happen, and a clock that jumps from one to the next."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Timeline"]


class Timeline:
    """Runs actions in the order of their times; actions of one time in the order they were planned."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Plan an action, for now at the earliest."""
        heapq.heappush(self._waiting, (max(time, self.now), next(self._serial), action))

    def run_until(self, time: int) -> None:
        """Let everything happen that is due up to a time, which is then now."""
        while self._waiting and self._waiting[0][0] <= time:
            self.now, _, action = heapq.heappop(self._waiting)
            action()
        self.now = max(self.now, time)
