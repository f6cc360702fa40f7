"""`Graph`: brokers by number and undirected links with whole costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DEFAULT_COST", "LARGEST_BROKER", "LARGEST_COST", "Graph"]

# A broker's number is its bit in destination sets: at this limit a set of one bit has 8 KiB. Numbers are never used
# again, so the limit leaves room for sixty generations of a network of a thousand. Number 0 means "no broker".
LARGEST_BROKER = 65_535
# A path crosses each broker at most once, so that no sum of costs comes near the end of 64 bits.
LARGEST_COST = 2**32 - 1
# Leaves room below for links that are better than most, without fractions.
DEFAULT_COST = 10


class Graph:
    """Brokers and the links between them.

    Attributes:
        brokers: all numbers, rising.
        links: (lower number, higher number) -> cost, in rising order.
    """

    __slots__ = ("_neighbours", "brokers", "links")

    def __init__(self, brokers: Iterable[int], links: Mapping[tuple[int, int], int]) -> None:
        """Check and order.

        Raises:
            TopologyError: a number or a cost out of range, a link to itself or to a broker that is not there.
        """
        self.brokers = tuple(sorted(set(brokers)))
        for number in self.brokers:
            if not 1 <= number <= LARGEST_BROKER:
                raise TopologyError(f"broker {number}: numbers are between 1 and {LARGEST_BROKER:,}")
        self._neighbours: dict[int, dict[int, int]] = {number: {} for number in self.brokers}
        for (one, other), cost in sorted(links.items()):
            self._join(one, other, cost)
        self.links = {
            (one, other): cost
            for one, around in self._neighbours.items()
            for other, cost in sorted(around.items())
            if one < other
        }

    def neighbours(self, number: int) -> Mapping[int, int]:
        """Neighbour -> cost of the link to it."""
        return self._neighbours[number]

    def reached_from(self, number: int) -> set[int]:
        """The brokers some path leads to, the broker itself among them."""
        seen = {number}
        waiting = [number]
        while waiting:
            fresh = self._neighbours[waiting.pop()].keys() - seen
            seen |= fresh
            waiting.extend(fresh)
        return seen

    @property
    def is_connected(self) -> bool:
        """Whether there is a path between any two brokers."""
        return not self.brokers or len(self.reached_from(self.brokers[0])) == len(self.brokers)

    def _join(self, one: int, other: int, cost: int) -> None:
        where = f"link {one}-{other}"
        for end in (one, other):
            if end not in self._neighbours:
                raise TopologyError(f"{where}: there is no broker {end}")
        if one == other:
            raise TopologyError(f"{where}: a link joins two different brokers")
        if not 1 <= cost <= LARGEST_COST:
            raise TopologyError(f"{where}: a cost is between 1 and {LARGEST_COST:,}, not {cost}")
        if self._neighbours[one].get(other, cost) != cost:
            raise TopologyError(f"{where}: given twice, with costs {self._neighbours[one][other]} and {cost}")
        self._neighbours[one][other] = cost
        self._neighbours[other][one] = cost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.brokers, self.links) == (other.brokers, other.links)

    __hash__ = None  # type: ignore[assignment]  # two equal graphs are two objects; no table is keyed by them

    def __repr__(self) -> str:
        return f"<Graph of {len(self.brokers):,} brokers and {len(self.links):,} links>"
