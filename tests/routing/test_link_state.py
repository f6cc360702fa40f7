"""Link state converges: after anything that happened, all who can reach each other know the same, and the truth."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postroad.routing import (
    Delta,
    Digest,
    Drp,
    Interest,
    InterestDelta,
    LinkRecord,
    LinkState,
    Reaction,
    RoutingError,
    Topics,
)
from postroad.topology import Graph, line, ring, routes
from tests.routing.network import Network, drp

PLACES = [(a, b) for a in range(1, 6) for b in range(a + 1, 6)]
ALL_LINKS = Graph(range(1, 6), {pair: 1 + (pair[0] * pair[1]) % 3 for pair in PLACES})


def link_state(network: Network, number: int) -> LinkState:
    strategy = network.nodes[number].strategy
    assert isinstance(strategy, Drp)
    return strategy.link_state


def check_converged(network: Network) -> None:
    """Every broker knows the ways of the live graph, and the interests of all it can reach."""
    graph = network.live_graph()
    around = {broker: graph.neighbours(broker) for broker in graph.brokers}
    for number, node in network.nodes.items():
        known = link_state(network, number)
        truth = routes(number, around)
        reached = graph.reached_from(number)
        assert {broker: known.routes.first_hop(broker) for broker in reached} == {
            broker: truth.first_hop(broker) for broker in reached
        }
        assert known.routes.reached == len(reached) - 1
        for other in reached - {number}:
            wanted = sorted(set(network.nodes[other].patterns))
            assert node.others.get(other, []) == wanted
            assert known.membership == link_state(network, other).membership


class Joining(RuleBasedStateMachine):
    """Brokers and links come and go, at random moments of the flooding."""

    def __init__(self) -> None:
        super().__init__()
        # Few, so that wholes and changes take turns.
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr("postroad.routing.link_state_records.MAX_CHANGES", 3)
        self.network = drp(Graph(range(1, 6), {}), 5)
        self.network.graph = ALL_LINKS
        self.clock_error = 0

    @rule(pair=st.sampled_from(PLACES))
    def join(self, pair: tuple[int, int]) -> None:
        self.network.join(*pair)

    @rule(pair=st.sampled_from(PLACES))
    def cut(self, pair: tuple[int, int]) -> None:
        self.network.cut(*pair)

    @rule(number=st.integers(1, 5), topic=st.sampled_from("abc"))
    def subscribe(self, number: int, topic: str) -> None:
        if number in self.network.nodes:
            self.network.subscribe(number, topic)

    @rule(number=st.integers(1, 5))
    def unsubscribe(self, number: int) -> None:
        node = self.network.nodes.get(number)
        if node is not None and node.patterns:
            self.network.unsubscribe(number, node.patterns[0])

    @rule(number=st.integers(1, 5))
    def die(self, number: int) -> None:
        if number in self.network.nodes:
            self.network.stop(number)

    @rule(number=st.integers(1, 5), clock_error=st.sampled_from([0, 0, -50_000, 900_000]))
    def start_again(self, number: int, clock_error: int) -> None:
        if number not in self.network.nodes:
            self.network.start(number, self.network.now + clock_error)

    @rule(number=st.integers(1, 5))
    def restart_at_once(self, number: int) -> None:
        links = [link for link in self.network.up if number in link]
        if number in self.network.nodes:
            self.network.stop(number)
            self.network.start(number)
            for link in links:
                self.network.join(*link)

    @rule(steps=st.integers(1, 30))
    def go_on(self, steps: int) -> None:
        for _ in range(min(steps, len(self.network.queue))):
            self.network.step()

    @rule(seconds=st.sampled_from([1, 40, 150]))
    def wait(self, seconds: int) -> None:
        self.network.wait(seconds * 1_000)

    @precondition(lambda self: not self.network.queue)
    @invariant()
    def converged(self) -> None:
        check_converged(self.network)

    def teardown(self) -> None:
        self.network.run()
        check_converged(self.network)
        self.patched.undo()


Joining.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLinkStateConverges = Joining.TestCase


def test_records_of_a_dead_broker_age_out_everywhere() -> None:
    network = drp(ring(5), 1)
    network.subscribe(3, "a")
    network.run()
    assert network.nodes[1].others[3] == ["a"]
    network.stop(3)
    network.wait(150_000)
    for number in network.nodes:
        assert link_state(network, number).known() == [1, 2, 4, 5]
        assert link_state(network, number).interest_of(3) is None
        assert 3 not in network.nodes[number].others


def test_live_records_are_refreshed_and_stay() -> None:
    network = drp(line(4), 1)
    network.subscribe(4, "a")
    network.wait(500_000)
    check_converged(network)
    assert link_state(network, 1).known() == [1, 2, 3, 4]


def test_broker_that_leaves_is_forgotten_at_once() -> None:
    network = drp(line(3), 1)
    network.subscribe(3, "a")
    network.run()
    node = network.nodes[3]
    network.react(node, node.strategy.leave(network.now))
    network.run()
    assert link_state(network, 1).interest_of(3) is None
    assert link_state(network, 1).routes.reached == 1


def test_refresh_does_not_send_interest_again() -> None:
    network = drp(line(3), 1)
    network.subscribe(3, "a")
    network.run()
    sent: list[object] = []
    for node in network.nodes.values():
        sent += [frame for _, frame in node.strategy.tick(network.now + 60_000).frames]
    assert sent
    assert not any(isinstance(frame, Interest | InterestDelta) for frame in sent)


def test_old_record_from_a_slow_way_changes_nothing() -> None:
    state = LinkState(1, 0)
    state.neighbour_up(2, 1, 0)
    newer = LinkRecord(2, 5, 2, 0, ((1, 1), (3, 1)))
    older = LinkRecord(2, 5, 1, 0, ((1, 1),))
    assert state.receive(newer, 2, 0).retry
    assert state.receive(older, 2, 0) == state.receive(newer, 2, 0)
    assert state.graph()[2] == {1: 1}
    assert state.receive(LinkRecord(3, 1, 1, 0, ((2, 4),)), 2, 0).retry
    assert state.graph()[2] == {1: 1, 3: 4}
    assert state.receive(LinkRecord(4, 1, 1, 10**6, ()), 2, 0).retry is False


@pytest.mark.parametrize("clock_error", [-50_000, 0, 900_000])
def test_broker_started_again_with_a_wrong_clock_is_believed(clock_error: int) -> None:
    network = drp(line(3), 1)
    network.subscribe(3, "a")
    network.run()
    network.stop(3)
    network.run()
    network.start(3, network.now + clock_error)
    network.join(2, 3)
    network.subscribe(3, "b")
    network.run()
    check_converged(network)
    assert network.nodes[1].others[3] == ["b"]


def test_numbers_of_an_earlier_life_that_are_unknown_here_are_passed_too() -> None:
    """Started at 1,000, while a life that started at 2,000 gave out more numbers than this neighbour has seen."""
    state = LinkState(1, 1_000)
    state.neighbour_up(2, 1, 1_000)
    links, interest = state.receive(LinkRecord(1, 2_000, 3, 0, ()), 2, 1_000).frames
    assert isinstance(links[1], LinkRecord)
    assert isinstance(interest[1], Interest)
    assert (links[1].epoch, interest[1].epoch) == (2_000, 2_000)
    assert min(links[1].sequence, interest[1].version) > 1_000


def test_interest_of_an_earlier_life_counts_until_the_next_has_said_its_own() -> None:
    """Durable subscriptions outlive their broker's process: what is published in between must not miss them."""
    state = LinkState(1, 0)
    state.neighbour_up(2, 1, 0)
    state.receive(LinkRecord(2, 5, 1, 0, ((1, 1),)), 2, 0)
    assert state.receive(Interest(2, 5, 3, b"x"), 2, 0).interests == [(2, b"x")]
    assert state.receive(LinkRecord(2, 5, 2, 0, ((1, 1),)), 2, 0).interests == []
    assert state.receive(LinkRecord(2, 6, 0, 0, ((1, 1),)), 2, 0).interests == []
    assert state.receive(Interest(2, 5, 4, b"late"), 2, 0).interests == []
    assert state.receive(Interest(2, 6, 0, b""), 2, 0).interests == [(2, b"")]


