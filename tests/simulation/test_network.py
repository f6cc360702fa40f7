"""Simulated networks deliver what one big broker would, exactly once, over any topology and strategy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker.held_messages import HELD_MS
from postroad.messages import Draft
from postroad.routing.drp import Drp
from postroad.routing.flood import Flood
from postroad.selectors import Selector, TopicPattern
from postroad.simulation import SimulatedNetwork
from postroad.topology import line, power_law, ring, square_with_diagonal, star
from postroad.tracking import ExactRecorder, Reconstruction, Verdict

if TYPE_CHECKING:
    from postroad.messages import MessageId
    from postroad.topology import Graph

SETTLED_MS = 3_000
TOPICS = ("a", "a.b", "c")
SELECTORS = ("", "price > 5", "price <= 5 AND stock = 'x'", "stock LIKE 'x%' OR price = 7")


def drp(number: int, now: int) -> Drp:
    return Drp(number, now)


def eager_drp(number: int, now: int) -> Drp:
    return Drp(number, now, broadcast_threshold=0.3)


def flood(number: int, now: int) -> Flood:
    return Flood(number, now)


STRATEGIES: dict[str, Any] = {"drp": drp, "drp with broadcasts": eager_drp, "flood": flood}

graphs = st.one_of(
    st.integers(1, 7).map(line),
    st.integers(3, 7).map(ring),
    st.integers(2, 7).map(star),
    st.just(square_with_diagonal()),
    st.builds(power_law, st.integers(4, 9), seed=st.integers(0, 5)),
)


def network(graph: Graph, strategy: str, seed: int = 0) -> SimulatedNetwork:
    return SimulatedNetwork(graph, STRATEGIES[strategy], random.Random(seed))


class Truth:
    """One big broker: who wants what."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, tuple[TopicPattern, Selector]] = {}

    def subscribe(self, name: str, topic: str, selector: str) -> None:
        self.subscriptions[name] = (TopicPattern.parse(topic), Selector.parse(selector))

    def wanted(self, draft: Draft) -> list[str]:
        return [
            name
            for name, (topic, selector) in self.subscriptions.items()
            if topic.matches(draft.topic) and selector.matches(draft.attributes)
        ]


def random_draft(draw: random.Random) -> Draft:
    return Draft(draw.choice(TOPICS), {"price": draw.randrange(10), "stock": draw.choice(("x", "xy", "z"))})


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=25)
@given(graph=graphs, seed=st.integers(0, 10_000))
def test_every_subscriber_gets_what_it_wants_exactly_once(strategy: str, graph: Graph, seed: int) -> None:
    draw = random.Random(seed)
    net, truth = network(graph, strategy, seed), Truth()
    for number in range(draw.randrange(1, 8)):
        topic, selector = draw.choice(("a", "a.>", ">", "*", "c")), draw.choice(SELECTORS)
        net.subscribe(draw.choice(graph.brokers), f"s{number}", topic, selector)
        truth.subscribe(f"s{number}", topic, selector)
    net.run(SETTLED_MS)
    expected: dict[str, list[Any]] = {name: [] for name in truth.subscriptions}
    for _ in range(6):
        drafts = [random_draft(draw) for _ in range(draw.randrange(1, 6))]
        ids = net.publish(draw.choice(graph.brokers), drafts)
        for draft, message_id in zip(drafts, ids, strict=True):
            for name in truth.wanted(draft):
                expected[name].append(message_id)
        net.run(draw.randrange(30))
    net.run(SETTLED_MS)
    assert {name: sorted(net.delivered[name]) for name in expected} == {
        name: sorted(ids) for name, ids in expected.items()
    }


@pytest.mark.parametrize("strategy", ["drp", "flood"])
def test_one_publisher_reaches_a_subscriber_in_order(strategy: str) -> None:
    net = network(line(4), strategy)
    net.subscribe(4, "far", "a")
    net.run(SETTLED_MS)
    ids = []
    for _ in range(30):
        ids += net.publish(1, [Draft("a")])
        net.run(3)
    net.run(SETTLED_MS)
    assert net.delivered["far"] == ids


def test_drp_sends_each_message_over_a_link_at_most_once_and_only_where_it_is_wanted() -> None:
    net = network(star(6), "drp")
    net.subscribe(2, "two", "a")
    net.subscribe(3, "three", "a", "price > 5")
    net.run(SETTLED_MS)
    net.publish(4, [Draft("a", {"price": 9}), Draft("a", {"price": 1}), Draft("c")])
    net.run(SETTLED_MS)
    carried = {way: net.link(*way).messages for way in ((4, 1), (1, 2), (1, 3), (1, 5), (1, 6), (2, 1))}
    assert carried == {(4, 1): 2, (1, 2): 2, (1, 3): 1, (1, 5): 0, (1, 6): 0, (2, 1): 0}


