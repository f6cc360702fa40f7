"""Brokers that come back with an older store: of a backup, or of a machine that failed between two syncs."""

from __future__ import annotations

import os
from collections import defaultdict
from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

from postroad.store import UNLIMITED, SimulatedDisk
from tests.broker.durable_network import KINDS, DurableMob, DurableNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker import Outbox
    from tests.broker.durable_network import DurableReader


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


class RestoredMob(DurableMob):
    """Also brings brokers back with an older store, or with none.

    What they lose by that is lost. What others accept, and what they accept themselves from then on, is not.
    """

    def __init__(self, seed: int, count: int = 3) -> None:
        self.last = 0
        # The last message before a broker lost something.
        self.before: dict[int, int] = {}
        self.backups: dict[int, SimulatedDisk] = {}
        self.needed: dict[str, set[int]] = defaultdict(set)
        super().__init__(seed, count)

    def act(self) -> None:
        if self.random.random() < 0.12:
            getattr(self, self.random.choice(["_change"] * 5 + ["_back_up"] * 2 + ["_bring_back", "_lose"]))()
        else:
            super().act()

    def _back_up(self) -> None:
        if number := self._any():
            self.backups[number] = deepcopy(self.brokers[number].disk)

    def _bring_back(self) -> None:
        number = self._any()
        if number in self.backups:
            self._continue_with(number, deepcopy(self.backups[number]))

    def _lose(self) -> None:
        number = self._any()
        if number and self.random.random() < 0.3:
            self._continue_with(number, SimulatedDisk())

    def _continue_with(self, number: int, disk: SimulatedDisk) -> None:
        self.crash(number)
        self.before[number], self.disks[number] = self.last, disk
        for reader in self.readers.values():
            if reader.broker == number:
                reader.safe = 0
        self.start(number)

    def _change(self) -> None:
        found = [each for each in self.readers.values() if each.broker in self.brokers and " some" in each.name]
        if found:
            # All its versions want its own kind.
            reader = self.random.choice(found)
            self.change(reader.name, self.random.choice([None, int(reader.name[-1])]))

    def send(self, number: int, count: int = 1, size: int = 0) -> Outbox:
        first = self.last + 1
        self.last += count
        for name, reader in self.readers.items():
            if reader.versions and reader.versions[0][0] <= self.known_state(number, reader.broker):
                bodies = range(first, first + count)
                self.needed[name] |= {each for each in bodies if " some" not in name or each % KINDS == int(name[-1])}
        return super().send(number, count, size)

    def is_lost(self, body: int, reader: DurableReader) -> bool:
        """Whether a broker may have lost a message on its way to a subscriber, or that it was delivered."""
        return body <= max(self.before.get(self.entered[body], 0), self.before.get(reader.broker, 0))

    def absent(self) -> dict[str, list[int]]:
        """What did not come, of what no broker has lost."""
        found = {
            name: sorted(
                body
                for body in self.confirmed & self.needed[name] - set(reader.first)
                if not self.is_lost(body, reader)
            )
            for name, reader in self.readers.items()
        }
        return {name: bodies for name, bodies in found.items() if bodies}

    def disorder(self) -> list[str]:
        for reader in self.readers.values():
            reader.first = [body for body in reader.first if not self.is_lost(body, reader)]
        return super().disorder()


SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_mob_misses_nothing_that_no_broker_has_lost(seed: int) -> None:
    mob = RestoredMob(seed)
    for number in (1, 2, 3):
        mob.join_reader(f"{number} all", number)
        mob.join_reader(f"{number} some {number % KINDS}", number)
    mob.settle(3)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(600):
        mob.act()
    mob.end()
    assert mob.absent() == {}
    assert mob.disorder() == []
    assert mob.left() == {}
