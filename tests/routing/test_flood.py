"""Flooding: everybody gets everything once, whatever it costs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, Draft, MessageId
from postroad.routing import Destinations, Flood
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
@given(graphs(), subscriptions, churn, st.integers(0, 5))
def test_brokers_joined_by_links_that_stay_lose_nothing(
    graph: Graph, wanted: list[tuple[int, str]], actions: list[tuple[str, int, str]], seed: int
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


def test_message_sent_again_passes_brokers_that_have_seen_it_once() -> None:
    """Broker 3 has moved to 2 after 2 passed the message on; 1, whose link to 3 broke, sends it again."""
    sender, passing = Flood(1, 0), Flood(2, 0)
    sender.link_up(2, 1, 0)
    passing.link_up(1, 1, 0)
    nowhere = Destinations.nowhere(1)
    sent = sender.publish(Batch.build([Draft("a", id=MessageId(1, 1, 1, 1))]), nowhere, 0)
    assert passing.relay(sent.batch, nowhere, 1, 0).parcels == []
    passing.link_up(3, 1, 0)
    assert passing.relay(sent.batch, nowhere, 1, 0).parcels == []
    again = sender.reroute(sent.batch, nowhere, 0, returned=True)
    passed = passing.relay(again.batch, nowhere, 1, 0)
    assert ([parcel.link for parcel in passed.parcels], passed.local.tolist()) == ([3], [])
    assert passing.relay(again.batch, nowhere, 1, 0).parcels == []
    # What comes round to the sender ends there.
    assert sender.relay(again.batch, nowhere, 2, 0).parcels == []


def test_flood_sends_no_control_frames() -> None:
    network = flood(ring(5))
    network.subscribe(2, "a")
    network.wait(60_000)
    assert network.control_frames == 0
