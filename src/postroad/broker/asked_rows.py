"""What sessions wait for in outgoing queues: rows that the home of the queue has not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.store import Runs, intersect

if TYPE_CHECKING:
    from collections import deque

    from numpy.typing import NDArray

    from postroad.broker.confirmations import Confirmations

    Rows = NDArray[np.int64]

__all__ = ["AskedRows", "drop_closed"]


class AskedRows:
    """Rows that a session waits for: those of one publication, or all that a queue had.

    They are named by their places: what an earlier process has left in the queue is confirmed too, and nobody here
    waits for it.

    Attributes:
        first: the place of the first one; no other row of the queue is between it and `last`.
        last: the place of the last one.
        left: how many the home has not stored.
    """

    __slots__ = ("_number", "_waits", "first", "last", "left")

    def __init__(self, first: int, last: int, count: int, waits: Confirmations, now: int) -> None:
        self.first, self.last, self.left = first, last, count
        self._waits = waits
        self._number = waits.ask(now)

    @property
    def is_open(self) -> bool:
        """Return whether the session still waits for them."""
        return self._waits.expects(self._number)

    def is_of(self, waits: Confirmations) -> bool:
        """Return whether this session waits for them."""
        return self._waits is waits

    def stored(self, places: Rows) -> None:
        """Note that the home has stored rows of the queue, whose places rise: perhaps some of these."""
        first, last = np.searchsorted(places, self.first, "left"), np.searchsorted(places, self.last, "right")
        self.left -= int(last - first)
        if not self.left:
            self._waits.done(self._number)

    def purged(self, runs: Runs, reason: str) -> None:
        """Tell the session if some of these are among rows of the queue that are given up."""
        mine = Runs(np.array([self.first]), np.array([self.last + 1]))
        if self.is_open and len(intersect(runs, mine).starts):
            self._waits.fail(reason)


def drop_closed(asked: deque[AskedRows]) -> None:
    """Forget the first ones that nobody waits for any more."""
    while asked and not asked[0].is_open:
        asked.popleft()
