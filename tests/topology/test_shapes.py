"""The shapes have the links their names promise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.topology import (
    Graph,
    Hierarchy,
    TopologyError,
    cluster,
    line,
    power_law,
    ring,
    square_with_diagonal,
    star,
    tree,
    waxman,
)


def test_plain_shapes_have_their_links() -> None:
    assert list(line(3).links) == [(1, 2), (2, 3)]
    assert list(ring(4).links) == [(1, 2), (1, 4), (2, 3), (3, 4)]
    assert list(ring(2).links) == [(1, 2)]
    assert list(star(4).links) == [(1, 2), (1, 3), (1, 4)]
    assert len(square_with_diagonal().links) == 5


@given(st.integers(1, 60), st.integers(0, 5), st.integers(1, 4))
@settings(max_examples=40)
def test_grown_networks_are_connected_and_repeatable(count: int, seed: int, links_each: int) -> None:
    for grow in (power_law, waxman):
        graph = grow(count, seed, links_each)
        assert graph.is_connected
        assert len(graph.links) == sum(min(links_each, earlier) for earlier in range(count))
        assert graph == grow(count, seed, links_each)


def test_power_law_has_hubs_where_waxman_has_none() -> None:
    degree = {
        grow.__name__: max(len(graph.neighbours(one)) for one in graph.brokers)
        for grow in (power_law, waxman)
        for graph in [grow(1_000, 1)]
    }
    assert degree["power_law"] > 2 * degree["waxman"]


@given(st.integers(1, 80), st.integers(1, 5))
@settings(max_examples=40)
def test_tree_has_one_root_and_orphans_go_up(count: int, fan_out: int) -> None:
    hierarchy = tree(count, fan_out)
    assert len(hierarchy.graph().links) == count - 1
    assert hierarchy.graph().is_connected
    for number, station in hierarchy.stations.items():
        assert len(hierarchy.children(number)) <= fan_out
        if len(station.parents) > 1 and station.parents[0] != 1:
            assert station.parents[1] == hierarchy.stations[station.parents[0]].parents[0]


@given(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=40)
def test_cluster_has_levels_peers_and_secondaries(tops: int, supers: int, units: int, nodes: int) -> None:
    hierarchy = cluster(tops, supers, units, nodes)
    count = tops * (1 + supers * (1 + units * (1 + nodes)))
    assert len(hierarchy.stations) == count
    assert len(hierarchy.graph().links) == (count - tops) + tops * (tops - 1) // 2
    assert hierarchy.graph().is_connected
    for number in hierarchy.stations:
        members = hierarchy.children(number)
        for member in members[1:]:
            assert hierarchy.stations[member].parents[:2] == (number, members[0])


@given(st.one_of(st.builds(tree, st.integers(1, 40), st.integers(1, 4)), st.builds(cluster, *[st.integers(1, 2)] * 4)))
@settings(max_examples=40)
def test_no_choice_of_parents_makes_a_ring(hierarchy: Hierarchy) -> None:
    above = {number: set(station.parents) for number, station in hierarchy.stations.items()}
    while free := [number for number, parents in above.items() if not parents & above.keys()]:
        for number in free:
            del above[number]
    assert above == {}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: line(0), "between 1 and 65,535 brokers, not 0"),
        (lambda: tree(3, 0), "fan-out of 1 or more"),
        (lambda: cluster(0, 1, 1, 1), "top: 0"),
        (lambda: power_law(3, 1, 0), "1 or more links"),
        (lambda: waxman(3, -1), "seed is 0 or more"),
        (lambda: waxman(3, 1, alpha=0), "alpha and beta"),
        (lambda: Graph([1, 70_000], {}), "broker 70000"),
        (lambda: Graph([1, 2], {(1, 3): 1}), "there is no broker 3"),
        (lambda: Graph([1, 2], {(1, 1): 1}), "two different brokers"),
        (lambda: Graph([1, 2], {(1, 2): 0}), "cost is between 1"),
        (lambda: Graph([1, 2], {(1, 2): 1, (2, 1): 2}), "given twice, with costs 1 and 2"),
    ],
)
def test_impossible_networks_are_refused(make: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        make()
