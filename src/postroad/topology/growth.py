"""Networks grown at random on a plane, as the BRITE generator does for the Internet: power law, and Waxman's.

Both are seeded: the same arguments give the same network everywhere. Costs grow with the distance on the plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.topology.errors import TopologyError
from postroad.topology.graph import DEFAULT_COST, Graph
from postroad.topology.shapes import check_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Points = NDArray[np.float64]

__all__ = ["power_law", "waxman"]

# The longest possible link costs this much more than the shortest: enough that shortest paths follow the plane, and
# still small whole numbers to read in a plan.
_COST_OF_DIAGONAL = 100
# BRITE's own defaults for Waxman's two parameters.
DEFAULT_ALPHA = 0.15
DEFAULT_BETA = 0.2


def power_law(count: int, seed: int, links_each: int = 2) -> Graph:
    """Each new broker links to `links_each` earlier ones, likelier to those with many links (Barabási and Albert)."""
    random = _checked(count, seed, links_each)
    points = random.random((count, 2))
    # Every link puts both its ends in here, so an even draw from it is a draw by the number of links.
    ends = [0]
    links: dict[tuple[int, int], int] = {}
    for fresh in range(1, count):
        chosen: set[int] = set()
        while len(chosen) < min(links_each, fresh):
            chosen.add(ends[int(random.integers(len(ends)))])
        for old in sorted(chosen):
            links[old + 1, fresh + 1] = _cost(points, old, fresh)
            ends += (old, fresh)
    return Graph(range(1, count + 1), links)


def waxman(
    count: int, seed: int, links_each: int = 2, alpha: float = DEFAULT_ALPHA, beta: float = DEFAULT_BETA
) -> Graph:
    """Each new broker links to `links_each` earlier ones, likelier to near ones.

    A link of length d weighs alpha * exp(-d / (beta * L)), with L the plane's diagonal.
    """
    random = _checked(count, seed, links_each)
    if not (0 < alpha <= 1 and 0 < beta <= 1):
        raise TopologyError(f"Waxman's alpha and beta are above 0 and at most 1, not {alpha} and {beta}")
    points = random.random((count, 2))
    links: dict[tuple[int, int], int] = {}
    for fresh in range(1, count):
        lengths = np.hypot(*(points[:fresh] - points[fresh]).T)
        weights = alpha * np.exp(-lengths / (beta * np.sqrt(2)))
        # The draw without repetition with these weights: the largest of uniform ** (1 / weight), in logarithms.
        keys = np.log(random.random(fresh)) / weights
        for old in np.argsort(-keys, kind="stable")[:links_each].tolist():
            links[old + 1, fresh + 1] = _cost(points, old, fresh)
    return Graph(range(1, count + 1), links)


def _checked(count: int, seed: int, links_each: int) -> np.random.Generator:
    check_count(count)
    if links_each < 1:
        raise TopologyError(f"a broker that joins needs 1 or more links, not {links_each}")
    if seed < 0:
        raise TopologyError(f"a seed is 0 or more, not {seed}")
    return np.random.default_rng(seed)


def _cost(points: Points, one: int, other: int) -> int:
    length = float(np.hypot(*(points[one] - points[other])) / np.sqrt(2))
    return DEFAULT_COST + round(_COST_OF_DIAGONAL * length)
