"""What another broker sends over a channel and no honest one would: refused in words, and the channel begins anew."""

from __future__ import annotations

import pytest

from postroad.broker.channel_items import ChannelError, Consume, ConsumerAnswer, ConsumerDelivery, Dismiss, Item, Put
from postroad.broker.channels import Datagram
from postroad.broker.peers import HEAD_BYTES, MAX_HOPS, packet, passed_on, read_packet
from postroad.messages import Batch, Draft
from postroad.store import rows_payload
from tests.broker.queue_network import QUEUE, QueueNetwork


def joined() -> QueueNetwork:
    """Broker 1 has the queue, broker 2 uses it: their channel is open both ways."""
    network = QueueNetwork(count=2)
    network.send(2)
    network.consume(2)
    network.settle(2)
    assert network.brokers[1].peers.is_open(2)
    assert network.brokers[2].peers.is_open(1)
    return network


def told(network: QueueNetwork, source: int, target: int, item: Item) -> str:
    """Let a broker send an item; return what the other one finds wrong with it."""
    broker = network.brokers[source]
    network.now += 1
    broker.peers.send(target, item)
    ((to, data),) = broker.peers.take_packets(network.now)
    assert to == target
    outbox, fault = network.brokers[target].peers.receive(data, network.now)
    network.carry_out(target, outbox)
    return fault


def foreign() -> bytes:
    """A message that did not enter at any of the brokers."""
    return rows_payload(Batch.build([Draft(QUEUE)]))


@pytest.mark.parametrize(
    ("source", "target", "item", "says"),
    [
        (2, 1, Put(99, 0, QUEUE, "", False, b"noise"), "puts bytes that are not messages"),
        (2, 1, Put(99, 0, QUEUE, "", False, foreign()), "did not enter there"),
        (1, 2, ConsumerDelivery(1, b"noise"), "delivers bytes that are not messages"),
        (2, 1, ConsumerAnswer(99, 1, True, True, b"12345"), "5 bytes are not ids"),
    ],
)
def test_item_that_no_honest_broker_sends_ends_the_channel_which_begins_anew(
    source: int, target: int, item: Item, says: str
) -> None:
    network = joined()
    assert says in told(network, source, target, item)
    assert not network.brokers[target].peers.is_open(source)
    network.told.clear()
    network.settle(5)
    for client in list(network.clients.values()):
        network.leave(client)
    network.consume(2)
    network.send(2)
    network.settle(5)
    assert network.faults == []
    assert network.confirmed <= network.handed
    assert network.brokers[target].peers.is_open(source)


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x95\x01\x02\x03\x04", b"\x81\xa1\xff\x01"])
def test_packet_that_is_no_datagram_is_refused_and_changes_nothing(body: bytes) -> None:
    network = joined()
    data = packet(2, 1, Datagram(1, 1, 0, 0, []))[:HEAD_BYTES] + body
    outbox, fault = network.brokers[1].peers.receive(data, network.now)
    assert "a packet of broker 2 is not valid" in fault
    assert not outbox.closes
    assert network.brokers[1].peers.is_open(2)


def test_packet_that_is_too_short_is_refused() -> None:
    with pytest.raises(ChannelError, match=f"begins with {HEAD_BYTES}"):
        read_packet(b"1234")


def test_packet_loses_a_hop_each_time_it_is_passed_on() -> None:
    data = packet(2, 1, Datagram(1, 1, 0, 0, []))
    assert read_packet(data).hops == MAX_HOPS
    further = passed_on(data)
    assert (read_packet(further).hops, further[HEAD_BYTES:]) == (MAX_HOPS - 1, data[HEAD_BYTES:])


def test_consumer_beyond_the_limit_or_of_a_queue_elsewhere_is_dismissed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = joined()
    monkeypatch.setattr("postroad.broker.guest_consumers.MAX_GUESTS", 1)
    assert told(network, 2, 1, Consume(98, QUEUE, "", "", 5, False)) == ""
    assert len(network.brokers[1].peers.guests) == 1
    monkeypatch.undo()
    network.settle(1)
    assert told(network, 2, 1, Consume(97, QUEUE, "", "price >", 5, False)) == ""
    assert len(network.brokers[1].peers.guests) == 1


def test_broker_that_has_not_the_queue_cannot_dismiss_its_consumers() -> None:
    network = QueueNetwork(count=3)
    reader = network.consume(2)
    network.settle(1)
    (number,) = network.clients
    network.brokers[3].peers.want(2, network.now)
    network.settle(1)
    network.brokers[3].peers.send(2, Dismiss(number, "go away"))
    network.settle(1)
    assert reader in network.clients.values()
    network.brokers[1].peers.send(2, Dismiss(number, "the queue has ended"))
    network.settle(1)
    assert reader not in network.clients.values()
