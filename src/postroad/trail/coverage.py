"""For which times the record of a broker is complete, and for which it is not.

A *run* is the life of one broker process: what it observed from `since` through `through` (its own clock) is in the
files of the manifest. Outside of runs, and inside of gaps, nothing is promised: a reader says "not recorded", not "no".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.tracking import Gap

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BEFORE_FIRST",
    "CRASHED",
    "DELETED",
    "FOREVER",
    "GONE",
    "NEVER_BEGUN",
    "NOT_YET_WRITTEN",
    "SET_BACK",
    "SET_BACK_MS",
    "STOPPED",
    "Hole",
    "Run",
    "gaps_within",
    "joined",
]

BEFORE_FIRST = "before the record begins"
STOPPED = "the broker was stopped, or ran without a record"
CRASHED = "the broker ended without writing its last records"
NOT_YET_WRITTEN = "not yet written"
DELETED = "older than what is kept"
SET_BACK = "the clock was set back, and this time came twice"
NEVER_BEGUN = "there is no record of this broker"
GONE = "the trail was moved, deleted or replaced while the broker wrote to it"

# A clock that is set back by less needs no mention: readers look for gaps farther around an id's time than this.
SET_BACK_MS = 5_000

FOREVER = 2**48  # beyond every time that an id can have


class Run(msgspec.Struct, array_like=True, frozen=True):
    """One life of a broker; `closed` says that it ended on purpose, with everything written."""

    number: int
    since: int
    through: int
    closed: bool = False


class Hole(msgspec.Struct, array_like=True, frozen=True):
    """A time inside of a run for which the record is not complete."""

    since: int
    until: int
    reason: str


def joined(runs: Iterable[Run], newer: Run) -> tuple[Run, ...]:
    """The runs with the newer state of one of them."""
    rest = [run for run in runs if run.number != newer.number]
    return tuple(sorted([*rest, newer], key=lambda run: (run.since, run.number)))


def gaps_within(runs: Iterable[Run], holes: Iterable[Hole], at: int, since: int, until: int) -> tuple[Gap, ...]:
    """The times around an id's for which the record is not complete, in order.

    Args:
        runs: the lives of the broker.
        holes: times inside of them that are not complete.
        at: the id's time.
        since: the broker may have seen the message from here,
        until: to here. A time in which the broker was stopped on purpose counts only when the id is of that time: it
            saw nothing then, and all that it saw before was written.
    """
    gaps: list[Gap] = []
    ended, reason = 0, BEFORE_FIRST
    for run in sorted(runs, key=lambda one: (one.since, one.number)):
        if run.since > ended:
            gaps.append(Gap(ended, run.since, reason))
        if run.through >= ended:
            ended, reason = run.through, STOPPED if run.closed else CRASHED
    last = NEVER_BEGUN if reason == BEFORE_FIRST else NOT_YET_WRITTEN if reason == CRASHED else STOPPED
    gaps.append(Gap(ended, FOREVER, last))
    gaps += [Gap(hole.since, hole.until, hole.reason) for hole in holes]
    return tuple(sorted(gap for gap in gaps if _matters(gap, at, since, until)))


def _matters(gap: Gap, at: int, since: int, until: int) -> bool:
    if gap.until <= gap.since:
        return False
    if gap.reason in (STOPPED, BEFORE_FIRST):
        return gap.since < at < gap.until
    return gap.since < until and gap.until > since
