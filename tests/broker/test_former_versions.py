"""What is kept of former versions of durable subscriptions: through restarts, within its limits, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import AckMode, Outbox, former_versions
from tests.broker.changing_network import acknowledged, formers
from tests.broker.durable_network import KINDS, DurableNetwork

if TYPE_CHECKING:
    import pytest


def test_one_version_is_kept_for_a_broker_that_is_away_however_often_the_other_one_restarts() -> None:
    network = DurableNetwork(count=3)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.cut = {frozenset((1, 2)), frozenset((1, 3))}
    network.send(1, 3)
    # Until it counts as gone, it may hear of changes.
    network.settle(12)
    for turn in range(2 * former_versions.MAX_FORMERS):
        network.change("reader", turn % KINDS)
        network.settle(2)
        network.crash(2)
        network.start(2)
        network.join_reader("reader")
    network.settle(3)
    assert formers(network, 2).dropped == 0
    assert len(formers(network, 2)) == 1
    network.cut.clear()
    assert acknowledged(network, "reader") == [1]
    assert len(formers(network, 2)) == 0


def test_state_that_a_broker_heard_from_a_process_that_died_then_counts() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.change("reader", 2)
    network.settle(3)
    network.crash(2)
    # Broker 2 has to know that this one may accept messages under the second state.
    network.send(1, 3)
    network.start(2)
    network.cut.add(frozenset((1, 2)))
    network.change("reader", 0)
    network.settle(3)
    network.cut.clear()
    assert acknowledged(network, "reader") == [2]


def test_versions_that_a_new_process_has_no_room_for_are_replaced_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.join_reader("all", 2)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    network.change("reader", 2)
    network.commit(2)
    network.crash(2)
    monkeypatch.setattr(former_versions, "FORMER_SHARE", 2**40)
    network.start(2)
    for name in ("reader", "all"):
        network.join_reader(name)
    network.settle(12)
    network.cut.clear()
    assert formers(network, 2).dropped == 1
    assert acknowledged(network, "all") == [1, 2, 3]
    assert acknowledged(network, "reader") == [2]


def test_versions_of_one_login_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # A version takes some 2 KB: there is room for some sixteen, and for some four of one login.
    monkeypatch.setattr(former_versions, "FORMER_SHARE", 2**30 // 30_000)
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    core = network.brokers[2].core
    assert core.durables is not None

    def changed(kind: int) -> None:
        assert core.durables is not None
        for number in range(20):
            session, name = core.attached("eve"), ("eve", str(number))
            core.durables.subscribe(session, "s", name, "b", f"n = {kind}", AckMode.AUTO, network.now, Outbox())

    changed(0)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    changed(1)
    assert formers(network, 2).dropped > 10
    before = formers(network, 2).dropped
    network.change("reader", 2)
    assert formers(network, 2).dropped == before
    network.cut.clear()
    assert acknowledged(network, "reader") == [1]
