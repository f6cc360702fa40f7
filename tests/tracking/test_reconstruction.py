from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import MessageId
from postroad.topology import Graph, ring, waxman
from postroad.tracking import Drop, Gap, Journey, Reconstruction, Verdict
from postroad.tracking.reasons import Detour
from postroad.tracking.witnessed_links import WitnessedLinks
from tests.tracking.worlds import TIME, Truth, World

Exploration = st.sampled_from(["relayed", "neighbours"])


def line(length: int) -> Graph:
    return Graph(range(1, length + 1), {(n, n + 1): 1 for n in range(1, length)})


def reconstructed(
    world: World, truth: Truth, exploration: Any = "relayed", silent: frozenset[int] = frozenset()
) -> Journey:
    topology = {broker: set(world.graph.neighbours(broker)) for broker in world.graph.brokers}
    work = Reconstruction(truth.id, exploration, topology)
    while asked := work.to_ask():
        for broker in asked:
            work.tell(broker, None if broker in silent else world.findings(broker, truth))
    return work.journey()


def along(*brokers: int, deliveries: set[tuple[int, int]] | None = None) -> Truth:
    hops = frozenset(itertools.pairwise(brokers))
    return Truth(MessageId(7, brokers[0], TIME, 0), hops, frozenset(deliveries or set()))


@given(seed=st.integers(0, 2**32), size=st.integers(2, 12), exploration=Exploration)
def test_exact_records_give_the_very_way_of_a_message(seed: int, size: int, exploration: str) -> None:
    random = Random(seed)
    world = World(waxman(size, seed), random)
    truth = world.send(1)
    journey = reconstructed(world, truth, exploration)
    assert {(stop.parent, stop.broker) for stop in journey.stops[1:]} == truth.hops
    assert {(broker, hit.number) for broker, hit in journey.delivered} == truth.deliveries
    assert journey.verdict is (Verdict.DELIVERED if truth.deliveries else Verdict.MATCHED_NOBODY)
    assert journey.certainty == 1.0
    assert not journey.pruned
    assert journey.stops[0].broker == 1
    depths = {stop.broker: stop.depth for stop in journey.stops}
    assert all(stop.depth == depths[stop.parent] + 1 for stop in journey.stops[1:])


@given(seed=st.integers(0, 2**32), size=st.integers(2, 12), exploration=Exploration, doubt=st.floats(0.0, 0.5))
def test_no_true_hop_is_ever_missed_whatever_the_filters_say(
    seed: int, size: int, exploration: str, doubt: float
) -> None:
    random = Random(seed)
    world = World(waxman(size, seed), random, doubt)
    truth = world.send(1)
    journey = reconstructed(world, truth, exploration)
    assert truth.brokers <= {stop.broker for stop in journey.stops}
    assert truth.deliveries <= {(broker, hit.number) for broker, hit in journey.delivered}


def test_two_sided_evidence_removes_nearly_all_false_brokers() -> None:
    random = Random(5)
    world = World(waxman(100, 5), random, doubt=0.05)
    false = pruned = 0
    for _ in range(200):
        truth = world.send(random.randrange(1, 101), share=0.05)
        journey = reconstructed(world, truth, "neighbours")
        false += len({stop.broker for stop in journey.stops} - truth.brokers)
        pruned += len(journey.pruned)
    # One-sided evidence alone would leave 5 % of all neighbours asked.
    assert pruned > 100
    assert false < pruned / 10


def test_asking_only_those_it_was_relayed_to_needs_fewer_queries_than_asking_all_neighbours() -> None:
    random = Random(6)
    world = World(waxman(50, 6), random, doubt=1e-5)
    truth = world.send(1, share=0.2)
    few, many = reconstructed(world, truth, "relayed"), reconstructed(world, truth, "neighbours")
    assert {stop.broker for stop in few.stops} == {stop.broker for stop in many.stops}
    assert few.queries == len(truth.brokers) < many.queries


def test_a_message_that_never_arrived_after_a_hop_is_lost_there() -> None:
    world = World(line(4), Random(1))
    world.lost = {(2, 3)}
    journey = reconstructed(world, along(1, 2, 3, deliveries={(2, 20)}))
    assert journey.verdict is Verdict.LOST_AFTER_HOP
    assert [(hop.broker, hop.neighbour) for hop in journey.lost] == [(2, 3)]
    assert [stop.broker for stop in journey.stops] == [1, 2]
    assert journey.certainty == 1.0


class Certain(Random):
    """Draws what never comes true by chance."""

    def random(self) -> float:
        return 1.0


