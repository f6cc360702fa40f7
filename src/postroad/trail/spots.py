"""Minutes of origins in a question: where the records of its ids can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["SPOT_MS", "Spots"]

SPOT_MS = 60_000
# Times have 48 bits, minutes 33; brokers are below 2^16 by far (postroad.topology), 2^30 leaves room for any.
_MINUTE_BITS = 33


class Spots:
    """(origin, minute) pairs, to be asked whether a range of times of an origin has one of them.

    Attributes:
        since: the first time of the earliest minute.
        until: the last time of the latest minute; below `since` where there are none.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        listed = list(pairs)
        self._take(*(np.array([pair[place] for pair in listed], np.int64) for place in range(2)))

    @classmethod
    def of(cls, origins: NDArray[np.int64], minutes: NDArray[np.int64]) -> Spots:
        """The same from two columns, which may name a pair several times."""
        spots = cls.__new__(cls)
        spots._take(origins, minutes)
        return spots

    def _take(self, origins: NDArray[np.int64], minutes: NDArray[np.int64]) -> None:
        # An origin that no broker can have shares the place of one that can: a file more is looked at.
        self._keys = np.unique(origins << _MINUTE_BITS | minutes)
        self.since = int(minutes.min()) * SPOT_MS if len(minutes) else SPOT_MS
        self.until = (int(minutes.max()) + 1) * SPOT_MS - 1 if len(minutes) else SPOT_MS - 1

    def __len__(self) -> int:
        return len(self._keys)

    def places(self, origin: NDArray[np.int64], minute: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of pairs among these, which are sorted by origin and minute; of those that are here."""
        return np.asarray(np.searchsorted(self._keys, origin << _MINUTE_BITS | minute))

    def spans(
        self, origin: NDArray[np.int64], time_from: NDArray[np.int64], time_to: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of those within each range of times, of its origin: the first, and the first after them."""
        base = origin << _MINUTE_BITS
        low = np.searchsorted(self._keys, base | np.maximum(time_from, 0) // SPOT_MS, "left")
        high = np.searchsorted(self._keys, base | np.maximum(time_to, 0) // SPOT_MS, "right")
        return low, high

    def within(
        self, origin: NDArray[np.int64], time_from: NDArray[np.int64], time_to: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether each range of times, of its origin, has something that is asked about."""
        low, high = self.spans(origin, time_from, time_to)
        return np.asarray(high > low)

    def has(self, origin: int, time_from: int, time_to: int) -> bool:
        """The same for one range."""
        one = (np.array([number], np.int64) for number in (origin, time_from, time_to))
        return bool(self.within(*one)[0])
