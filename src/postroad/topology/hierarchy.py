"""Networks with a top and a bottom: the tree, and the cluster of three levels.

Each broker has a list of parents in order of preference: the first is the planned one, the others are for when it
fails. Every parent on a broker's list comes before the broker in one fixed order, whoever fails; so whatever parents
are chosen, following them upwards ends, and there is never a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from postroad.topology.errors import TopologyError
from postroad.topology.shapes import check_count, equal_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.topology.graph import Graph

__all__ = ["Hierarchy", "Station", "cluster", "tree"]


class Station(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One broker's place.

    Attributes:
        parents: whom it attaches to, in order of preference; empty at the top.
        peers: the other brokers at the top that it is linked to, or would be in the place of the one it stands in for.
        deputises_for: the top broker whose place it takes when that one fails, if any.
    """

    parents: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()
    deputises_for: int | None = None


@dataclass(frozen=True)
class Hierarchy:
    """Broker -> its place."""

    stations: Mapping[int, Station]

    def graph(self) -> Graph:
        """The planned links: each broker to its first parent, the top brokers to each other."""
        links = {(station.parents[0], number) for number, station in self.stations.items() if station.parents}
        tops = {number: one for number, one in self.stations.items() if not one.parents}
        links |= {(number, peer) for number, one in tops.items() for peer in one.peers if number < peer}
        return equal_costs(len(self.stations), links)

    def related(self, number: int) -> list[int]:
        """The brokers with which this one may get a link when others fail, in order."""
        above = set(self.stations[number].parents)
        below = {other for other, station in self.stations.items() if number in station.parents}
        leaders = {other for other, one in self.stations.items() if not one.parents or one.deputises_for is not None}
        return sorted((above | below | (leaders if number in leaders else set())) - {number})

    def children(self, number: int) -> list[int]:
        """The brokers whose first parent this is."""
        return [child for child, station in self.stations.items() if station.parents[:1] == (number,)]


def tree(count: int, fan_out: int = 4) -> Hierarchy:
    """A tree filled level by level from broker 1, each broker with up to `fan_out` children.

    When a parent fails, its children go to the grandparent, and so on up. When no ancestor is left, the children of
    the root gather under the lowest-numbered of them.
    """
    check_count(count)
    if fan_out < 1:
        raise TopologyError(f"a tree needs a fan-out of 1 or more, not {fan_out}")
    stations: dict[int, Station] = {1: Station()}
    for number in range(2, count + 1):
        parent = (number - 2) // fan_out + 1
        above = (parent, *stations[parent].parents)
        if parent == 1:
            above += tuple(range(2, number))
        stations[number] = Station(above)
    return Hierarchy(stations)


def cluster(tops: int, supers: int, units: int, nodes: int) -> Hierarchy:
    """A cluster: `tops` top controllers that peer, and under each of them three levels.

    Each top has `supers` super controllers, each of those `units` unit controllers, each of those `nodes` nodes. The
    first member below a controller is its secondary: when the controller fails, the other members go to the secondary,
    and the secondary goes to the controller's own parents; the secondary of a top takes over its peers. When both
    fail, the members go to the controller's parents too.

    Numbers: the tops first, then the super controllers, the unit controllers, the nodes.
    """
    for what, size, least in (("top", tops, 1), ("super", supers, 0), ("unit", units, 0), ("node", nodes, 0)):
        if size < least:
            raise TopologyError(f"a cluster needs {least} or more per level ({what}: {size})")
    check_count(tops * (1 + supers * (1 + units * (1 + nodes))))
    top_numbers = range(1, tops + 1)
    stations = {number: Station((), tuple(peer for peer in top_numbers if peer != number)) for number in top_numbers}
    above = list(top_numbers)
    for width in (supers, units, nodes):
        below: list[int] = []
        for controller in above:
            first = len(stations) + 1
            members = range(first, first + width)
            stations.update((member, _member(stations, controller, first, member)) for member in members)
            below.extend(members)
        above = below
    return Hierarchy(stations)


def _member(stations: Mapping[int, Station], controller: int, secondary: int, member: int) -> Station:
    boss = stations[controller]
    if member != secondary:
        return Station((controller, secondary, *boss.parents))
    if boss.parents:
        return Station((controller, *boss.parents))
    return Station((controller,), boss.peers, controller)