def test_the_first_interest_of_a_life_is_said_as_a_whole() -> None:
    """After a whole that says nothing and a change of it, what is published in between would miss the change."""
    state = LinkState(1, 0)
    state.change_interest(Delta(b"a", b""), lambda: b"whole", 0)
    state.neighbour_up(2, 1, 0)
    said = [frame for _, frame in state.receive(Digest(()), 2, 0).frames if not isinstance(frame, LinkRecord)]
    assert said == [Interest(1, 0, 1, b"whole")]
    changed = state.change_interest(Delta(b"b", b""), lambda: b"whole and b", 0)
    assert changed.frames == [(2, InterestDelta(1, 0, 1, 2, b"b", b""))]


def test_broker_that_leaves_and_returns_is_gone_from_ways_and_keeps_its_interest() -> None:
    network = drp(line(3), 1)
    network.subscribe(3, "a")
    network.run()
    node = network.nodes[3]
    network.react(node, node.strategy.leave(network.now, returns=True))
    network.run()
    assert link_state(network, 1).interest_of(3) is not None
    assert link_state(network, 1).routes.reached == 1


def test_broker_is_synchronised_when_it_holds_what_its_neighbours_say_they_hold() -> None:
    state = LinkState(1, 0)
    assert state.is_synchronised
    state.neighbour_up(2, 1, 0)
    assert not state.is_synchronised
    state.receive(Digest(((1, 0, 0, 0, 0), (2, 5, 1, 5, 0), (3, 7, 2, 7, 4))), 2, 0)
    state.receive(LinkRecord(2, 5, 1, 0, ((1, 1), (3, 1))), 2, 0)
    state.receive(LinkRecord(3, 7, 2, 0, ((2, 1),)), 2, 0)
    state.receive(Interest(2, 5, 0, b""), 2, 0)
    assert not state.is_synchronised
    state.receive(Interest(3, 7, 4, b"x"), 2, 0)
    assert state.is_synchronised
    # What changes afterwards is told as it happens.
    state.receive(Digest(((3, 7, 3, 7, 9),)), 2, 0)
    assert state.is_synchronised
    state.neighbour_up(4, 1, 0)
    assert not state.is_synchronised
    state.neighbour_down(4, 0)
    assert state.is_synchronised


