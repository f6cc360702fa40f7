"""Queues of brokers that are no neighbours, under every strategy: nothing confirmed is lost, nothing is doubled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from postroad.broker import QueueSettings
from postroad.topology import STRATEGY_NAMES, routes
from tests.broker.routed_queues import RoutedMob, RoutedQueues

if TYPE_CHECKING:
    from postroad.topology import StrategyName

SEEDS = range(200) if os.environ.get("POSTROAD_THOROUGH") else range(6)


@pytest.mark.parametrize("kind", STRATEGY_NAMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_mob_at_all_brokers_loses_and_doubles_nothing_while_brokers_crash_and_links_change(
    kind: StrategyName, seed: int
) -> None:
    mob = RoutedMob(seed, kind)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(500):
        mob.act()
    mob.end()
    assert mob.faults == []
    assert mob.confirmed
    assert mob.confirmed - mob.handed == set(), "confirmed, and handed to nobody"
    assert mob.confirmed <= mob.acknowledged
    assert mob.passed_on
    for broker in mob.brokers.values():
        assert {each.number: each.rows for each in broker.log.cursors.values() if each.rows} == {}


@pytest.mark.parametrize("kind", STRATEGY_NAMES)
def test_every_broker_sends_to_and_consumes_from_a_queue_that_no_link_leads_to(kind: StrategyName) -> None:
    network = RoutedQueues(0, kind)
    network.settle(1)
    readers = {number: network.consume(number, prefetch=1) for number in network.brokers}
    for number in network.brokers:
        network.send(number, 1)
    network.settle(3)
    # Each of them waits for the answer of its consumer.
    assert sorted(body for reader in readers.values() for body in reader.held) == list(range(1, len(readers) + 1))
    for reader in readers.values():
        for body in list(reader.held):
            network.answer(reader, body)
    network.settle(1)
    assert network.settled == network.confirmed == set(range(1, len(readers) + 1))
    assert network.passed_on


@pytest.mark.parametrize("kind", STRATEGY_NAMES)
def test_packets_take_the_shortest_way_over_the_links_that_are_up(kind: StrategyName) -> None:
    network = RoutedQueues(0, kind)
    network.settle(1)
    _check_ways(network)
    one, other = next(iter(network.graph.links))
    network.sever(one, other)
    network.settle(10)
    _check_ways(network)
    network.mend_links()
    network.settle(10)
    _check_ways(network)


def _check_ways(network: RoutedQueues) -> None:
    up = {number: dict.fromkeys(links.up, 10) for number, links in network.links.items()}
    for number, broker in network.brokers.items():
        right = routes(number, up)
        assert broker.core.relay is not None
        found = {each: broker.core.relay.next_hop(each) for each in network.brokers}
        assert found == {each: max(0, right.first_hop(each)) for each in network.brokers}


@pytest.mark.parametrize("kind", STRATEGY_NAMES)
def test_partition_keeps_messages_or_refuses_them_and_its_end_brings_them_in_order(kind: StrategyName) -> None:
    for settings in (QueueSettings(), QueueSettings(when_home_is_down="refuse")):
        network = RoutedQueues(0, kind, settings=settings)
        far = next(each for each in network.brokers if each not in (network.home, *network.links[network.home].up))
        network.send(far)
        network.settle(2)
        for other in list(network.brokers):
            if other != network.home:
                # Strategies may open links that the plan does not have.
                network.sever(network.home, other)
        network.settle(11)
        refusal = network.send(far).unstorable
        network.settle(12)
        if settings.when_home_is_down == "refuse":
            assert f"broker {network.home} of this network, which cannot be reached" in refusal
        else:
            assert not refusal
            assert network.brokers[far].core.statistics().outgoing_messages_now == 1
        network.mend_links()
        network.settle(12)
        network.send(far)
        network.settle(1)
        reader = network.consume(network.home)
        network.settle(1)
        assert list(reader.held) == ([1, 3] if refusal else [1, 2, 3])


@pytest.mark.parametrize("kind", ["flood", "tree", "cluster"])
def test_broker_that_leaves_in_order_is_not_on_the_way_any_more(kind: StrategyName) -> None:
    network = RoutedQueues(0, kind)
    network.settle(1)
    between = next(iter(network.links[network.home].up))
    relay = network.brokers[between].core.relay
    assert relay is not None
    network.carry_out(between, relay.leave(network.now))
    while network.is_busy:
        network.pass_packet()
    for number, broker in network.brokers.items():
        assert broker.core.relay is not None
        if number not in (between, *network.links[between].up):
            assert broker.core.relay.next_hop(between) == 0
