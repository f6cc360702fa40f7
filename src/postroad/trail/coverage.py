"""For which times the record of a broker is complete, and for which it is not.

A *run* is the life of one broker process: what it observed from `since` through `through` (its own clock) is in the
files of the manifest. Outside of runs, and inside of gaps, nothing is promised: a reader says "not recorded", not "no".

`through` is the watermark of a run: every commit writes it, and so does a recovery from the journal. A commit never has
a part of what one turn did to a message: a broker handles a message in one turn of its event loop, and a part of the
record ends between two turns. So a row that says where a message came from also says where it was relayed and delivered
in that turn, whatever was lost later. Only events of later turns can be missing: a delivery from a queue, or a message
that a link returned.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from postroad.tracking import Gap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "DEFECT",
    "FOREVER",
    "GIVEN_UP",
    "LAPSED",
    "RESENT_MS",
    "RUN_IN_NAME",
    "SET_BACK_MS",
    "UNREAD",
    "GapReason",
    "Hole",
    "Run",
    "gaps_around",
    "gaps_within",
    "hides_late_entry",
    "joined",
    "not_shipped",
    "run_of_file",
]


# Reasons of holes that a broker states about what it could not write.
GIVEN_UP = "the disk did not take the record"
DEFECT = "the broker failed at making the record"
LAPSED = "the journal lacks entries of this time"
# How gaps begin that the name of a damaged file ends: of the times in the ids of its rows.
UNREAD = "a file cannot be read: "


class GapReason(StrEnum):
    """Why the record of a broker is not complete for some time; the values are what people read.

    Holes of a manifest and gaps of damaged files have reasons of their own besides, with the names of what is damaged.
    """

    BEFORE_FIRST = "before the record begins"
    STOPPED = "the broker was stopped, or ran without a record"
    CRASHED = "the broker ended without writing its last records"
    # A reader of files cannot know whether the process still runs.
    NOT_YET_WRITTEN = "not written: the broker has it in memory, or ended without writing it"
    NOT_ANSWERED = "not written, and the broker does not answer"
    ON_ITS_WAY = "it may still be on its way to this broker"
    SENT_LATELY = "what it sent on after a wait may still be under way, and come back"
    DELETED = "older than what is kept"
    SET_BACK = "the clock was set back, and this time came twice"
    NEVER_BEGUN = "there is no record of this broker"
    NO_RECORD = "others tell of it, and its record is not here"
    MOVED = "an earlier record of this broker is not here: the trail was moved or replaced while it was stopped"
    GONE = "the trail was moved, deleted or replaced while the broker wrote to it"
    LEFT_OUT = "more aliases came than are recorded, and some were left out"
    NOT_SHIPPED = "not here: this is a copy of the trail, and may lack what the broker has recorded since"


# What a run that did not end on purpose may have left unwritten.
_CUT_OFF = (GapReason.CRASHED, GapReason.NOT_YET_WRITTEN)

# What hides no message that entered long after its id's time: its receipt waits until it is in the trail.
_CONFIRMED_LATER = (*_CUT_OFF, GapReason.SET_BACK, GIVEN_UP, DEFECT, LAPSED)

# A clock that is set back by less needs no mention: readers look for gaps farther around an id's time than this.
SET_BACK_MS = 5_000

# How long after a broker's restart its neighbours may send again what the earlier process had taken: a neighbour gives
# that up a heart-beat (1 s) after it lost the connection. Several times that, for networks with slower heart-beats.
RESENT_MS = 5_000

FOREVER = 2**48  # beyond every time that an id can have

# How the names of files begin, or after an erasure continue: with the number of the run that wrote their rows.
RUN_IN_NAME = r"(?:^|-of)(\d{12})-"
_RUN = re.compile(RUN_IN_NAME)


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


def run_of_file(path: str) -> int:
    """The number of the run that the rows of a file are of; 0 if its name does not tell."""
    found = _RUN.search(path.rpartition("/")[2])
    return int(found[1]) if found else 0


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
    gaps = [Gap(hole.since, hole.until, hole.reason) for hole in holes]
    gaps += [gap for gap, _ in _between(_in_order(runs), gaps)]
    return tuple(sorted(gap for gap in gaps if _matters(gap, at, since, until)))


def gaps_around(
    runs: Iterable[Run],
    holes: Iterable[Hole],
    at: int,
    since: int,
    until: int,
    handled: Collection[int] = (),
    waits: bool = False,
) -> tuple[tuple[Gap, ...], tuple[Gap, ...]]:
    """The gaps that may hide something of an id, given the runs in which the broker is known to have handled it.

    Args:
        runs: the lives of the broker.
        holes: times inside of them that are not complete.
        at: the id's time.
        since: the broker may have seen the message from here,
        until: to here.
        handled: the numbers of the runs whose exact record says that the message came.
        waits: whether the message still waits here, as far as the record goes, or has not come yet: then every later
            gap may hide its end, or that it came.

    Returns:
        Gaps that may hide anything; and gaps after the last run that handled the message, which hide only what became
        of it later. A gap before the first such run may hide that an earlier process handled it too. A gap after it may
        hide that a later process did, unless that one has a whole record of its first moments.
    """
    gaps = gaps_within(runs, holes, at, since, until)
    ordered = _in_order(runs)
    last = max((place for place, run in enumerate(ordered) if run.number in handled), default=-1)
    far = _far(ordered, holes, since) - {*gaps} if waits else set()
    if last < 0:
        return gaps, tuple(sorted(far))
    # A stop on purpose cuts nothing off: the message was handled before it or after it.
    gaps = tuple(gap for gap in gaps if gap.reason != GapReason.STOPPED)
    later = [run for run in ordered[last + 1 :] if run.since <= until + RESENT_MS]
    again = any(gaps_within(ordered, holes, run.since, run.since, run.since + RESENT_MS) for run in later)
    behind = {gap for gap, place in _between(ordered, gaps) if place > last and gap.reason in _CUT_OFF}
    ends = () if again else tuple(gap for gap in gaps if gap in behind)
    return tuple(gap for gap in gaps if gap not in ends), tuple(sorted({*ends, *far}))


def _far(ordered: list[Run], holes: Iterable[Hole], since: int) -> set[Gap]:
    """Gaps that may hide the end of a message that waits from a time on, however much later they are."""
    far = {Gap(hole.since, hole.until, hole.reason) for hole in holes if hole.reason != GapReason.SET_BACK}
    far |= {gap for gap, _ in _between(ordered, far) if gap.reason in _CUT_OFF}
    return {gap for gap in far if gap.until > since}


def hides_late_entry(reason: str) -> bool:
    """Whether a time without a complete record may hide that a message entered then, long after its id's time.

    Its publisher got no receipt before that was in the trail (`broker.given_ids`): what was never written there hides
    none that was confirmed. What was lost later may, and so may what is not in a copy. A file that cannot be read hides
    messages by the times in their ids.
    """
    return reason not in _CONFIRMED_LATER and not reason.startswith(UNREAD)


def not_shipped(runs: Iterable[Run]) -> Hole:
    """What a copy of a trail may lack: all after the last time that it covers.

    A run that ended on purpose may have been followed by another one.
    """
    return Hole(max((run.through for run in runs), default=0), FOREVER, GapReason.NOT_SHIPPED)


def _in_order(runs: Iterable[Run]) -> list[Run]:
    return sorted(runs, key=lambda one: (one.since, one.number))


def _between(ordered: list[Run], stated: Iterable[Gap]) -> list[tuple[Gap, int]]:
    """The gaps before, between and after runs, each with the place of the run after it.

    What comes after the last run is left out where a gap already states that it is not here.
    """
    gaps: list[tuple[Gap, int]] = []
    ended, reason = 0, GapReason.BEFORE_FIRST
    for place, run in enumerate(ordered):
        if run.since > ended:
            gaps.append((Gap(ended, run.since, reason), place))
        elif reason == GapReason.CRASHED:
            # The clock was set back a little in between: the times are covered, but not what was lost then.
            gaps.append((Gap(ended, ended + 1, reason), place))
        if run.through >= ended:
            ended, reason = run.through, GapReason.STOPPED if run.closed else GapReason.CRASHED
    if any(gap.reason == GapReason.NOT_SHIPPED for gap in stated):
        return gaps
    behind = {GapReason.BEFORE_FIRST: GapReason.NEVER_BEGUN, GapReason.CRASHED: GapReason.NOT_YET_WRITTEN}
    last = behind.get(reason, GapReason.STOPPED)
    return [*gaps, (Gap(ended, FOREVER, last), len(ordered))]


def _matters(gap: Gap, at: int, since: int, until: int) -> bool:
    if gap.until <= gap.since:
        return False
    if gap.reason in (GapReason.STOPPED, GapReason.BEFORE_FIRST):
        return gap.since < at < gap.until
    return gap.since < until and gap.until > since
