"""What stands at the beginning of a day: subscriptions and links that began earlier and have not ended.

A reader who wants to know who was subscribed at some time would have to read everything since the broker started. So
the first commit of each day repeats what stands, marked `STANDING`, and a reader begins there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking import Attachments, LinkChanges
from postroad.trail.columns import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking import Segment

__all__ = ["STANDING", "Standing"]

# `Attachments.begins` and `LinkChanges.up`: it began earlier and goes on.
STANDING = 2


class Standing:
    """Follows subscriptions and links; as large as what stands, however long the broker runs."""

    def __init__(self, now: int) -> None:
        self._day = now // DAY_MS
        self._subscribers: dict[int, tuple[str, str, str]] = {}
        self._links: dict[int, int] = {}

    def repeat(self) -> None:
        """Repeat what stands at the next occasion, because the last repetition was lost."""
        self._day = -1

    def follow(self, segments: Iterable[Segment], through: int) -> list[Segment]:
        """Take note of changes, and answer what to write beside them where a day began."""
        changes: list[tuple[int, int, Attachments | LinkChanges, int]] = []
        for order, segment in enumerate(segments):
            if isinstance(segment, Attachments | LinkChanges):
                changes += [(int(at), order, segment, row) for row, at in enumerate(segment.at)]
        changes.sort(key=lambda change: (change[0], change[1], change[3]))
        extra: list[Segment] = []
        last = through // DAY_MS
        if self._day < 0:
            extra += self.repeated(min((change[0] for change in changes), default=through))
            self._day = last
        for at, _, segment, row in changes:
            while self._day < min(at // DAY_MS, last):
                self._day += 1
                extra += self.repeated(self._day * DAY_MS)
            self._apply(segment, row)
        while self._day < last:
            self._day += 1
            extra += self.repeated(self._day * DAY_MS)
        return extra

    def _apply(self, segment: Attachments | LinkChanges, row: int) -> None:
        if isinstance(segment, Attachments):
            subscriber = int(segment.subscriber[row])
            if segment.begins[row]:
                self._subscribers[subscriber] = (segment.principal[row], segment.topic[row], segment.selector[row])
            else:
                self._subscribers.pop(subscriber, None)
        elif segment.up[row]:
            self._links[int(segment.neighbour[row])] = int(segment.cost[row])
        else:
            self._links.pop(int(segment.neighbour[row]), None)

    def repeated(self, at: int) -> list[Segment]:
        """What stands, as rows of a time."""
        found: list[Segment] = []
        if self._subscribers:
            count = len(self._subscribers)
            principals, topics, selectors = (list(column) for column in zip(*self._subscribers.values(), strict=True))
            found.append(
                Attachments(
                    np.fromiter(self._subscribers, np.int64, count),
                    np.full(count, at, np.int64),
                    np.full(count, STANDING, np.int32),
                    principals,
                    topics,
                    selectors,
                )
            )
        if self._links:
            count = len(self._links)
            found.append(
                LinkChanges(
                    np.fromiter(self._links, np.int64, count),
                    np.full(count, at, np.int64),
                    np.full(count, STANDING, np.int32),
                    np.fromiter(self._links.values(), np.int32, count),
                )
            )
        return found
