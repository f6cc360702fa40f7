"""Brokers whose stores are full of messages for each other still exchange them, which makes room at both ends."""

from __future__ import annotations

import msgspec
import pytest

from postroad.broker import stored_queues
from postroad.store import StoreSettings, room
from tests.broker.durable_network import DurableNetwork
from tests.broker.queue_network import QueueNetwork

STORE = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, max_bytes=60_000)
# As by default, where a segment has twice what a tight log has left: the one that is written is never closed.
LONG_SEGMENTS = msgspec.structs.replace(STORE, segment_bytes=60_000)
UNLIMITED = StoreSettings(segment_bytes=60_000, cache_bytes=16_000)


# Publishers leave 14,000 bytes, puts 5,000: more than the checkpoint of a segment that may begin in between.
@pytest.fixture(autouse=True)
def _small_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_queues, "RESERVE_BYTES", 28_000)
    monkeypatch.setattr(stored_queues, "PUT_RESERVE_BYTES", 5_000)
    monkeypatch.setattr(room, "TIGHT_BYTES", 28_000)
    monkeypatch.setattr(room, "TIGHT_SEGMENT_BYTES", 2_000)


def fill(network: QueueNetwork, number: int) -> None:
    """Send until the broker refuses it."""
    for _ in range(200):
        if network.send(number, 1, size=700).unstorable:
            return
        network.commit(number)
    raise AssertionError("a store of 60,000 bytes takes 140,000")


@pytest.mark.parametrize(
    ("store", "capacity"),
    [(STORE, None), (LONG_SEGMENTS, None), (UNLIMITED, 60_000)],
    ids=["full store", "full store with long segments", "full disk"],
)
def test_brokers_that_are_full_of_messages_for_each_other_s_durable_subscriptions_go_on(
    store: StoreSettings, capacity: int | None
) -> None:
    network = DurableNetwork(count=2, store=store, capacity=capacity)
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
    # And they take new ones.
    for number in (1, 2):
        assert not network.send(number, 1, size=700).unstorable


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


def test_home_takes_messages_for_a_queue_that_has_room_when_its_disk_is_nearly_full() -> None:
    network = QueueNetwork(count=2, store=UNLIMITED, capacity=60_000)
    network.send(2, 1)
    network.settle(12)
    fill(network, 1)
    network.send(2, 2)
    network.settle(12)
    (queue,) = network.brokers[2].peers.outgoing.listed()
    assert queue.messages == 0
