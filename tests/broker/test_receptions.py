"""What a home keeps of the messages that other brokers have put: bounded, whatever those brokers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.broker import receptions
from postroad.broker.channel_items import Forget
from postroad.broker.reception import is_reception
from postroad.store import StoreSettings, carry_out
from tests.broker.queue_network import QueueNetwork

if TYPE_CHECKING:
    from postroad.broker.channel_items import Item


class SilentNetwork(QueueNetwork):
    """Broker 2 never says that the home may forget something, for as long as it is silent."""

    silent = True

    def start(self, number: int) -> None:
        super().start(number)
        if number == 2:
            peers = self.brokers[2].peers
            send = peers.send

            def say(peer: int, item: Item) -> None:
                if not (self.silent and isinstance(item, Forget)):
                    send(peer, item)

            peers.send = say  # type: ignore[method-assign]

    def remembered(self) -> int:
        return sum(each.rows for each in self.brokers[1].log.cursors.values() if is_reception(each.terms))

    def drained(self) -> list[int]:
        """Consume all there is at the home."""
        reader, got = self.consume(1, prefetch=50), []
        for _ in range(20):
            self.settle(1)
            for body in list(reader.held):
                got.append(body)
                self.answer(reader, body)
        self.leave(reader)
        return got


@pytest.mark.parametrize("bound", ["messages", "bytes"])
def test_broker_that_never_says_what_the_home_may_forget_is_refused_at_a_bound(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bound == "messages":
        monkeypatch.setattr(receptions, "MAX_REMEMBERED", 10)
    network = SilentNetwork(store=StoreSettings(subscription_bytes=10_000 if bound == "bytes" else 2**20))
    for _ in range(20):
        network.send(2, 3, size=300)
        network.settle(2)
    first = network.drained()
    assert 10 <= len(first) < 40
    assert network.remembered() == len(first)
    (queue,) = network.brokers[2].peers.outgoing.listed()
    assert queue.trouble.startswith("broker 2 has not said that it will not put")
    # Nothing is lost by it, and order is kept.
    network.silent = False
    network.crash(2)
    network.start(2)
    network.settle(20)
    assert first + network.drained() == list(range(1, 61))
    network.settle(5)
    assert network.remembered() == 0
    assert not network.faults


def test_what_earlier_sessions_put_is_forgotten_from_the_oldest_on_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receptions, "MAX_REMEMBERED", 10)
    network = SilentNetwork()
    got: list[int] = []
    for _ in range(8):
        network.send(2, 5)
        network.settle(1)
        network.cut.add(frozenset((1, 2)))
        network.settle(12)
        network.cut.clear()
        got += network.drained()
    assert got == list(range(1, 41))
    assert network.remembered() <= 2 * 10 + 5
    assert network.brokers[1].peers.receptions.forgotten >= 10


def test_message_that_is_put_again_is_not_among_those_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receptions, "MAX_REMEMBERED", 10)
    network = SilentNetwork()
    network.silent = False
    # The home stores these, and dies before it can confirm them: they are in doubt each time.
    repeated = 0
    for _ in range(5):
        network.send(2, 8)
        network.commit(2)
        while network.wires:
            network.pass_packet()
        commit = network.brokers[1].log.take_commit(network.now)
        if commit is not None:
            carry_out(commit, network.disks[1])
        network.crash(1, power=False)
        network.start(1)
        network.settle(12)
        repeated += network.brokers[1].peers.receptions.repeated
    got = network.drained()
    assert got == list(range(1, 41))
    assert repeated >= 8
    assert not network.faults


def test_reception_of_a_broker_that_the_network_does_not_list_any_more_ends() -> None:
    network = SilentNetwork()
    network.send(2, 3)
    network.settle(2)
    assert network.drained() == [1, 2, 3]
    assert network.remembered() == 3
    network.crash(1)
    network.crash(2)
    network.listed = frozenset({1, 3})
    network.start(1)
    network.settle(2)
    assert network.remembered() == 0


@pytest.mark.parametrize("count", [1, 10])
def test_what_one_session_may_bring_is_not_forgotten_when_the_channel_is_lost(count: int) -> None:
    # As one put, which is larger than what may be remembered, or as several.
    network = SilentNetwork(store=StoreSettings(subscription_bytes=1_500))
    for _ in range(10 // count):
        network.send(2, count, size=300)
        network.commit(2)
        while network.wires:
            network.pass_packet()
    network.commit(1)
    # It is stored, and its entry broker does not hear of it.
    network.wires.clear()
    network.cut.add(frozenset((1, 2)))
    network.settle(12)
    network.cut.clear()
    network.silent = False
    network.settle(20)
    assert network.drained() == list(range(1, 11))
    assert network.brokers[1].peers.receptions.forgotten == 0
    assert not network.faults