def publish_through_cuts(net: SimulatedNetwork) -> list[MessageId]:
    """Sixty messages from broker 1 of a ring, while the ways round it change."""
    ids: list[MessageId] = []
    for step in range(60):
        ids += net.publish(1, [Draft("a")])
        net.run(4)
        if step == 20:
            net.cut(1, 2)
        if step == 40:
            net.cut(3, 4)
            net.join(1, 2)
    net.run(2 * SETTLED_MS)
    return ids


def test_drp_goes_round_cut_links_and_loses_and_doubles_nothing() -> None:
    net = network(ring(5), "drp")
    net.subscribe(3, "far", "a")
    net.run(SETTLED_MS)
    ids = publish_through_cuts(net)
    assert sorted(net.delivered["far"]) == ids


def test_flood_goes_round_cut_links_and_doubles_nothing() -> None:
    net = network(ring(5), "flood")
    net.subscribe(3, "far", "a")
    net.run(SETTLED_MS)
    ids = publish_through_cuts(net)
    got = net.delivered["far"]
    assert len(got) == len(set(got))
    # A flood forgets: what had passed broker 1 before its second link came back ends where the other one is cut.
    assert set(ids[:30] + ids[50:]) <= set(got) <= set(ids)


def test_subscribers_at_living_brokers_go_on_when_another_crashes() -> None:
    net = network(ring(6), "drp")
    for broker in (3, 4, 6):
        net.subscribe(broker, f"at {broker}", "a")
    net.run(SETTLED_MS)
    ids = []
    for step in range(40):
        ids += net.publish(1, [Draft("a")])
        net.run(5)
        if step == 15:
            net.crash(2)
        if step == 30:
            net.start(2)
    net.run(2 * SETTLED_MS)
    for broker in (3, 4, 6):
        got = net.delivered[f"at {broker}"]
        assert len(got) == len(set(got))
        # What broker 2 had taken over and not handed on died with it; all the rest arrived.
        assert len(ids) - len(got) <= 10
        assert set(got) >= set(ids[25:])


def test_a_restarted_broker_learns_what_others_want_and_is_learned_of() -> None:
    net = network(line(3), "drp")
    net.subscribe(3, "old", "a")
    net.run(SETTLED_MS)
    net.crash(1)
    net.run(SETTLED_MS)
    net.start(1)
    net.subscribe(1, "new", "a")
    net.run(SETTLED_MS)
    from_restarted = net.publish(1, [Draft("a")])
    from_other = net.publish(3, [Draft("a")])
    net.run(SETTLED_MS)
    assert sorted(net.delivered["old"]) == sorted(from_restarted + from_other)
    assert sorted(net.delivered["new"]) == sorted(from_restarted + from_other)
    assert len({str(message_id) for message_id in net.delivered["old"]}) == 2


def test_messages_for_an_unreachable_broker_wait_for_a_way_and_are_given_up_in_the_end() -> None:
    net = network(line(3), "drp")
    net.subscribe(3, "far", "a")
    net.run(SETTLED_MS)
    net.cut(2, 3)
    net.publish(2, [Draft("a")])
    net.run(500)
    assert net.delivered["far"] == []
    net.join(2, 3)
    net.run(SETTLED_MS)
    assert len(net.delivered["far"]) == 1


def test_a_trace_says_that_a_message_waits_for_a_way_until_it_is_sent_on_or_given_up() -> None:
    recorders: dict[int, ExactRecorder] = {}

    def recorder(broker: int) -> ExactRecorder:
        recorders[broker] = ExactRecorder(broker, 0)
        return recorders[broker]

    def verdict(message: MessageId) -> Verdict:
        work = Reconstruction(message)
        while asked := work.to_ask():
            for broker in asked:
                work.tell(broker, recorders[broker].findings(message, net.now))
        return work.journey().verdict

    net = SimulatedNetwork(line(3), drp, random.Random(0), recorder=recorder)
    net.subscribe(3, "far", "a")
    net.run(SETTLED_MS)
    net.cut(2, 3)
    net.run(100)
    (sent,) = net.publish(2, [Draft("a")])
    net.run(500)
    assert verdict(sent) is Verdict.WAITING
    net.join(2, 3)
    net.run(SETTLED_MS)
    assert verdict(sent) is Verdict.DELIVERED
    net.cut(2, 3)
    net.run(100)
    (given_up,) = net.publish(2, [Draft("a")])
    net.run(500)
    assert verdict(given_up) is Verdict.WAITING
    net.run(HELD_MS)
    assert verdict(given_up) is Verdict.DROPPED
