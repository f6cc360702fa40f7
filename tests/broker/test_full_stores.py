"""Brokers whose stores are full of messages for each other still exchange them, which makes room at both ends."""

from __future__ import annotations

import pytest

from postroad.broker import stored_queues
from postroad.store import StoreSettings
from tests.broker.durable_network import DurableNetwork
from tests.broker.queue_network import QueueNetwork

STORE = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, max_bytes=60_000)


# Publishers leave 14,000 bytes, puts 5,000: more than the checkpoint of a segment that may begin in between.
@pytest.fixture(autouse=True)
def _small_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_queues, "RESERVE_BYTES", 28_000)
    monkeypatch.setattr(stored_queues, "PUT_RESERVE_BYTES", 5_000)


def fill(network: QueueNetwork, number: int) -> None:
    """Send until the broker refuses it."""
    for _ in range(200):
        if network.send(number, 1, size=700).unstorable:
            return
        network.commit(number)
    raise AssertionError("a store of 60,000 bytes takes 140,000")


def test_brokers_that_are_full_of_messages_for_each_other_s_durable_subscriptions_go_on() -> None:
    network = DurableNetwork(count=2, store=STORE)
    readers = [network.join_reader(f"at {number}", number, kind=number) for number in (1, 2)]
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    for number in (1, 2):
        fill(network, number)
    network.cut.clear()
    for _ in range(60):
        network.settle(1)
        for reader in readers:
            for body in list(reader.held):
                network.acknowledge(reader, body)
    assert network.missing() == {}
    assert network.disorder() == []
    assert network.left() == {}


def test_home_takes_messages_for_a_queue_that_has_room_when_its_store_is_nearly_full() -> None:
    network = QueueNetwork(count=2, store=STORE)
    network.send(2, 1)
    network.settle(12)
    # Its own publishers are refused.
    fill(network, 1)
    network.send(2, 2)
    network.settle(12)
    (queue,) = network.brokers[2].peers.outgoing.listed()
    assert queue.messages == 0
