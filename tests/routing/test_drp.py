"""Dynamic receiver partitioning: who gets what, over which links, while ways change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, Draft, MessageId
from postroad.routing import Destinations, Drp, LinkRecord, RoutingError
from postroad.routing.drp import BREAK_UNKNOWN_MS
from postroad.topology import Graph, line, ring, routes, square_with_diagonal
from tests.routing.network import Network, drp
from tests.routing.strategies import TOPICS, chosen, churn, disturb, publications, publish, subscribe, subscriptions
from tests.topology.strategies import graphs


def check_exactly_once(network: Network, messages: list[int]) -> None:
    for message in messages:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)
    assert all(not node.held and not node.exhausted for node in network.nodes.values())


@settings(max_examples=80)
@given(graphs(), subscriptions, publications, st.integers(0, 5))
def test_every_interested_broker_gets_each_message_once(
    graph: Graph, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], seed: int
) -> None:
    network = drp(graph, seed)
    subscribe(network, wanted)
    messages = publish(network, sent)
    network.run()
    check_exactly_once(network, messages)


@settings(max_examples=80)
@given(graphs(), subscriptions, st.integers(0, 50), st.sampled_from(TOPICS))
def test_packets_follow_a_shortest_path_tree(
    graph: Graph, wanted: list[tuple[int, str]], place: int, topic: str
) -> None:
    network = drp(graph, broadcast_threshold=1)
    subscribe(network, wanted)
    source = chosen(graph.brokers, place)
    (message,) = network.publish(source, [topic])
    network.run()
    packets = network.packets_of(message)
    assert set(packets.values()) <= {1}
    came_from = {there: here for here, there in packets}
    assert len(came_from) == len(packets), "two branches met"
    distances = routes(source, {broker: graph.neighbours(broker) for broker in graph.brokers}).distances
    for there, here in came_from.items():
        assert distances[there] == distances[here] + graph.neighbours(here)[there]
    leaves = set(came_from) - set(came_from.values())
    assert leaves <= network.wanted(message), "a packet went where nobody wanted it"
    # Broadcast over all links: each broker sends on all its links but the one it got the message from.
    assert len(packets) <= 2 * len(graph.links) - (len(graph.brokers) - 1)


@settings(max_examples=60)
@given(graphs(), subscriptions, publications)
def test_broadcast_reaches_all_and_delivers_once(
    graph: Graph, wanted: list[tuple[int, str]], sent: list[tuple[int, str]]
) -> None:
    network = drp(graph, broadcast_threshold=0)
    subscribe(network, wanted)
    messages = publish(network, sent)
    network.run()
    check_exactly_once(network, messages)
    for message, (place, _) in zip(messages, sent, strict=True):
        elsewhere = network.wanted(message) - {chosen(graph.brokers, place)}
        packets = sum(network.packets_of(message).values())
        # First copies reach the other N - 1 brokers, which do not send back; copies that cross on a link both count.
        assert packets == (2 * len(graph.links) - (len(graph.brokers) - 1) if elsewhere else 0)


@settings(max_examples=120)
@given(graphs(), subscriptions, churn, st.integers(0, 5), st.sampled_from([0, 0.4, 0.8, 1]))
def test_nothing_is_lost_or_doubled_while_links_come_and_go(
    graph: Graph, wanted: list[tuple[int, str]], actions: list[tuple[str, int, str]], seed: int, threshold: float
) -> None:
    network = drp(graph, seed, broadcast_threshold=threshold)
    subscribe(network, wanted)
    check_exactly_once(network, disturb(network, actions))


@settings(max_examples=60)
@given(graphs(), subscriptions, publications, st.integers(0, 8))
def test_nothing_is_missed_after_a_broker_died(
    graph: Graph, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], place: int
) -> None:
    network = drp(graph)
    subscribe(network, wanted)
    network.stop(chosen(graph.brokers, place))
    network.wait(150_000)
    live = network.live_graph()
    for at, topic in sent if live.brokers else []:
        source = chosen(live.brokers, at)
        (message,) = network.publish(source, [topic])
        network.run()
        # What the death cut off from the source ages out of its interests in time.
        assert network.got(message) == dict.fromkeys(network.wanted(message) & live.reached_from(source), 1)
    assert all(not node.held for node in network.nodes.values())


def test_message_for_an_unreachable_broker_is_held_and_sent_when_there_is_a_way() -> None:
    network = drp(line(4))
    network.subscribe(4, "a")
    network.run()
    network.cut(2, 3)
    (message,) = network.publish(1, ["a"])
    network.run()
    assert network.got(message) == {}
    assert sum(len(node.held) for node in network.nodes.values()) == 1
    network.join(2, 3)
    network.run()
    assert network.got(message) == {4: 1}


def test_broadcast_on_a_link_that_breaks_waits_for_those_it_cut_off() -> None:
    network = drp(line(2), broadcast_threshold=0)
    network.subscribe(2, "a")
    network.run()
    (message,) = network.publish(1, ["a"])
    network.cut(1, 2)
    network.run()
    assert network.got(message) == {}
    network.join(1, 2)
    network.run()
    assert network.got(message) == {2: 1}


def test_lost_acknowledgement_does_not_deliver_twice() -> None:
    network = drp(ring(4))
    network.subscribe(3, "a")
    network.run()
    (message,) = network.publish(1, ["a"])
    while not network.got(message):
        network.step()
    # Broker 3 has it; the acknowledgement to broker 2 is still on its way.
    assert network.unacknowledged[2, 3]
    network.cut(2, 3)
    network.run()
    assert network.got(message) == {3: 1}
    assert network.nodes[3].duplicates == 1


def test_hop_limit_ends_a_loop_between_brokers_that_disagree() -> None:
    """Brokers 1 and 2 each believe that the way to 3 leads over the other."""
    pair = {number: Drp(number, 0) for number in (1, 2)}
    for number, other in ((1, 2), (2, 1)):
        pair[number].link_up(other, 1, 0)
        pair[number].control(LinkRecord(other, 0, 9, 0, ((number, 1), (3, 1))), other, 0)
        pair[number].control(LinkRecord(3, 0, 9, 0, ((other, 1),)), other, 0)
    routed = pair[1].publish(Batch.build([Draft("a", id=MessageId(1, 1, 1, 1))]), Destinations.of([[3]]), 0)
    here, hops = 1, 0
    while routed.parcels:
        (parcel,) = routed.parcels
        here, came, hops = parcel.link, here, hops + 1
        routed = pair[here].relay(routed.batch.take(parcel.rows), parcel.destinations, came, 0)
    assert hops == 16
    assert routed.exhausted is not None
    assert routed.exhausted.destinations.numbers(0) == [3]


def test_repeated_message_goes_on_to_its_other_destinations() -> None:
    strategy = Drp(1, 0)
    for link in (2, 3):
        strategy.link_up(link, 1, 0)
        strategy.control(LinkRecord(link, 0, 9, 0, ((1, 1),)), link, 0)
    batch = Batch.build([Draft("a", id=MessageId(1, 2, 1, 1))])
    first = strategy.relay(batch, Destinations.of([[1]]), 2, 0)
    assert (first.local.tolist(), first.parcels) == ([0], [])
    again = strategy.relay(batch, Destinations.of([[1, 3]]), 2, 0)
    assert (again.local.tolist(), again.duplicates) == ([], 1)
    assert [(parcel.link, parcel.destinations.numbers(0)) for parcel in again.parcels] == [(3, [3])]
    assert strategy.statistics()["reached"] == 2


def test_unknown_destination_is_reported() -> None:
    strategy = Drp(1, 0)
    routed = strategy.publish(Batch.build([("a",)]), Destinations.of([[1, 2, 900]]), 0)
    assert routed.parcels == []
    assert routed.local.tolist() == [0]
    assert routed.held is not None
    assert routed.held.destinations.numbers(0) == [2, 900]


def test_one_batch_becomes_one_parcel_per_link_with_rows_in_order() -> None:
    network = drp(square_with_diagonal())
    network.subscribe(2, "a")
    network.subscribe(3, ">")
    network.subscribe(4, "b")
    network.run()
    before = network.parcels
    messages = network.publish(1, ["a", "b", "a", "a.b"] * 5)
    network.run()
    assert network.parcels - before == 3
    check_exactly_once(network, messages)


def test_destinations_from_outside_are_checked() -> None:
    strategy = Drp(1, 0)
    with pytest.raises(RoutingError, match="outside the 1 sets"):
        strategy.relay(Batch.build([("a",)]), Destinations(np.zeros((1, 1), np.uint64), np.array([5])), 2, 0)


def test_broadcast_that_comes_just_after_a_link_broke_is_held_for_those_beyond_it() -> None:
    network = drp(line(4), broadcast_threshold=0)
    subscribe(network, [(0, "a")])
    (message,) = network.publish(4, ["a"])
    network.cut(2, 3)
    network.run()
    assert network.got(message) == {}
    network.join(2, 3)
    network.run()
    check_exactly_once(network, [message])


def test_broadcast_of_long_after_a_break_is_not_held_for_those_beyond_it() -> None:
    network = drp(line(4), broadcast_threshold=0)
    subscribe(network, [(3, "a")])
    network.cut(2, 3)
    network.wait(BREAK_UNKNOWN_MS + 1_000)
    network.publish(4, ["a"])
    network.run()
    assert all(not node.held for node in network.nodes.values())
