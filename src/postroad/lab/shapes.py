"""The networks of the papers' experiments, by number of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.lab.errors import LabError
from postroad.topology import HIERARCHICAL, Plan, cluster, line, power_law, square_with_diagonal, tree

if TYPE_CHECKING:
    from postroad.topology import Graph, Hierarchy, Settings, StrategyName

__all__ = ["HIERARCHIES", "SHAPES", "plan_for"]

# B-DRP's: the published figures name a square with a diagonal, and networks grown by BRITE.
SHAPES: dict[int, Graph] = {
    1: line(1),
    2: line(2),
    4: square_with_diagonal(),
    8: power_law(8, 4),
    42: power_law(42, 4),
}
# A tree and a cluster of as many brokers.
HIERARCHIES: dict[int, tuple[Hierarchy, Hierarchy]] = {
    1: (tree(1), cluster(1, 0, 0, 0)),
    2: (tree(2), cluster(2, 0, 0, 0)),
    4: (tree(4, 2), cluster(1, 1, 1, 1)),
    8: (tree(8, 2), cluster(2, 1, 1, 1)),
    42: (tree(42, 4), cluster(2, 2, 3, 2)),
}
_SEED = 4


def plan_for(strategy: StrategyName, brokers: int, settings: Settings | None = None) -> Plan:
    """Return a network of this many brokers that suits a strategy.

    Raises:
        LabError: there is no cluster of that size.
    """
    if strategy not in HIERARCHICAL:
        shape: Graph | Hierarchy = SHAPES.get(brokers) or power_law(brokers, _SEED)
    elif strategy == "tree":
        shape = HIERARCHIES[brokers][0] if brokers in HIERARCHIES else tree(brokers, 4)
    elif brokers in HIERARCHIES:
        shape = HIERARCHIES[brokers][1]
    else:
        shape = _cluster(brokers)
    return Plan.of(shape, f"{strategy}-{brokers}", strategy=strategy, settings=settings)


def _cluster(brokers: int) -> Hierarchy:
    """Return a cluster of exactly this many brokers with equal units; with several tops, if possible."""
    for tops in (*range(2, 9), 1):
        for supers in range(1, 12):
            for controllers in range(1, 12):
                nodes, left = divmod(brokers - tops * (1 + supers * (1 + controllers)), tops * supers * controllers)
                if left == 0 and 0 <= nodes <= 12:
                    return cluster(tops, supers, controllers, nodes)
    raise LabError(f"there is no cluster of {brokers} brokers with equal units; choose another number")