def test_a_denied_claim_of_a_doubtful_filter_is_pruned_and_not_called_a_loss() -> None:
    world = World(line(3), Random(1), doubt=0.05)
    world.random = Certain(1)
    world.lost = {(2, 3)}
    journey = reconstructed(world, along(1, 2, 3, deliveries={(2, 20)}))
    assert journey.verdict is Verdict.DELIVERED
    assert [(hop.broker, hop.neighbour, hop.reason) for hop in journey.pruned] == [(2, 3, "the neighbour never had it")]


def test_a_message_that_went_another_way_after_a_link_gave_it_back_is_not_lost() -> None:
    world = World(ring(4), Random(1))
    world.lost = {(1, 2)}
    world.drops[1] = (Drop(0, 2, "returned", TIME + 3),)
    truth = Truth(MessageId(7, 1, TIME, 0), frozenset({(1, 2), (1, 4), (4, 3)}), frozenset({(3, 30)}))
    journey = reconstructed(world, truth)
    assert journey.verdict is Verdict.DELIVERED
    assert not journey.lost


def test_a_message_that_waits_for_a_way_is_not_said_to_match_nobody() -> None:
    world = World(line(2), Random(1))
    world.drops[1] = (Drop(0, 0, Detour.HELD, TIME + 3),)
    assert reconstructed(world, along(1)).verdict is Verdict.WAITING
    # One that went on in part still waits for the rest.
    assert reconstructed(world, along(1, 2, deliveries={(2, 20)})).verdict is Verdict.WAITING
    world.drops[1] = (Drop(0, 0, Detour.HELD, TIME + 3), Drop(0, 0, Detour.SENT_ON, TIME + 9))
    assert reconstructed(world, along(1, 2, deliveries={(2, 20)})).verdict is Verdict.DELIVERED
    world.drops[1] = (Drop(0, 0, Detour.HELD, TIME + 3), Drop(0, 0, "unreachable", TIME + 9))
    assert reconstructed(world, along(1)).verdict is Verdict.DROPPED


def test_a_hop_is_open_if_the_message_waited_at_any_broker_before_and_the_receiver_may_have_got_it_later() -> None:
    world = World(line(4), Random(1))
    truth = along(1, 2, 3, 4, deliveries={(4, 40)})
    world.lost = {(3, 4)}
    # An hour after its id's time, broker 4 ended without writing its last records.
    later = Gap(TIME + 3_600_000, TIME + 3_700_000, "the broker ended without writing its last records")
    world.ends[4] = (later,)
    assert reconstructed(world, truth).verdict is Verdict.LOST_AFTER_HOP
    for waited in (1, 2, 3):
        world.drops = {waited: (Drop(0, 0, Detour.HELD, TIME), Drop(0, 0, Detour.SENT_ON, TIME + 3_600_001))}
        journey = reconstructed(world, truth)
        assert journey.verdict is Verdict.RECORDED_IN_PART, waited
        assert [(hop.broker, hop.neighbour) for hop in journey.open] == [(3, 4)]
        assert [(broker, gap.since) for broker, gap in journey.gaps] == [(4, later.since)]


def test_a_retained_message_is_not_said_to_match_nobody_while_a_replay_may_be_missing() -> None:
    world = World(line(2), Random(1))
    world.drops[1] = (Drop(0, 0, Detour.RETAINED, TIME),)
    assert reconstructed(world, along(1)).verdict is Verdict.MATCHED_NOBODY
    later = Gap(TIME + 3_600_000, TIME + 3_700_000, "the broker ended without writing its last records")
    world.ends[1] = (later,)
    journey = reconstructed(world, along(1))
    assert (journey.verdict, journey.certainty) == (Verdict.RECORDED_IN_PART, 0.0)
    assert [(broker, gap.since) for broker, gap in journey.gaps] == [(1, later.since)]
    # Who has it already proves that it was delivered, whatever came later.
    for truth in (along(1, deliveries={(1, 10)}), along(1, 2, deliveries={(2, 20)})):
        assert reconstructed(world, truth).verdict is Verdict.DELIVERED


def test_an_id_that_its_origin_never_saw_is_certainly_never_accepted() -> None:
    world = World(line(2), Random(1), doubt=1e-5)
    world.gaps = {}
    id = MessageId(7, 1, TIME, 0)
    work = Reconstruction(id)
    nothing = world.findings(1, along(2))._replace(accepted=None)
    work.tell(1, nothing)
    assert not work.to_ask()
    assert work.journey().verdict is Verdict.NEVER_ACCEPTED
    assert work.journey().certainty == 1.0


