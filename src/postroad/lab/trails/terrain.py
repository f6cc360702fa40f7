"""The network of a generated trail: its links, the tree of routes from each broker, and who wants what.

Interests are sets of subscriptions. A few brokers with close numbers share an interest, so that a message visits about
five of twenty brokers and reaches about four subscriptions; nobody has one interest in twenty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from postroad.topology import power_law, routes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.lab.trails.scale import Scale
    from postroad.topology import Graph

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["Terrain", "terrain"]

# Chosen so that a message of the default network visits 4.8 brokers, including its origin, and has 4 recipients.
_NOBODY = 0.05
_MEAN_BROKERS = 2.35
_MEAN_RECIPIENTS = 4.2


@dataclass(frozen=True, eq=False)
class Terrain:
    """The network and its interests. Brokers are numbered from 1; arrays have a place 0 that stays empty.

    Attributes:
        graph: brokers and links.
        parents: int64[origin, broker]: the broker before `broker` on the route from `origin`; 0 at the origin itself.
        below: bool[origin, broker, other]: `other` is `broker`, or lies beyond it on the routes from `origin`.
        wanted: bool[interest, broker]: someone there has the interest.
        recipients: int64, the subscription numbers of all interests, by interest, broker and number.
        starts: int64[interest, broker + 1]: recipients[starts[i, b]:starts[i, b + 1]] are those of i at broker b.
    """

    graph: Graph
    parents: Ints
    below: Bits
    wanted: Bits
    recipients: Ints
    starts: Ints


def terrain(scale: Scale) -> Terrain:
    """Return the network of a scale: the same for the same seed and sizes."""
    graph = power_law(scale.brokers, scale.seed)
    parents = _parents(graph)
    random = np.random.default_rng([scale.seed, 1])
    wanted, recipients, starts = _interests(scale, random)
    return Terrain(graph, parents, _below(parents), wanted, recipients, starts)


def _parents(graph: Graph) -> Ints:
    size = max(graph.brokers) + 1
    around = {number: graph.neighbours(number) for number in graph.brokers}
    first_hops = np.zeros((size, size), np.int64)
    for number in graph.brokers:
        first_hops[number] = routes(number, around).first_hops[:size]
    parents = np.zeros((size, size), np.int64)
    for origin in graph.brokers:
        for destination in graph.brokers:
            at = origin
            while at != destination:
                hop = int(first_hops[at, destination])
                parents[origin, hop] = at
                at = hop
    return parents


def _below(parents: Ints) -> Bits:
    size = len(parents)
    below = np.zeros((size, size, size), np.bool_)
    for origin in range(1, size):
        for broker in range(1, size):
            at = broker
            while at:
                below[origin, at, broker] = True
                at = int(parents[origin, at])
    return below


def _interests(scale: Scale, random: np.random.Generator) -> tuple[Bits, Ints, Ints]:
    count, size = scale.interests, scale.brokers + 1
    somebody = random.random(count) >= _NOBODY
    brokers = np.minimum(1 + random.poisson(_MEAN_BROKERS - 1, count), scale.brokers)
    most = scale.brokers * scale.subscriptions
    people = np.minimum(np.maximum(brokers, 1 + random.poisson(_MEAN_RECIPIENTS - 1, count)), most)
    interest = np.repeat(np.arange(count), np.where(somebody, people, 0))
    first = np.cumsum(np.where(somebody, people, 0)) - np.where(somebody, people, 0)
    turn = np.arange(len(interest)) - first[interest]
    # Which of the interest's brokers: each at least once, then any of them.
    place = np.where(turn < brokers[interest], turn, random.integers(0, brokers[interest]))
    home = random.integers(1, scale.brokers + 1, (count, int(brokers.max())))
    broker = home[interest, place]
    subscription = random.integers(1, scale.subscriptions + 1, len(interest))
    order = np.unique((interest * size + broker) * (scale.subscriptions + 1) + subscription)
    cell, recipients = np.divmod(order, scale.subscriptions + 1)
    # The first recipient of each (interest, broker); one place more for the end of the last broker.
    bounds = np.searchsorted(cell, np.arange(count * size + 1))
    starts = np.concatenate([bounds[:-1].reshape(count, size), bounds[size::size, None]], axis=1)
    wanted = np.diff(starts, axis=1) > 0
    return wanted, recipients.astype(np.int64), starts.astype(np.int64)
