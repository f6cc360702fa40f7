"""The messages of one slice of time and where each of them went: only arrays, no object per message.

Each slice has its own generator of random numbers, seeded with the number of the slice. So slices can be made one by
one in bounded memory, in any order, and again later to find out the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.lab.trails.terrain import Terrain, terrain
from postroad.tracking import Lists, Passages, Shed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.lab.trails.scale import Scale

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["SHED_REASON", "Slice", "TrailTraffic"]

SHED_REASON = "queue full"
# Bytes of the table of routes: that of twenty brokers and ten thousand interests has four million.
MAX_ROUTE_CELLS = 1 << 26


class Slice(NamedTuple):
    """The messages of a slice, sorted by (origin, time, publisher, counter), and what happened to each.

    Attributes:
        part: the number of the slice.
        origin: the broker in the id; the next three are also from the id.
        time: Unix ms.
        publisher: number at the origin.
        counter: of ids of one publisher and millisecond.
        interest: whose message it is.
        meant: bool[message, broker]: on the route to somebody who wants it.
        visited: bool[message, broker]: it arrived there.
        lost: the broker it was relayed to and never reached; mostly 0.
        shed_at: the broker where a subscription's queue was full; mostly 0.
        shed_from: that subscription.
    """

    part: int
    origin: Ints
    time: Ints
    publisher: Ints
    counter: Ints
    interest: Ints
    meant: Bits
    visited: Bits
    lost: Ints
    shed_at: Ints
    shed_from: Ints


class TrailTraffic:
    """All slices of a scale.

    Attributes:
        scale: what is generated.
        terrain: the network it happens in.
    """

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.terrain: Terrain = terrain(scale)
        random = np.random.default_rng([scale.seed, 2])
        weights = np.array([float(np.subtract(*scale.span(part)[::-1])) for part in range(scale.slices)])
        self._counts = random.multinomial(scale.messages, weights / weights.sum())
        number = np.arange(scale.subscriptions + 1)
        # The subscriptions with the lowest numbers at each broker acknowledge.
        self.acknowledges: Bits = (number > 0) & (number <= round(scale.faults.acknowledging * scale.subscriptions))
        self._gaps = _gaps(scale, random)
        self._routes = _Routes(self.terrain, scale)

    def is_gap(self, broker: int, part: int) -> bool:
        """Return whether the broker kept no record of this slice."""
        return (broker, part) in self._gaps

    def slice(self, part: int) -> Slice:
        """Return the messages of one slice."""
        scale, land = self.scale, self.terrain
        random = np.random.default_rng([scale.seed, 3, part])
        count = int(self._counts[part])
        since, until = scale.span(part)
        origin = random.integers(1, scale.brokers + 1, count)
        time = random.integers(since, until, count)
        publisher = random.integers(1, scale.publishers + 1, count)
        order = np.lexsort((publisher, time, origin))
        origin, time, publisher = origin[order], time[order], publisher[order]
        interest = random.integers(0, scale.interests, count)
        meant = self._routes.meant(origin, interest)
        lost = np.zeros(count, np.int64)
        shed_at, shed_from = np.zeros(count, np.int64), np.zeros(count, np.int64)
        fate = random.random(count)
        chosen = np.flatnonzero(fate < scale.faults.lost)
        lost[chosen] = _one_of(_without_origin(meant[chosen], origin[chosen]), random)
        visited = meant & ~(land.below[origin, lost] & (lost > 0)[:, None])
        chosen = np.flatnonzero((fate >= scale.faults.lost) & (fate < scale.faults.lost + scale.faults.shed))
        chosen = chosen[land.starts[interest[chosen], 1] < land.starts[interest[chosen], -1]]
        shed_at[chosen], shed_from[chosen] = _one_recipient(land, interest[chosen], random)
        return Slice(
            part, origin, time, publisher, _counters(origin, time, publisher), interest,
            meant, visited, lost, shed_at, shed_from,
        )  # fmt: skip

    def passages(self, messages: Slice, broker: int) -> Passages:
        """Return what the exact record of one broker says about a slice."""
        rows = np.flatnonzero(messages.visited[:, broker])
        origin = messages.origin[rows]
        subscriptions = self.delivered(messages, rows, broker)
        return Passages(
            origin,
            messages.time[rows],
            messages.publisher[rows],
            messages.counter[rows].astype(np.int32),
            self.terrain.parents[origin, broker],
            self.relayed_to(messages, rows, broker),
            subscriptions,
            _selected(subscriptions, self.acknowledges[subscriptions.numbers]),
            refused=_nothing(len(rows)),
            queued=_nothing(len(rows)),
        )

    def relayed_to(self, messages: Slice, rows: Ints, broker: int) -> Lists:
        """Return the neighbours that a broker relayed each of the rows to."""
        around = np.array(sorted(self.terrain.graph.neighbours(broker)), np.int64)
        relayed = np.empty((len(rows), len(around)), np.bool_)
        # One neighbour after the other: a column at a time is several times faster than all cells by their numbers.
        for place, neighbour in enumerate(around.tolist()):
            leads = self.terrain.parents[:, neighbour] == broker
            relayed[:, place] = messages.meant[:, neighbour][rows] & leads[messages.origin[rows]]
        return Lists(_offsets(relayed.sum(axis=1)), around[np.nonzero(relayed)[1]])

    def delivered(self, messages: Slice, rows: Ints, broker: int) -> Lists:
        """Return the subscriptions of a broker that got each of the rows."""
        land = self.terrain
        interest = messages.interest[rows]
        starts = land.starts[interest, broker]
        counts = land.starts[interest, broker + 1] - starts
        offsets = _offsets(counts)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
        lists = Lists(offsets, land.recipients[places])
        shed = np.where(messages.shed_at[rows] == broker, messages.shed_from[rows], 0)
        return _selected(lists, lists.numbers != np.repeat(shed, counts))

    def shed(self, messages: Slice, broker: int) -> Shed:
        """Return what a broker's queues dropped in a slice."""
        rows = np.flatnonzero((messages.shed_at == broker) & messages.visited[:, broker])
        return Shed(
            messages.origin[rows],
            messages.time[rows],
            messages.publisher[rows],
            messages.counter[rows].astype(np.int32),
            messages.shed_from[rows],
            np.zeros(len(rows), np.int64),
            [SHED_REASON] * len(rows),
            messages.time[rows],
        )


