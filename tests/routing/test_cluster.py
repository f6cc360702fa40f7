"""The cluster: what subscriptions and messages cost, and how secondaries take over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.routing import Attach, Cluster, Detach, RoutingError, StepDown
from postroad.topology import Hierarchy
from postroad.topology import cluster as plan_cluster
from tests.routing.network import Network, cluster
from tests.routing.strategies import (
    check_that_unsubscribing_leaves_nothing,
    churn,
    disturb,
    publications,
    publish,
    subscribe,
    subscriptions,
)

sizes = st.builds(plan_cluster, st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


def check_exactly_once(network: Network, messages: list[int]) -> None:
    for message in messages:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)


def place(network: Network, number: int) -> int | None:
    strategy = network.nodes[number].strategy
    assert isinstance(strategy, Cluster)
    return strategy.place


@settings(max_examples=80)
@given(sizes, subscriptions, publications, st.integers(0, 5))
def test_every_interested_broker_gets_each_message_once(
    hierarchy: Hierarchy, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], seed: int
) -> None:
    network = cluster(hierarchy, seed)
    network.run()
    subscribe(network, wanted)
    messages = publish(network, sent)
    network.run()
    check_exactly_once(network, messages)
    for message in messages:
        assert set(network.packets_of(message).values()) <= {1}


@settings(max_examples=50)
@given(sizes, st.data())
def test_first_subscription_goes_up_and_to_the_peers_and_its_repetition_nowhere(
    hierarchy: Hierarchy, data: st.DataObject
) -> None:
    network = cluster(hierarchy)
    network.run()
    number = data.draw(st.sampled_from(network.graph.brokers))
    tops = sum(1 for station in hierarchy.stations.values() if not station.parents)
    before = network.control_frames
    network.subscribe(number, "a")
    network.run()
    cost = network.control_frames - before
    assert cost <= 3 + (tops - 1)
    network.subscribe(number, "a")
    network.run()
    assert network.control_frames - before == cost


def test_message_nobody_wants_goes_three_hops_up() -> None:
    network = cluster(plan_cluster(2, 2, 2, 2))
    network.run()
    (message,) = network.publish(max(network.graph.brokers), ["a"])
    network.run()
    assert sum(network.packets_of(message).values()) == 3


@settings(max_examples=50)
@given(sizes, subscriptions, st.data())
def test_unsubscribing_takes_back_what_subscribing_did(
    hierarchy: Hierarchy, wanted: list[tuple[int, str]], data: st.DataObject
) -> None:
    check_that_unsubscribing_leaves_nothing(cluster(hierarchy), wanted, data)


@settings(max_examples=80)
@given(sizes, subscriptions, publications, st.integers(0, 40), st.integers(0, 3))
def test_secondaries_take_over_and_nothing_is_missed_afterwards(
    hierarchy: Hierarchy, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], at: int, seed: int
) -> None:
    network = cluster(hierarchy, seed)
    network.run()
    subscribe(network, wanted)
    dead = network.graph.brokers[at % len(network.graph.brokers)]
    orphans = hierarchy.children(dead)
    network.stop(dead)
    network.wait(30_000)
    if orphans:
        for other in orphans[1:]:
            assert network.nodes[other].strategy.statistics()["parent"] == orphans[0]
    live = [broker for broker in network.graph.brokers if broker != dead]
    if live:
        messages = [network.publish(live[index % len(live)], [topic])[0] for index, topic in sent]
        network.run()
        check_exactly_once(network, messages)


@settings(max_examples=80)
@given(sizes, subscriptions, publications, st.integers(0, 40), st.integers(0, 3))
def test_controller_that_is_started_again_has_its_place_back(
    hierarchy: Hierarchy, wanted: list[tuple[int, str]], sent: list[tuple[int, str]], at: int, seed: int
) -> None:
    network = cluster(hierarchy, seed)
    network.run()
    subscribe(network, wanted)
    number = network.graph.brokers[at % len(network.graph.brokers)]
    patterns = network.nodes[number].patterns
    network.stop(number)
    network.wait(30_000)
    network.start(number)
    for one, other in network.graph.links:
        network.join(one, other)
    network.subscribe(number, *patterns)
    network.wait(30_000)
    messages = publish(network, sent)
    network.run()
    check_exactly_once(network, messages)
    for top in (broker for broker, station in hierarchy.stations.items() if not station.parents):
        assert place(network, top) == top


@settings(max_examples=80)
@given(sizes, subscriptions, churn, st.integers(0, 5))
def test_nothing_is_doubled_while_links_break_and_all_is_well_when_they_are_back(
    hierarchy: Hierarchy, wanted: list[tuple[int, str]], actions: list[tuple[str, int, str]], seed: int
) -> None:
    network = cluster(hierarchy, seed)
    network.run()
    subscribe(network, wanted)
    for message in disturb(network, actions):
        got = network.got(message)
        assert set(got.values()) <= {1}
        assert got.keys() <= network.wanted(message)
    network.wait(30_000)
    messages = publish(network, [(number, "a.b") for number in range(len(network.graph.brokers))])
    network.run()
    check_exactly_once(network, messages)


def test_controller_that_was_only_cut_off_steps_down() -> None:
    hierarchy = plan_cluster(2, 2, 0, 0)
    network = cluster(hierarchy)
    network.run()
    deputy, member = hierarchy.children(1)
    network.subscribe(member, "a")
    network.run()
    network.cut(1, deputy)
    network.wait(10_000)
    assert place(network, deputy) == 1
    assert place(network, 1) is None
    assert network.nodes[1].strategy.statistics()["parent"] == deputy
    messages = [network.publish(number, ["a"])[0] for number in network.graph.brokers]
    network.run()
    check_exactly_once(network, messages)


def test_places_are_refused_to_older_claims() -> None:
    network = cluster(plan_cluster(2, 1, 0, 0))
    network.run()
    top = network.nodes[1].strategy
    newer, older = network.now + 10, network.now - 10**6
    top.link_up(9, 10, network.now)
    taken = top.control(Attach(newer, True, 2, ()), 9, network.now)
    assert (2, StepDown(newer, 9)) in taken.frames
    (own_epoch,) = (frame.epoch for _, frame in taken.frames if isinstance(frame, Attach))
    refused = top.control(Attach(older, True, 2, ()), 2, network.now)
    assert refused.frames == [(2, StepDown(newer, 9))]
    own = top.control(Attach(older, True, 1, ()), 2, network.now)
    assert own.frames[0][1] == StepDown(own_epoch, 1)
    assert network.nodes[3].strategy.control(Attach(newer, True, 2, ()), 1, 0).frames == []
    network.nodes[3].strategy.link_up(9, 10, network.now)
    assert network.nodes[3].strategy.control(Attach(newer, True, 2, ()), 9, 0).frames == [(9, Detach(1))]
    # A secondary may find its controller below itself, from an earlier life, and attaches to it; nobody else may.
    attached = network.nodes[3].strategy.control(Attach(newer, False, 1, ()), 1, 0).frames
    assert [(link, type(frame)) for link, frame in attached] == [(1, Attach)]
    wider = cluster(plan_cluster(1, 2, 0, 0))
    wider.run()
    with pytest.raises(RoutingError, match="the plan has it above"):
        wider.nodes[3].strategy.control(Attach(newer, False, 1, ()), 1, 0)


def test_controller_that_steps_down_for_a_secondary_that_holds_nothing_any_more_takes_its_place_back() -> None:
    """The news that 4 holds the place comes to 2 after 4 was started again and has attached to 2."""
    network = cluster(plan_cluster(2, 1, 0, 0))
    network.run()
    strategy = network.nodes[2].strategy
    network.react(network.nodes[2], strategy.control(StepDown(network.now + 1, 4), 1, network.now))
    for _ in range(1_000):
        if network.queue:
            network.step()
    assert not network.queue, "brokers refer each other to each other for ever"
    assert (place(network, 2), place(network, 4)) == (2, None)
    network.subscribe(4, "a")
    network.run()
    messages = network.publish(3, ["a"])
    network.run()
    check_exactly_once(network, messages)


@pytest.mark.parametrize("crossing", [False, True])
def test_controller_has_its_place_back_when_who_held_it_was_started_again(crossing: bool) -> None:
    """Broker 2 stepped down for its secondary, 4, and that one comes back knowing nothing of it."""
    network = cluster(plan_cluster(2, 1, 0, 0))
    network.run()
    network.cut(2, 4)
    network.wait(10_000)
    assert (place(network, 2), place(network, 4)) == (None, 2)
    if crossing:
        network.join(2, 4)
        network.run()
        assert network.nodes[2].strategy.statistics()["parent"] == 4
    network.stop(4)
    if crossing:
        # Not noticed at 2: it attaches to 4 again while 4 attaches to 2.
        strategy = network.nodes[2].strategy
        assert isinstance(strategy, Cluster)
        strategy.place, strategy.parent = None, None
        strategy._parents = (4,)
    network.start(4)
    network.join(2, 4)
    network.wait(10_000)
    assert (place(network, 2), place(network, 4)) == (2, None)
    network.subscribe(3, "a")
    network.run()
    (message,) = network.publish(4, ["a"])
    network.run()
    check_exactly_once(network, [message])
