"""Shortest paths against Floyd and Warshall's algorithm, and the tie rule that keeps branches apart."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from hypothesis import given, settings

from postroad.topology import UNREACHED, Graph, Routes, routes
from tests.topology.strategies import graphs

if TYPE_CHECKING:
    import numpy as np


def all_distances(graph: Graph) -> dict[tuple[int, int], float]:
    found = {(a, b): 0.0 if a == b else inf for a in graph.brokers for b in graph.brokers}
    for (a, b), cost in graph.links.items():
        found[a, b] = found[b, a] = cost
    for middle in graph.brokers:
        for a in graph.brokers:
            for b in graph.brokers:
                found[a, b] = min(found[a, b], found[a, middle] + found[middle, b])
    return found


def routes_of(graph: Graph, number: int) -> Routes:
    return routes(number, {broker: graph.neighbours(broker) for broker in graph.brokers})


def has_bit(words: np.ndarray, number: int) -> bool:
    return bool(int(words[number // 64]) >> (number % 64) & 1)


@settings(max_examples=150)
@given(graphs(connected=False))
def test_distances_and_first_hops_are_those_of_the_slow_algorithm(graph: Graph) -> None:
    distances = all_distances(graph)
    for source in graph.brokers:
        found = routes_of(graph, source)
        assert found.neighbours.tolist() == sorted(graph.neighbours(source))
        for destination in graph.brokers:
            expected = distances[source, destination]
            assert found.distances[destination] == (UNREACHED if expected == inf else expected)
            ways = [
                neighbour
                for neighbour, cost in graph.neighbours(source).items()
                if destination != source and cost + distances[neighbour, destination] == expected < inf
            ]
            assert found.first_hop(destination) == min(ways, default=UNREACHED)


@given(graphs(connected=False))
def test_masks_share_out_the_reachable_brokers(graph: Graph) -> None:
    for source in graph.brokers:
        found = routes_of(graph, source)
        reached = graph.reached_from(source) - {source}
        assert found.reached == len(reached)
        for destination in range(64 * found.words):
            lines = [line for line in range(len(found.neighbours)) if has_bit(found.masks[line], destination)]
            if destination in reached:
                assert found.neighbours[lines].tolist() == [found.first_hop(destination)]
            else:
                assert lines == []
                assert found.first_hop(destination) == UNREACHED


@given(graphs())
def test_ways_from_one_broker_never_meet_again(graph: Graph) -> None:
    found = {number: routes_of(graph, number) for number in graph.brokers}
    for source in graph.brokers:
        came_from: dict[int, int] = {}
        for destination in graph.brokers:
            here = source
            while here != destination:
                following = found[here].first_hop(destination)
                assert came_from.setdefault(following, here) == here
                here = following


def test_broker_without_links_reaches_nobody() -> None:
    alone = routes(7, {})
    assert (alone.reached, alone.masks.shape, alone.first_hop(7), alone.first_hop(10**6)) == (0, (0, 1), -1, -1)
