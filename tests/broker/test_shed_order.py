"""Durable subscriptions over their limit: what is given up is never delivered after something newer."""

from __future__ import annotations

import os
from typing import Literal

import msgspec
import pytest

from postroad.store import StoreSettings
from tests.broker.durable_network import DurableMob, DurableNetwork

SEEDS = range(200) if os.environ.get("POSTROAD_THOROUGH") else range(12)
STORE = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, subscription_bytes=1_500, at_limit="drop-oldest")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("count", "at_limit"), [(1, "drop-oldest"), (3, "drop-oldest"), (3, "stop"), (3, "push-back")])
def test_mob_gets_everything_in_order_and_once_through_crashes_while_subscriptions_are_full(
    count: int, at_limit: Literal["drop-oldest", "stop", "push-back"], seed: int
) -> None:
    mob = DurableMob(seed, count, store=msgspec.structs.replace(STORE, at_limit=at_limit))
    mob.join_reader("all", 1)
    mob.join_reader("some", 1, kind=1)
    mob.settle(3)
    mob.loss = [0.0, 0.1][seed % 2] if count > 1 else 0.0
    for _ in range(600):
        mob.act()
    mob.end()
    assert mob.faults == []
    assert mob.disorder() == []
    assert mob.left() == {}
    assert at_limit != "push-back" or mob.missing() == {}


def test_message_that_was_given_up_and_returns_after_a_crash_does_not_follow_later_ones() -> None:
    network = DurableNetwork(count=1, store=STORE)
    reader = network.join_reader("all", 1)
    network.commit(1)
    network.part(reader)
    network.commit(1)
    for _ in range(8):
        network.send(1, 1, size=300)
        network.commit(1)
    network.join_reader("all")
    # The oldest are given up in memory, and this is not written yet.
    network.send(1, 1)
    network.read(1)
    network.crash(1)
    network.start(1)
    network.join_reader("all")
    network.settle(3)
    assert network.disorder() == []
    assert reader.first


def test_subscriber_gets_messages_even_if_each_commit_brings_more_than_may_wait() -> None:
    network = DurableNetwork(count=1, store=STORE)
    reader = network.join_reader("all", 1)
    network.commit(1)
    for _ in range(40):
        network.send(1, 6, size=300)
        network.commit(1)
        for body in list(reader.held):
            network.acknowledge(reader, body)
    assert len(reader.first) >= 20
    assert network.disorder() == []