@pytest.mark.parametrize(
    ("retained_since", "gaps", "verdict"),
    [
        (TIME + 1, (), Verdict.OUTSIDE_RETENTION),
        (0, (Gap(TIME - 5, TIME + 5, "the broker was killed"),), Verdict.NOT_RECORDED),
    ],
)
def test_a_no_without_a_complete_record_is_not_called_never_accepted(
    retained_since: int, gaps: tuple[Gap, ...], verdict: Verdict
) -> None:
    world = World(line(2), Random(1))
    world.retained_since = retained_since
    work = Reconstruction(MessageId(7, 1, TIME, 0))
    nothing = world.findings(1, along(2))._replace(accepted=None, gaps=gaps)
    work.tell(1, nothing)
    for broker in work.to_ask():
        work.tell(broker, world.findings(broker, along(1))._replace(arrived=None))
    assert work.journey().verdict is verdict


def test_the_way_goes_on_behind_a_broker_without_a_complete_record() -> None:
    world = World(line(4), Random(1))
    world.gaps[2] = (Gap(TIME - 100, TIME + 100, "the disk was full"),)
    journey = reconstructed(world, along(1, 2, 3, 4, deliveries={(4, 40)}))
    assert [(stop.parent, stop.broker, stop.recorded) for stop in journey.stops] == [
        (0, 1, True), (1, 2, False), (2, 3, True), (3, 4, True),
    ]  # fmt: skip
    assert journey.verdict is Verdict.RECORDED_IN_PART
    assert journey.certainty == 0.0
    assert [broker for broker, _ in journey.gaps] == [2]
    assert [(broker, hit.number) for broker, hit in journey.delivered] == [(4, 40)]


def test_brokers_that_do_not_answer_are_named_and_gone_around() -> None:
    world = World(line(4), Random(1))
    journey = reconstructed(world, along(1, 2, 3, 4, deliveries={(4, 40)}), silent=frozenset({2}))
    assert journey.silent == (2,)
    assert [(stop.broker, stop.recorded) for stop in journey.stops] == [(1, True), (2, False), (3, True), (4, True)]
    assert journey.verdict is Verdict.RECORDED_IN_PART


def test_a_silent_origin_leaves_what_its_neighbours_know() -> None:
    world = World(line(3), Random(1))
    journey = reconstructed(world, along(1, 2, 3), silent=frozenset({1}))
    assert [(stop.broker, stop.recorded) for stop in journey.stops] == [(1, False), (2, True), (3, True)]
    alone = Reconstruction(MessageId(7, 1, TIME, 0))
    alone.tell(1, None)
    assert alone.journey().verdict is Verdict.UNANSWERED


def test_shed_and_dropped_messages_are_named_before_deliveries() -> None:
    world = World(line(2), Random(1))
    truth = along(1, 2, deliveries={(2, 20)})
    world.drops[2] = (Drop(21, 0, "queue full", TIME),)
    assert reconstructed(world, truth).verdict is Verdict.SHED
    world.drops[1] = (Drop(0, 2, "link full", TIME),)
    assert reconstructed(world, truth).verdict is Verdict.DROPPED


def test_a_message_in_a_queue_waits_until_it_is_delivered() -> None:
    world = World(line(1), Random(1))
    world.queued = {(1, 10)}
    assert reconstructed(world, along(1)).verdict is Verdict.WAITING
    assert reconstructed(world, along(1, deliveries={(1, 10)})).verdict is Verdict.DELIVERED


def test_acknowledged_means_by_every_subscriber_that_got_it() -> None:
    world = World(line(1), Random(1))
    truth = along(1, deliveries={(1, 10), (1, 11)})
    world.acknowledged = {(1, 10)}
    assert reconstructed(world, truth).verdict is Verdict.DELIVERED
    world.acknowledged = {(1, 10), (1, 11)}
    assert reconstructed(world, truth).verdict is Verdict.ACKNOWLEDGED


def test_links_that_others_recorded_are_not_looked_at_where_every_record_is_whole() -> None:
    """To read the links of all brokers takes as long as all the rest of a trace."""
    looked: list[int] = []

    def links(broker: int) -> set[int]:
        looked.append(broker)
        return set()

    world, truth = World(line(3), Random(1)), along(1, 2, 3, deliveries={(3, 5)})
    for silent in (frozenset[int](), frozenset({2})):
        work = Reconstruction(truth.id, "relayed", WitnessedLinks([1, 2, 3], links))
        while asked := work.to_ask():
            for broker in asked:
                work.tell(broker, None if broker in silent else world.findings(broker, truth))
        work.journey()
        assert bool(looked) == bool(silent)
