"""What one broker's manifest rests on in those of others: journeys there stand for passages that a compaction took out.

A compaction changes the manifests of several brokers, journeys first. But a reader takes one manifest after the other,
and where brokers ship, each ships its own: so a reader may see that passages are gone, and not yet the journeys that
stand for them. A change that takes passages out therefore names the changes that added the journeys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking import Gap
from postroad.trail.coverage import Hole
from postroad.trail.manifest import Need
from postroad.trail.snapshot import pin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location
    from postroad.trail.manifest import Change
    from postroad.trail.snapshot import Pinned

__all__ = ["HALF_COMPACTED", "WAIT_MS", "gap_of", "is_met", "needs_of", "unmet", "waits_for_others"]

HALF_COMPACTED = "a compaction is here in part: what stands for the record of the time is missing with another broker"
# How long the shipping of one broker waits for that of others, which ship about every minute (`persist_seconds`). One
# that never ships again must not hold up the rest: then readers of the store state what is missing.
WAIT_MS = 10 * 60_000


def needs_of(broker: int, removed: Iterable[FileEntry], journeys: Mapping[int, int]) -> tuple[Need, ...]:
    """What the removal of a broker's passages rests on.

    Args:
        broker: whose files go.
        removed: these.
        journeys: origin -> the number of the change that added journeys there.
    """
    found = [
        Need(group.origin, journeys[group.origin], group.time_from, group.time_to)
        for entry in removed
        if entry.table == "passages"
        for group in entry.groups
        if group.origin != broker and group.origin in journeys
    ]
    return Need.joined(found)


def is_met(need: Need, pinned: Pinned | None) -> bool:
    """Whether a manifest has the change that another one rests on."""
    if pinned is None:
        return False
    if pinned.checkpoint is not None and pinned.checkpoint.number >= need.number:
        return True
    return any(change.number == need.number for change in pinned.changes)


def gap_of(need: Need) -> Gap:
    """What a broker's record lacks where a need of it is not met."""
    return Gap(need.since, need.until + 1, HALF_COMPACTED)


def unmet(pinned: Pinned, others: Mapping[int, Pinned]) -> tuple[Hole, ...]:
    """The id times of which a broker's record may be missing, because journeys are not there that stand for it."""
    return tuple(
        Hole(need.since, need.until + 1, HALF_COMPACTED)
        for need in pinned.needs
        if not is_met(need, others.get(need.broker))
    )


def waits_for_others(place: Location, change: Change, now: int) -> bool:
    """Whether a change has to wait until other brokers have shipped to a place what it rests on.

    Raises:
        OSError: the store does not answer.
    """
    # A clock that was set back must not make the wait longer.
    is_fresh = change.at - WAIT_MS < now < change.at + WAIT_MS
    return is_fresh and not all(is_met(need, pin(place, need.broker)) for need in change.needs)
