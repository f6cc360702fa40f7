"""Brokers that come back with an older store: of a backup, or of a machine that failed between two syncs."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from postroad.store import UNLIMITED, SimulatedDisk
from tests.broker.durable_network import DurableNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable


def backup(network: DurableNetwork, number: int) -> SimulatedDisk:
    """What the disk of a broker has now."""
    network.settle(1)
    return deepcopy(network.disks[number])


def restore(network: DurableNetwork, number: int, disk: SimulatedDisk) -> None:
    """A broker comes back with another disk, and nobody hears of it yet."""
    network.crash(number)
    network.disks[number] = disk
    for reader in network.readers.values():
        if reader.broker == number:
            reader.safe = 0
    network.cut = {frozenset((number, other)) for other in network.disks}
    network.start(number)


def acknowledged(network: DurableNetwork, name: str) -> list[int]:
    """What a subscriber has got, once all that is under way has come."""
    reader = network.readers[name]
    network.cut.clear()
    for _ in range(5):
        network.settle(5)
        for body in list(reader.held):
            network.acknowledge(reader, body)
    return reader.first


def away(network: DurableNetwork, number: int, counts: Iterable[int]) -> None:
    """A broker accepts messages that it cannot send on."""
    network.cut = {frozenset((number, other)) for other in network.disks}
    for count in counts:
        network.send(number, count)
    network.settle(1)


def test_subscription_that_is_new_after_its_broker_lost_changes_gets_nothing_from_before() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("all", 2)
    network.settle(3)
    older = backup(network, 2)
    network.join_reader("lost", 2, kind=1)
    network.settle(3)
    away(network, 1, [3])
    restore(network, 2, older)
    network.join_reader("all")
    del network.readers["lost"]
    network.join_reader("new", 2)
    network.settle(12)
    assert acknowledged(network, "all") == [1, 2, 3]
    assert network.readers["new"].first == []
    network.send(1, 1)
    assert acknowledged(network, "new") == [4]


def test_what_a_subscription_wanted_in_an_older_store_counts_for_what_others_accepted_after_it() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    older = backup(network, 2)
    network.change("reader", 1)
    network.settle(3)
    away(network, 1, [3])
    restore(network, 2, older)
    # As far as anybody knows now, it wanted everything until this change.
    network.change("reader", 2)
    network.settle(12)
    assert acknowledged(network, "reader") == [1]
    network.send(1, 2)
    assert acknowledged(network, "reader") == [1, 5]


def test_what_a_broker_accepts_under_the_interest_in_an_older_store_comes_to_those_who_want_it_still() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    older = backup(network, 1)
    network.change("reader", 1)
    # Nothing of the former version can come any more, as far as anybody knows.
    network.settle(5)
    restore(network, 1, older)
    away(network, 1, [3])
    assert acknowledged(network, "reader") == [1]


def test_broker_whose_clock_was_set_back_does_not_number_a_state_as_one_that_others_know() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(2)
    network.now += 1_000
    network.start(2)
    network.settle(3)
    known = network.known_state(1, 2)
    network.crash(2)
    network.now, network.behind = network.now - 10_000, 10_000
    network.start(2)
    standing = network.brokers[2].peers.standing
    assert standing is not None
    assert standing.change() > known


def test_what_waits_for_a_broker_that_lost_its_store_and_the_time_is_told_to_be_as_old_as_it_is() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    network.change("reader", 0)
    network.settle(3)
    away(network, 1, [3])
    network.now, network.behind = network.now - 500_000, 500_000
    restore(network, 2, SimulatedDisk())
    network.join_reader("reader")
    network.join_reader("all", 2)
    network.settle(1)
    store = network.brokers[2].core.store
    assert store is not None
    store.log.room.disk = 0
    network.cut.clear()
    network.settle(12)
    # Broker 1 knows what they want now; what it accepts waits behind the message of another time.
    network.send(1, 3)
    network.settle(1)
    network.change("reader", 1)
    network.settle(3)
    store.log.room.disk = UNLIMITED
    assert acknowledged(network, "reader")[-1:] == [6]
