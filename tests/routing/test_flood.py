"""Flooding: everybody gets everything once, whatever it costs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.topology import Graph, ring
from tests.routing.network import flood
from tests.routing.strategies import chosen, churn, disturb, publications, publish, subscribe, subscriptions
from tests.topology.strategies import graphs


@settings(max_examples=60)
@given(graphs(), subscriptions, publications, st.integers(0, 5))
def test_every_interested_broker_gets_each_message_once(
    graph: Graph, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], seed: int
) -> None:
    network = flood(graph, seed)
    subscribe(network, wanted)
    messages = publish(network, sent)
    network.run()
    for message in messages:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)
        packets = sum(network.packets_of(message).values())
        assert packets == 2 * len(graph.links) - (len(graph.brokers) - 1)


@settings(max_examples=60)
@given(graphs(), subscriptions, churn, st.integers(0, 5), st.data())
def test_brokers_joined_by_links_that_stay_lose_nothing(
    graph: Graph, wanted: list[tuple[int, str]], actions: list[tuple[str, int, str]], seed: int, data: st.DataObject
) -> None:
    network = flood(graph, seed)
    subscribe(network, wanted)
    links = list(graph.links)
    cut = {links[place % len(links)] for action, place, _ in actions if action == "cut" and links}
    lasting = Graph(graph.brokers, {link: 1 for link in links if link not in cut})
    messages = disturb(network, actions)
    sources = [chosen(graph.brokers, place) for action, place, _ in actions if action == "publish"]
    for message, source in zip(messages, sources, strict=True):
        got = network.got(message)
        assert set(got.values()) <= {1}
        assert got.keys() <= network.wanted(message)
        assert got.keys() >= network.wanted(message) & lasting.reached_from(source)


def test_message_goes_again_to_a_broker_that_moved_while_it_was_on_its_way() -> None:
    """Broker 3 hangs on 1; it moves to 2, which has passed the message on already."""
    graph = Graph([1, 2, 3], {(1, 2): 1, (1, 3): 1})
    network = flood(graph)
    network.subscribe(3, "a")
    (message,) = network.publish(1, ["a"])
    while (message, 1, 2) not in network.packets or network._unacknowledged[1, 2]:
        network.step()
    if not network.got(message):
        network.join(2, 3)
        network.cut(1, 3)
    network.run()
    assert network.got(message) == {3: 1}


def test_flood_sends_no_control_frames() -> None:
    network = flood(ring(5))
    network.subscribe(2, "a")
    network.wait(60_000)
    assert network.control_frames == 0
