"""Durable subscriptions at one broker and publishers at others: what was confirmed comes, whoever is away meanwhile."""

from __future__ import annotations

import os

import pytest

from tests.broker.durable_network import DurableMob, DurableNetwork

SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(20)
HOUR = 3_600_000


@pytest.mark.parametrize("seed", SEEDS)
def test_mob_of_durable_subscribers_misses_nothing_and_gets_nothing_twice_through_crashes_and_cuts(seed: int) -> None:
    DurableMob(seed).play(seed)


def test_durable_subscriber_gets_what_others_accepted_while_its_broker_was_away_for_hours() -> None:
    network = DurableNetwork()
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(2)
    for number in (1, 3):
        network.send(number, 5)
    for _ in range(3):
        network.tick(HOUR)
        network.settle(1)
    assert network.confirmed == set(range(1, 11))
    network.start(2)
    network.settle(3)
    network.join_reader("reader")
    network.settle(3)
    assert network.missing() == {}
    assert network.disorder() == []


def test_confirmed_message_survives_the_crash_of_its_entry_broker_while_the_subscriber_s_is_away() -> None:
    network = DurableNetwork()
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(2)
    network.send(1, 3)
    network.commit(1)
    network.crash(1)
    network.start(1)
    # It knows by its store alone what the subscriber wants.
    network.send(1, 2)
    network.commit(1)
    network.start(2)
    network.settle(3)
    network.join_reader("reader")
    network.settle(3)
    assert network.confirmed == set(range(1, 6))
    assert network.readers["reader"].first == [1, 2, 3, 4, 5]