def test_record_grows_older_while_it_is_held() -> None:
    state = LinkState(1, 0)
    state.neighbour_up(2, 1, 0)
    state.receive(LinkRecord(3, 5, 1, 7_000, ((2, 1),)), 2, 0)
    state.neighbour_up(4, 1, 50_000)
    answer = state.receive(Digest(()), 4, 60_000).frames
    assert [frame.age for _, frame in answer if isinstance(frame, LinkRecord) and frame.broker == 3] == [67_000]


def test_frames_from_a_link_that_is_down_are_ignored() -> None:
    state = LinkState(1, 0)
    assert state.receive(LinkRecord(2, 5, 2, 0, ((1, 1),)), 2, 0).frames == []
    assert state.known() == [1]


def test_impossible_settings_and_frames_are_refused() -> None:
    with pytest.raises(RoutingError, match="between 1 and 65,535, not 0"):
        LinkState(0, 0)
    with pytest.raises(RoutingError, match="die between refreshes"):
        LinkState(1, 0, refresh_ms=10, lifetime_ms=10)
    with pytest.raises(RoutingError, match="cannot be linked to broker 1"):
        LinkState(1, 0).neighbour_up(1, 1, 0)
    with pytest.raises(RoutingError, match="is over 16,777,216"):
        LinkState(1, 0).set_interest(bytes(2**24 + 1), 0)
    with pytest.raises(RoutingError, match="sent a Topics, which `drp` does not know"):
        drp(line(2)).nodes[1].strategy.control(Topics(), 2, 0)


def wanting(number: int = 2) -> LinkState:
    """Broker 1, linked to broker 2, of which it knows the links."""
    state = LinkState(1, 0)
    state.neighbour_up(2, 1, 0)
    state.receive(LinkRecord(number, 5, 1, 0, ((1, 1),)), 2, 0)
    return state


def test_changes_are_taken_in_turn_and_a_missing_one_is_asked_for_once() -> None:
    state = wanting()
    assert state.receive(Interest(2, 5, 3, b"x"), 2, 0).interests == [(2, b"x")]
    assert state.receive(InterestDelta(2, 5, 3, 4, b"y", b""), 2, 0).interests == [(2, Delta(b"y", b""))]
    assert state.receive(InterestDelta(2, 5, 3, 4, b"y", b""), 2, 0) == Reaction()
    asked = state.receive(InterestDelta(2, 5, 3, 6, b"z", b""), 2, 0)
    assert asked == Reaction([(2, Digest(((2, 5, 1, 5, 4),), partial=True))])
    assert state.receive(InterestDelta(2, 5, 3, 7, b"z", b""), 2, 0) == Reaction()
    assert state.receive(InterestDelta(2, 5, 3, 5, b"", b"x"), 2, 0).interests == [(2, Delta(b"", b"x"))]
    assert state.receive(InterestDelta(2, 5, 9, 10, b"z", b""), 2, 0).frames != []


def test_who_lacks_changes_gets_just_those_and_who_lacks_the_whole_gets_it_with_them() -> None:
    state = wanting()
    parts: list[Interest | InterestDelta] = [
        Interest(2, 5, 3, b"x"),
        *(InterestDelta(2, 5, 3, version, b"y", b"") for version in (4, 5, 6)),
    ]
    for part in parts:
        state.receive(part, 2, 0)
    state.neighbour_up(4, 1, 0)
    for held, answer in (((5, 5), parts[3:]), ((5, 3), parts[1:]), ((5, 2), parts), ((4, 9), parts), ((5, 6), [])):
        asked = Digest(((2, 5, 1, *held),), partial=True)
        assert state.receive(asked, 4, 0).frames == [(4, part) for part in answer]


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=30)), max_size=40), st.integers(1, 8))
def test_changes_kept_beside_the_whole_are_bounded(changes: list[tuple[bytes, bytes]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("postroad.routing.link_state_records.MAX_CHANGES", most)
        patch.setattr("postroad.routing.link_state_records.MIN_CHANGES_BYTES", 100)
        state = LinkState(1, 0)
        state.neighbour_up(2, 1, 0)
        for count, change in enumerate(changes):
            whole = bytes(count + 1)
            ((_, frame),) = state.change_interest(Delta(*change), partial(bytes, whole), 0).frames
            assert isinstance(frame, Interest | InterestDelta)
            assert frame.version == count + 1
            held = state.receive(Digest(((1, 0, 9, 0, 0),), partial=True), 2, 0).frames
            assert len(held) <= most + 1
            kept = [one for _, one in held if isinstance(one, InterestDelta)]
            assert sum(len(one.added) + len(one.removed) for one in kept) <= 100
