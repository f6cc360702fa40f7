"""What stands at the beginning of a day: subscriptions and links that began earlier and have not ended.

A reader who wants to know who was subscribed at some time would have to read everything since the broker started. So
the first commit of each day repeats what stands, marked `STANDING`, and a reader begins there. So does a commit after
one that was given up. Where a commit is lost otherwise, it is not known what stands from there to the next repetition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.tracking import LinkChanges, NamedSubscription, SubscriptionChanges
from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import GapReason, Hole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from postroad.tracking import Segment
    from postroad.trail.coverage import Run

__all__ = ["STANDING", "Standing", "standing_holes", "subscription_in"]

# `SubscriptionChanges.begins` and `LinkChanges.up`: it began earlier and continues.
STANDING = 2


class Standing:
    """Follows subscriptions and links; as large as what is open, however long the broker runs."""

    def __init__(self, now: int) -> None:
        self._day = now // DAY_MS
        self._through = now
        self._subscriptions: dict[int, tuple[str, str, str]] = {}
        self._links: dict[int, int] = {}

    def repeat(self) -> None:
        """Repeat what stands at the next occasion, because the last repetition was lost."""
        self._day = -1

    def follow(self, segments: Iterable[Segment], through: int) -> list[Segment]:
        """Take note of changes, and answer what to write beside them where a day began."""
        changes: list[tuple[int, int, SubscriptionChanges | LinkChanges, int]] = []
        for order, segment in enumerate(segments):
            if isinstance(segment, SubscriptionChanges | LinkChanges):
                changes += [(int(at), order, segment, row) for row, at in enumerate(segment.at)]
        changes.sort(key=lambda change: (change[0], change[1], change[3]))
        extra: list[Segment] = []
        last = through // DAY_MS
        if self._day < 0:
            # As of the time through which changes were followed: every later one is on record, or in a hole.
            extra += self.repeated(self._through)
            self._day = self._through // DAY_MS
        self._through = max(self._through, through)
        for at, _, segment, row in changes:
            while self._day < min(at // DAY_MS, last):
                self._day += 1
                extra += self.repeated(self._day * DAY_MS)
            self._apply(segment, row)
        while self._day < last:
            self._day += 1
            extra += self.repeated(self._day * DAY_MS)
        return extra

    def _apply(self, segment: SubscriptionChanges | LinkChanges, row: int) -> None:
        if isinstance(segment, SubscriptionChanges):
            subscription = int(segment.subscription[row])
            if segment.begins[row]:
                self._subscriptions[subscription] = (segment.principal[row], segment.topic[row], segment.selector[row])
            else:
                self._subscriptions.pop(subscription, None)
        elif segment.up[row]:
            self._links[int(segment.neighbour[row])] = int(segment.cost[row])
        else:
            self._links.pop(int(segment.neighbour[row]), None)

    def repeated(self, at: int) -> list[Segment]:
        """What stands, as rows of a time."""
        found: list[Segment] = []
        if self._subscriptions:
            count = len(self._subscriptions)
            principals, topics, selectors = (list(column) for column in zip(*self._subscriptions.values(), strict=True))
            found.append(
                SubscriptionChanges(
                    np.fromiter(self._subscriptions, np.int64, count),
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


def standing_holes(runs: Iterable[Run], holes: Iterable[Hole], repeated: Collection[int] = ()) -> list[Hole]:
    """The times for which it is not known who was subscribed and linked: longer than the holes that begin them.

    A lost change may have said who came. That stays unknown until the writer repeats what stands: at the start of a
    run, at the start of a day, or after a commit that it gave up.

    Args:
        runs: the lives of the broker.
        holes: times for which its record is not complete.
        repeated: times of rows marked `STANDING` that were read.
    """
    starts = [run.since for run in runs]
    found = []
    for hole in holes:
        if hole.reason == GapReason.SET_BACK:
            # Nothing is lost there: a time came twice.
            continue
        # A hole goes to the millisecond after the commit that was given up.
        ends = [at for at in repeated if at >= hole.until - 1]
        # The run after one whose record is gone begins within the hole, and repeats what stands.
        ends += [since for since in starts if since >= (hole.since if hole.reason == GapReason.GONE else hole.until)]
        until = min([(hole.until // DAY_MS + 1) * DAY_MS, *ends])
        found.append(Hole(hole.since, max(hole.until, until), hole.reason))
    return found


def subscription_in(row: dict[str, Any]) -> NamedSubscription:
    """Whose a subscription is, by a row of `subscriptions`."""
    return NamedSubscription(row["subscription"], row["principal"], row["topic"], row["selector"])
