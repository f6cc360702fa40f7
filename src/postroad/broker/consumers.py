"""The consumers of one queue: who may get which rows, and how much each of them takes now. No I/O, nothing stored.

Waiting rows are shown in order. A consumer takes those that its selector wants, as many as it has room for. If several
want the same rows, each gets a fair share, one piece of the batch each. Consumers with the same selector form a
*profile*. The rows that a profile does not want are remembered, because neither the rows nor the selector change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.sessions import AckMode
from postroad.store import NO_RUNS, RowSet, Runs, intersect, runs_of, subtract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.broker.sessions import Subscription
    from postroad.store import Cursor, Taken

    Rows = NDArray[np.int64]

__all__ = ["MAX_PROFILES", "Consumer", "ConsumerProfile", "ConsumerTerms", "Consumers", "Share", "fair_shares"]

# Different selectors of the consumers of one queue. Rows are sorted by which of them want them, one bit each.
MAX_PROFILES = 60
# Known runs of rows that one profile does not want: 160 KiB. If wanted and unwanted rows alternate, there would be one
# run for every other row of a backlog.
MAX_PASSED_RUNS = 10_000
# Sets of profiles for which the progress of the search is remembered. Consumers come and go and run out of room, so the
# same sets occur again.
MAX_FLOORS = 64
# How many messages a consumer without acknowledgements gets at once; others have their turn in between.
AUTO_ROOM = 1_000


class ConsumerTerms(NamedTuple):
    """What a consumer asks for.

    Attributes:
        selector: what it wants; empty for all messages.
        ack_mode: when a message counts as settled.
        prefetch: how many unacknowledged messages it may have; None for the broker's default.
        exclusive: while it consumes, no other consumer gets anything.
    """

    selector: str = ""
    ack_mode: AckMode = AckMode.AUTO
    prefetch: int | None = None
    exclusive: bool = False


class ConsumerProfile:
    """Consumers of a queue with the same selector.

    Attributes:
        selector: its text; empty for all messages.
        slot: its slot in the index; -1 without a selector.
        passed: rows that it does not want.
        members: its consumers, by number.
    """

    __slots__ = ("members", "passed", "selector", "slot")

    def __init__(self, selector: str, slot: int = -1) -> None:
        self.selector = selector
        self.slot = slot
        self.passed = RowSet()
        self.members: dict[int, Consumer] = {}


class Consumer:
    """One consumer of a queue.

    Args:
        subscription: its subscription.
        profile: what it wants.
        prefetch: how many unacknowledged messages it may have.
        exclusive: while it consumes, no other consumer gets anything.
    """

    __slots__ = ("exclusive", "prefetch", "profile", "subscription")

    def __init__(self, subscription: Subscription, profile: ConsumerProfile, prefetch: int, exclusive: bool) -> None:
        self.subscription = subscription
        self.profile = profile
        self.prefetch = prefetch
        self.exclusive = exclusive

    @property
    def number(self) -> int:
        """The number of its subscription."""
        return self.subscription.number

    @property
    def room(self) -> int:
        """Return how many messages it takes now."""
        subscription = self.subscription
        if subscription.session.congested:
            return 0
        if subscription.ack_mode is AckMode.AUTO:
            return AUTO_ROOM
        return max(0, self.prefetch - len(subscription.unacknowledged))


class Share(NamedTuple):
    """What a consumer gets of rows that were shown: `at` are indices into them, in order."""

    consumer: Consumer
    at: Rows


def fair_shares(rooms: Sequence[int], count: int) -> list[int]:
    """Divide rows: all consumers get the same number, or as many as fit; the others get what one cannot take."""
    shares = [0] * len(rooms)
    left = min(count, sum(rooms))
    while left:
        open_ = [at for at, room in enumerate(rooms) if shares[at] < room]
        # In the last round, the remainder goes to those whose turn is first.
        each = max(1, left // len(open_))
        for at in open_:
            given = min(rooms[at] - shares[at], each, left)
            shares[at] += given
            left -= given
    return shares


class Consumers:
    """The consumers of one queue.

    Attributes:
        profiles: by selector.
    """

    def __init__(self) -> None:
        self._consumers: dict[int, Consumer] = {}
        self.profiles: dict[str, ConsumerProfile] = {}
        self._turn = 0
        # For sets of profiles: the place below which none of them wants a waiting row.
        self._floors: dict[frozenset[ConsumerProfile], int] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    def __contains__(self, number: int) -> bool:
        return number in self._consumers

    def listed(self) -> list[Consumer]:
        """Return all of them, in the order in which they came."""
        return list(self._consumers.values())

    def add(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self._consumers[consumer.number] = consumer
        self.profiles[consumer.profile.selector] = consumer.profile
        consumer.profile.members[consumer.number] = consumer

    def remove(self, number: int) -> ConsumerProfile:
        """Remove a consumer; return its profile, which goes, too, if it has no other members."""
        profile = self._consumers.pop(number).profile
        del profile.members[number]
        if not profile.members:
            del self.profiles[profile.selector]
            self._floors = {key: floor for key, floor in self._floors.items() if profile not in key}
        return profile

    def open(self) -> list[Consumer]:
        """Return those that take something now; if there are exclusive ones, only the first of these."""
        consumers = self.listed()
        exclusive = next((each for each in consumers if each.exclusive), None)
        if exclusive is not None:
            return [exclusive] if exclusive.room else []
        found = [each for each in consumers if each.room]
        if len(found) > 1:
            turn = self._turn % len(found)
            found = found[turn:] + found[:turn]
        return found

    def wanted(self, cursor: Cursor, consumers: Sequence[Consumer], without: Runs = NO_RUNS) -> Runs:
        """Return the waiting rows that one of the consumers may want; those `without` are handled separately."""
        profiles = _profiles(consumers)
        key = frozenset(profiles)
        floor = self._floors.get(key, 0)
        waiting = subtract(_from(cursor.waiting.runs, floor), without)
        passed = _from(profiles[0].passed.runs, floor)
        for profile in profiles[1:]:
            if not len(passed.starts):
                break
            passed = intersect(passed, _from(profile.passed.runs, floor))
        found = subtract(waiting, passed)
        if len(found.starts):
            floor = int(found.starts[0])
        elif len(waiting.starts):
            floor = int(waiting.ends[-1])
        self._remember(key, floor)
        return found

    def _remember(self, key: frozenset[ConsumerProfile], floor: int) -> None:
        """Remember that these profiles want nothing below a place; their runs below it are not needed any more."""
        if key not in self._floors and len(self._floors) >= MAX_FLOORS:
            self._floors.clear()
        self._floors[key] = floor
        for profile in key:
            if len(profile.passed.runs.starts) > MAX_PASSED_RUNS:
                # If there are still too many runs, forget some; their rows are looked at again.
                kept = _from(profile.passed.runs, floor)
                profile.passed = RowSet(Runs(kept.starts[:MAX_PASSED_RUNS].copy(), kept.ends[:MAX_PASSED_RUNS].copy()))

    def came_back(self, places: Rows) -> None:
        """Note rows that wait (again) and may be older than what was searched."""
        if len(places):
            first = int(places.min())
            self._floors = {key: min(floor, first) for key, floor in self._floors.items()}

    def search_anew(self) -> None:
        """Search everything again: rows that were handled separately must be found."""
        self._floors.clear()

    def assign(
        self,
        shown: Taken,
        matched: dict[str, NDArray[np.bool_]],
        consumers: Sequence[Consumer],
        free: NDArray[np.bool_],
    ) -> list[Share]:
        """Divide the rows that were shown among consumers that have room.

        Args:
            shown: the rows.
            matched: which of them the profiles with a selector want.
            consumers: those that have room, in the order of their turns.
            free: which rows may go to any consumer; the others are in a group.
        """
        profiles = _profiles(consumers)
        codes = np.zeros(len(shown.places), np.int64)
        for bit, profile in enumerate(profiles):
            wants = matched.get(profile.selector)
            codes |= np.int64(1 << bit) if wants is None else wants.astype(np.int64) << bit
        codes[~free] = 0
        rooms = {each.number: each.room for each in consumers}
        given: dict[int, list[Rows]] = {}
        for code in np.unique(codes[codes != 0]).tolist():
            rows = np.flatnonzero(codes == code)
            wanting = [each for each in consumers if code >> profiles.index(each.profile) & 1 and rooms[each.number]]
            start = 0
            shares = fair_shares([rooms[each.number] for each in wanting], len(rows)) if wanting else []
            for consumer, size in zip(wanting, shares, strict=True):
                if size:
                    given.setdefault(consumer.number, []).append(rows[start : start + size])
                    rooms[consumer.number] -= size
                    start += size
        self._turn += 1
        found = [Share(self._consumers[number], np.concatenate(parts)) for number, parts in given.items()]
        return [Share(consumer, np.sort(at)) for consumer, at in found]

    def note_passed(self, shown: Taken, matched: dict[str, NDArray[np.bool_]], cursor: Cursor) -> None:
        """Remember which rows profiles do not want; forget those that are settled by now."""
        for selector, wants in matched.items():
            passed = self.profiles[selector].passed
            if not wants.all():
                passed.add(runs_of(shown.places[~wants]))
            if passed.count > 2 * cursor.rows + len(shown.places):
                self.profiles[selector].passed = RowSet(intersect(passed.runs, cursor.waiting.runs))


def _from(runs: Runs, place: int) -> Runs:
    """Return the part of the runs that is not below a place."""
    at = int(np.searchsorted(runs.ends, place, "right"))
    if not at and (not len(runs.starts) or runs.starts[0] >= place):
        return runs
    starts = runs.starts[at:].copy()
    if len(starts):
        starts[0] = max(starts[0], place)
    return Runs(starts, runs.ends[at:])


def _profiles(consumers: Sequence[Consumer]) -> list[ConsumerProfile]:
    """Return the profiles of consumers, each once, in order."""
    return list({id(each.profile): each.profile for each in consumers}.values())
