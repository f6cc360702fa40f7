"""Plain shapes of networks. Brokers are numbered from 1, and all links cost the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.topology.errors import TopologyError
from postroad.topology.graph import DEFAULT_COST, LARGEST_BROKER, Graph

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_count", "equal_costs", "line", "ring", "square_with_diagonal", "star"]


def line(count: int) -> Graph:
    """Each broker linked to the next."""
    check_count(count)
    return equal_costs(count, ((number, number + 1) for number in range(1, count)))


def ring(count: int) -> Graph:
    """A line whose ends are linked; below three brokers, a line."""
    check_count(count)
    closing = [(1, count)] if count > 2 else []
    return equal_costs(count, [*((number, number + 1) for number in range(1, count)), *closing])


def star(count: int) -> Graph:
    """All brokers linked to broker 1."""
    check_count(count)
    return equal_costs(count, ((1, number) for number in range(2, count + 1)))


def square_with_diagonal() -> Graph:
    """Four brokers in a ring, and a link between 1 and 3."""
    return equal_costs(4, [(1, 2), (2, 3), (3, 4), (1, 4), (1, 3)])


def equal_costs(count: int, links: Iterable[tuple[int, int]]) -> Graph:
    """The graph of brokers 1 to `count` with these links, all at the default cost."""
    return Graph(range(1, count + 1), dict.fromkeys(links, DEFAULT_COST))


def check_count(count: int) -> None:
    """Raise `TopologyError` unless a network may have so many brokers."""
    if not 1 <= count <= LARGEST_BROKER:
        raise TopologyError(f"a network has between 1 and {LARGEST_BROKER:,} brokers, not {count:,}")
