"""The times between which subscriptions or links existed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["GOES_ON", "MAX_ENDED", "Presence", "Stays"]

# The end of a stay that has not ended: beyond every time that an id can have.
GOES_ON = 2**48

# Ended stays that a broker remembers, at about 100 bytes each: 10 MB. The trail has them all; here they only serve
# questions about what is not in the trail yet. Beyond it the oldest are forgotten, and answers say so.
MAX_ENDED = 100_000


class _Stay(NamedTuple):
    number: int
    since: int
    until: int


class Stays(NamedTuple):
    """Who was there when, as columns sorted by number and beginning, for many questions at once.

    Attributes:
        number: of each stay.
        since: when it began.
        until: when it ended; `GOES_ON` where it has not.
    """

    number: Ints
    since: Ints
    until: Ints

    def between(self, since: int, until: int) -> tuple[int, ...]:
        """The numbers that were there at any time from `since` to `until`, both included, in ascending order."""
        here = (self.since <= until) & (self.until >= since)
        return tuple(np.unique(self.number[here]).tolist())


class Presence:
    """Begins and ends of numbered items, reported in the order in which they happened.

    Args:
        most: ended stays that are remembered; None for all.
    """

    def __init__(self, most: int | None = MAX_ENDED) -> None:
        self._here: dict[int, int] = {}
        self._ended: deque[_Stay] = deque()
        self._most = most
        self._forgotten_until = -1

    @classmethod
    def of(cls, changes: Iterable[tuple[int, int, int]], starts: Iterable[int] = ()) -> Presence:
        """From rows (number, at, begins) of a table, and the times when the broker started.

        Of an end and a beginning in the same millisecond the end comes first, so that none is missing that was there.
        """
        presence = cls(most=None)
        restarts = deque(sorted(starts))
        for number, at, begins in sorted(changes, key=lambda change: change[1:]):
            while restarts and restarts[0] <= at:
                presence.restart(restarts.popleft())
            (presence.begin if begins else presence.end)(number, at)
        for restart in restarts:
            presence.restart(restart)
        return presence

    def begin(self, number: int, at: int) -> None:
        """An item begins. A second beginning, as after a restart that reported no end, changes nothing."""
        self._here.setdefault(number, at)

    def end(self, number: int, at: int) -> None:
        """It is there no longer."""
        since = self._here.pop(number, None)
        if since is not None:
            self._ended.append(_Stay(number, since, at))
            if self._most is not None and len(self._ended) > self._most:
                self._forgotten_until = max(self._forgotten_until, self._ended.popleft().until)

    def restart(self, at: int) -> None:
        """The broker starts: no item is there. A run that crashed reported no ends."""
        for number in list(self._here):
            self.end(number, at - 1)

    def stays(self) -> Stays:
        """All that is remembered, as columns."""
        rows = [*self._ended, *((number, since, GOES_ON) for number, since in self._here.items())]
        table = np.array(rows, np.int64).reshape(-1, 3)
        return Stays(*table[np.lexsort((table[:, 1], table[:, 0]))].T.copy())

    def between(self, since: int, until: int) -> tuple[int, ...]:
        """The numbers that were there at any time from `since` to `until`, both included, in ascending order."""
        found = {number for number, begun in self._here.items() if begun <= until}
        found.update(stay.number for stay in self._ended if stay.since <= until and stay.until >= since)
        return tuple(sorted(found))

    def forgotten_until(self, since: int) -> int | None:
        """The end of the last stay, from a time on, that was forgotten to make room; None for none."""
        return self._forgotten_until if self._forgotten_until >= since else None

    def forget(self, before: int) -> None:
        """Let go of what ended before a time."""
        while self._ended and self._ended[0].until < before:
            self._ended.popleft()

    def __len__(self) -> int:
        return len(self._here)
