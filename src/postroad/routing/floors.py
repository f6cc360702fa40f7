"""`Floors`: up to which id of each publisher memory was given up, so that what cannot be known is never guessed.

Ids of one publisher ascend, so one number per publisher is enough: below it, a copy can no longer be told from a first
copy. The number of publishers is bounded too. Beyond it, those that were silent for longest are joined: one number, the
highest of theirs, counts for them and for every publisher without a separate number. That can only make more ids
doubtful, never fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.routing.destinations import Flags, Words

__all__ = ["MAX_PUBLISHERS", "Floors"]

# Publishers with a floor of their own, for one origin: some 100 bytes each in a dictionary, so 400 KB at most.
MAX_PUBLISHERS = 4_096
# A floor is the first id (its second half) that is not forgotten; the highest leaves room for the one before it.
HIGHEST = 2**64 - 1


class Floors:
    """The floors of the publishers at one origin.

    Attributes:
        highest: the highest of all floors: an id (its second half) from there on is in no doubt.
    """

    __slots__ = ("_common", "_own", "highest")

    def __init__(self, common: int = 0) -> None:
        self._common = common
        self._own: dict[int, int] = {}
        self.highest = common

    def raise_all(self, floor: int) -> None:
        """Everything below this may have been forgotten, whichever publisher it is of."""
        self._common = max(self._common, floor)
        self.highest = max(self.highest, floor)

    def raise_each(self, floors: Mapping[int, int]) -> None:
        """Publisher (the first half of its ids) -> the floor it has at least."""
        own = self._own
        for head, floor in floors.items():
            if floor > own.get(head, 0):
                own[head] = floor
        self.highest = max(self.highest, *floors.values()) if floors else self.highest
        if len(own) > MAX_PUBLISHERS:
            self._join(len(own) - MAX_PUBLISHERS // 2)

    def _join(self, count: int) -> None:
        """The publishers with the lowest floors were silent for longest: they share one from now on."""
        lowest = sorted(self._own, key=self._own.__getitem__)[:count]
        self._common = max(self._common, self._own[lowest[-1]])
        for head in lowest:
            del self._own[head]

    def doubtful(self, ids: Words) -> Flags:
        """bool[rows]: whether memory of such an id may have been given up."""
        heads, lines = np.unique(ids[:, 0], return_inverse=True)
        own = self._own
        floors = [max(self._common, own.get(head, 0)) for head in heads.tolist()]
        return np.asarray(ids[:, 1] < np.array(floors, np.uint64)[lines.reshape(-1)])