def _gaps(scale: Scale, random: np.random.Generator) -> set[tuple[int, int]]:
    places = min(scale.faults.gaps, scale.brokers * scale.slices)
    chosen = random.choice(scale.brokers * scale.slices, places, replace=False)
    return {(int(place) % scale.brokers + 1, int(place) // scale.brokers) for place in chosen}


class _Routes:
    """The brokers on the routes to all who want a message: by origin and interest, worked out once for each."""

    def __init__(self, land: Terrain, scale: Scale) -> None:
        self._land = land
        cells = land.parents.shape[0] * land.wanted.size
        # Worth it where most of them come up several times.
        self._known = _all_meant(land) if cells <= MAX_ROUTE_CELLS and scale.messages > land.wanted.size else None

    def meant(self, origin: Ints, interest: Ints) -> Bits:
        """Return bool[message, broker]; the messages are sorted by origin."""
        if self._known is not None:
            found: Bits = self._known[origin, interest]
            return found
        meant = np.zeros((len(origin), self._land.wanted.shape[1]), np.bool_)
        bounds = np.searchsorted(origin, np.arange(meant.shape[1] + 1))
        for broker in range(1, meant.shape[1]):
            rows = slice(bounds[broker], bounds[broker + 1])
            meant[rows] = _meant(self._land, broker, self._land.wanted[interest[rows]])
        return meant


def _all_meant(land: Terrain) -> Bits:
    """Return bool[origin, interest, broker]."""
    found = np.zeros((land.wanted.shape[1], *land.wanted.shape), np.bool_)
    for broker in range(1, len(found)):
        found[broker] = _meant(land, broker, land.wanted)
    return found


def _meant(land: Terrain, origin: int, wanted: Bits) -> Bits:
    """Return the brokers on the routes from an origin to all who want each message."""
    # below[o, b, d]: the route to d leads over b. One product counts the destinations beyond each broker.
    meant: Bits = wanted.astype(np.float32) @ land.below[origin].T.astype(np.float32) > 0
    meant[:, origin] = True
    return meant


def _without_origin(meant: Bits, origin: Ints) -> Bits:
    meant = meant.copy()
    meant[np.arange(len(origin)), origin] = False
    return meant


def _one_of(candidates: Bits, random: np.random.Generator) -> Ints:
    """Return one true column of each row, at random; 0 if there is none. Column 0 is never true."""
    keys = random.random(candidates.shape) * candidates
    return np.asarray(np.argmax(keys, axis=1), np.int64)


def _one_recipient(land: Terrain, interest: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
    starts = land.starts[interest]
    place = random.integers(starts[:, 1], starts[:, -1])
    # The broker whose span of recipients contains the place.
    broker = (starts[:, 1:] <= place[:, None]).sum(axis=1)
    return broker, land.recipients[place]


def _counters(origin: Ints, time: Ints, publisher: Ints) -> Ints:
    """Return the place of each row in its run of equal (origin, time, publisher)."""
    count = len(origin)
    place = np.arange(count)
    fresh = np.ones(count, np.bool_)
    fresh[1:] = (np.diff(origin) != 0) | (np.diff(time) != 0) | (np.diff(publisher) != 0)
    return place - np.maximum.accumulate(np.where(fresh, place, 0))


def _offsets(counts: Ints) -> Ints:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _nothing(rows: int) -> Lists:
    return Lists(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))


def _selected(lists: Lists, wanted: Bits) -> Lists:
    """Return the lists without the numbers that are not wanted."""
    kept = np.zeros(len(wanted) + 1, np.int64)
    np.cumsum(wanted, out=kept[1:])
    return Lists(kept[lists.offsets], lists.numbers[wanted])
