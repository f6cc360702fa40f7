"""What is kept of former versions of durable subscriptions: through restarts, within its limits, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import former_versions
from tests.broker.changing_network import acknowledged, formers
from tests.broker.durable_network import DurableNetwork

if TYPE_CHECKING:
    import pytest


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
