"""Brokers of a tree or a cluster return to their planned parents, and lose and double nothing on the way."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.topology import Hierarchy
from postroad.topology import cluster as plan_cluster
from postroad.topology import tree as plan_tree
from tests.routing.network import Network, cluster, tree

SETTLED_MS = 30_000
trees = st.builds(plan_tree, st.integers(4, 12), st.integers(1, 3))
clusters = st.builds(plan_cluster, st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2))


def parents(network: Network) -> dict[int, tuple[int, int]]:
    """Broker -> its parent, and the planned one."""
    counts = {number: node.strategy.statistics() for number, node in network.nodes.items()}
    return {number: (each["parent"], each["planned_parent"]) for number, each in counts.items()}


def is_planned(network: Network) -> bool:
    return all(parent == planned for parent, planned in parents(network).values())


def with_children(hierarchy: Hierarchy) -> list[int]:
    """Brokers below the top that others are below of."""
    return [one for one, station in hierarchy.stations.items() if station.parents and hierarchy.children(one)]


@pytest.mark.parametrize("kind", ["tree", "cluster"])
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 1_000))
def test_children_return_to_a_parent_that_is_back_and_nothing_is_lost_or_doubled(
    kind: str, data: st.DataObject, seed: int
) -> None:
    draw = random.Random(seed)
    hierarchy = data.draw((trees if kind == "tree" else clusters).filter(with_children))
    network = (tree if kind == "tree" else cluster)(hierarchy, seed)
    network.wait(SETTLED_MS)
    assert is_planned(network)
    victim = draw.choice(with_children(hierarchy))
    for number in network.graph.brokers:
        if number != victim:
            network.subscribe(number, *draw.sample("abc", draw.randrange(3)))
    network.wait(SETTLED_MS)
    network.stop(victim)
    network.wait(SETTLED_MS)
    assert not is_planned(network)
    network.start(victim)
    messages: list[int] = []
    links = [link for link in network.graph.links if victim in link]
    draw.shuffle(links)
    # It comes back link by link, while everybody publishes.
    for _ in range(150):
        if links and draw.random() < 0.2:
            network.join(*links.pop())
        living = [number for number in network.nodes if number != victim]
        messages += network.publish(draw.choice(living), draw.choices("abc", k=draw.randrange(1, 3)))
        if draw.random() < 0.3:
            network.wait(draw.choice((1, 5, 50, 700)))
        elif network.queue:
            network.step()
    network.wait(SETTLED_MS)
    assert is_planned(network)
    for message in messages:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)
    # Every message takes the planned way, once.
    after = network.publish(draw.choice(list(network.nodes)), "abc")
    network.run()
    for message in after:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)
        assert set(network.packets_of(message).values()) <= {1}
        assert {tuple(sorted(link)) for link in network.packets_of(message)} <= set(network.graph.links)


@settings(max_examples=30)
@given(hierarchy=trees, seed=st.integers(0, 1_000))
def test_brokers_that_start_in_any_order_take_the_planned_shape(hierarchy: Hierarchy, seed: int) -> None:
    draw = random.Random(seed)
    network = tree(hierarchy, seed)
    for number in list(network.nodes):
        network.stop(number)
    order = list(network.graph.brokers)
    draw.shuffle(order)
    for number in order:
        network.start(number)
        for one, other in network.graph.links:
            network.join(one, other)
        network.wait(draw.choice((100, 4_000)))
    network.wait(SETTLED_MS)
    assert is_planned(network)


def test_a_child_stays_where_it_is_while_its_planned_parent_has_no_way_to_the_top() -> None:
    network = tree(plan_tree(4, 1))  # 1 - 2 - 3 - 4
    network.wait(SETTLED_MS)
    network.stop(3)
    network.wait(SETTLED_MS)
    assert parents(network)[4] == (2, 3)
    network.subscribe(1, "a")
    network.wait(1_000)
    network.start(3)
    network.join(3, 4)
    network.run()
    # Broker 3 can reach its child and nobody above.
    assert parents(network)[4] == (2, 3)
    (message,) = network.publish(4, ["a"])
    network.run()
    assert network.got(message) == {1: 1}
    # It finds a way past its own parent; that will do.
    network.wait(SETTLED_MS)
    assert (parents(network)[3], parents(network)[4]) == ((1, 2), (3, 3))
    network.join(2, 3)
    network.wait(SETTLED_MS)
    assert is_planned(network)
