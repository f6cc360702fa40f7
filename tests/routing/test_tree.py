"""The tree: what subscriptions and messages cost, and what happens when brokers fail."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.messages import Batch, Draft, MessageId
from postroad.routing import Attach, Destinations, Digest, RoutingError, Topics, Tree
from postroad.routing import topics as topics_module
from postroad.topology import Station
from postroad.topology import tree as plan_tree
from tests.routing.network import Network, matcher, tree
from tests.routing.strategies import (
    check_that_unsubscribing_leaves_nothing,
    churn,
    disturb,
    publications,
    publish,
    subscribe,
    subscriptions,
)

sizes = st.tuples(st.integers(1, 14), st.integers(1, 4))


def check_exactly_once(network: Network, messages: list[int]) -> None:
    for message in messages:
        assert network.got(message) == dict.fromkeys(network.wanted(message), 1)


@settings(max_examples=80)
@given(sizes, subscriptions, publications, st.integers(0, 5))
def test_every_interested_broker_gets_each_message_once(
    size: tuple[int, int], wanted: list[tuple[int, str]], sent: list[tuple[int, str]], seed: int
) -> None:
    network = tree(plan_tree(*size), seed)
    network.run()
    subscribe(network, wanted)
    messages = publish(network, sent)
    network.run()
    check_exactly_once(network, messages)
    for message in messages:
        packets = network.packets_of(message)
        assert set(packets.values()) <= {1}
        ends = {there for _, there in packets} - {here for here, _ in packets}
        assert ends <= network.wanted(message)


@settings(max_examples=50)
@given(sizes, st.data())
def test_first_subscription_reaches_all_and_its_repetition_none(size: tuple[int, int], data: st.DataObject) -> None:
    network = tree(plan_tree(*size))
    network.run()
    number = data.draw(st.sampled_from(network.graph.brokers))
    before = network.control_frames
    network.subscribe(number, "a")
    network.run()
    assert network.control_frames - before == size[0] - 1
    network.subscribe(number, "a")
    network.run()
    assert network.control_frames - before == size[0] - 1


def test_message_nobody_wants_stays_where_it_is() -> None:
    network = tree(plan_tree(14, 3))
    network.subscribe(3, "b")
    network.run()
    (message,) = network.publish(14, ["a"])
    network.run()
    assert network.packets_of(message) == {}


@settings(max_examples=60)
@given(sizes, subscriptions, st.data())
def test_unsubscribing_takes_back_what_subscribing_did(
    size: tuple[int, int], wanted: list[tuple[int, str]], data: st.DataObject
) -> None:
    network = tree(plan_tree(*size))
    check_that_unsubscribing_leaves_nothing(network, wanted, data)


def test_withdrawal_waits_for_the_last_of_several_branches() -> None:
    network = tree(plan_tree(4, 3))
    for number in (2, 3):
        network.subscribe(number, "a")
    network.run()
    network.unsubscribe(2, "a")
    network.run()
    (message,) = network.publish(4, ["a"])
    network.run()
    assert network.got(message) == {3: 1}
    assert set(network.packets_of(message)) == {(4, 1), (1, 3)}


class ReceivedBased(Tree):
    """The other reading of the published rule: a topic that has been heard of is not passed on again."""

    def _carries(self, link: int, pattern: str) -> bool:
        first = next(iter(self._table.owners(pattern)), link)
        return len(self._table.owners(pattern)) == 1 and first != link


def test_suppression_by_what_was_received_would_lose_messages() -> None:
    stations = plan_tree(7, 2).stations
    network = Network(
        plan_tree(7, 2).graph(), lambda node, now: ReceivedBased(node.number, now, stations[node.number], matcher)
    )
    network.run()
    for number in (4, 7):
        network.subscribe(number, "a")
        network.run()
    (message,) = network.publish(4, ["a"])
    network.run()
    assert network.got(message) != dict.fromkeys(network.wanted(message), 1)
    right = tree(plan_tree(7, 2))
    for number in (4, 7):
        right.subscribe(number, "a")
        right.run()
    (message,) = right.publish(4, ["a"])
    right.run()
    check_exactly_once(right, [message])


@settings(max_examples=80)
@given(sizes, subscriptions, churn, st.integers(0, 5))
def test_nothing_is_lost_or_doubled_while_links_break_and_brokers_move(
    size: tuple[int, int], wanted: list[tuple[int, str]], actions: list[tuple[str, int, str]], seed: int
) -> None:
    network = tree(plan_tree(*size), seed)
    network.run()
    subscribe(network, wanted)
    messages = disturb(network, actions)
    for message in messages:
        assert set(network.got(message).values()) <= {1}
    check_exactly_once(network, messages)


@settings(max_examples=60)
@given(sizes, subscriptions, publications, st.integers(0, 13), st.integers(0, 3))
def test_orphans_attach_higher_up_and_nothing_is_missed_afterwards(
    size: tuple[int, int], wanted: list[tuple[int, str]], sent: list[tuple[int, str]], place: int, seed: int
) -> None:
    network = tree(plan_tree(*size), seed)
    network.run()
    subscribe(network, wanted)
    dead = network.graph.brokers[place % size[0]]
    network.stop(dead)
    network.wait(30_000)
    live = [broker for broker in network.graph.brokers if broker != dead]
    if live:
        messages = [network.publish(live[at % len(live)], [topic])[0] for at, topic in sent]
        network.run()
        check_exactly_once(network, messages)
        assert len(network.up) == len(live) - 1


def test_children_of_a_dead_broker_get_what_was_published_meanwhile() -> None:
    network = tree(plan_tree(7, 2))
    network.run()
    network.subscribe(6, "a")
    network.run()
    network.stop(3)
    (message,) = network.publish(2, ["a"])
    network.wait(3_000)
    assert network.got(message) == {6: 1}
    assert network.nodes[6].strategy.statistics()["parent"] == 1


def test_lost_link_is_given_up_after_its_time() -> None:
    network = tree(plan_tree(3, 2))
    network.run()
    network.subscribe(3, "a")
    network.run()
    network.stop(3)
    network.publish(2, ["a"])
    network.run()
    assert len(network.nodes[1].held) == 1
    network.wait(10_000)
    assert network.nodes[1].held == []
    assert network.nodes[2].strategy.statistics()["patterns"] == 0


def test_broker_that_leaves_is_not_waited_for() -> None:
    network = tree(plan_tree(3, 2))
    network.run()
    network.subscribe(3, "a")
    network.run()
    node = network.nodes[3]
    network.react(node, node.strategy.leave(network.now))
    network.run()
    assert network.nodes[2].strategy.statistics()["patterns"] == 0


def test_what_a_neighbour_sends_again_before_it_attaches_is_taken_once() -> None:
    """A link sends again what was not confirmed as soon as it is back: to drop that would lose it."""
    root = Tree(1, 0, Station(), matcher)
    for link in (2, 3):
        root.link_up(link, 1, 0)
    root.control(Attach(0, False, 2, ("a",)), 2, 0)
    root.control(Attach(0, False, 3, ()), 3, 0)
    root.link_down(3, 1)
    root.link_up(3, 1, 2)
    batch = Batch.build([Draft("a", id=MessageId(1, 3, 1, 1))])
    taken = root.relay(batch, Destinations.nowhere(1), 3, 3)
    assert ([parcel.link for parcel in taken.parcels], taken.local.tolist(), taken.duplicates) == ([2], [0], 0)
    root.control(Attach(0, False, 3, ()), 3, 4)
    again = root.relay(batch, Destinations.nowhere(1), 3, 5)
    assert (again.local.tolist(), again.duplicates) == ([], 1)


def test_link_that_wants_too_many_topics_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MAX_PATTERNS", 10)
    root = Tree(1, 0, Station(), matcher)
    for child in (2, 3):
        root.link_up(child, 1, 0)
        root.control(Attach(0, False, child, ()), child, 0)
    told = root.control(Topics(tuple(f"t.{number}" for number in range(11))), 2, 0).frames
    assert told == [(3, Topics((">",)))]
    root.control(Topics(added=("x",), removed=("t.1",)), 2, 0)
    assert root.statistics()["patterns"] == 1


def test_too_many_local_topics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.routing.hierarchy.MAX_PATTERNS", 2)
    network = tree(plan_tree(1))
    network.subscribe(1, "a", "b", "a")
    with pytest.raises(LimitError, match="distinct topics"):
        network.subscribe(1, "c")


def test_frames_that_make_no_sense_are_refused() -> None:
    network = tree(plan_tree(2))
    network.run()
    with pytest.raises(RoutingError, match="the plan has it above"):
        network.nodes[2].strategy.control(Attach(0, False, 1, ()), 1, 0)
    with pytest.raises(RoutingError, match="sent a Digest"):
        network.nodes[2].strategy.control(Digest(()), 1, 0)
    with pytest.raises(RoutingError, match="wants to be a peer"):
        network.nodes[2].strategy.control(Attach(0, True, 1, ()), 1, 0)
