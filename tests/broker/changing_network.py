"""Networks whose durable subscribers change what they want."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broker.durable_network import KINDS, DurableMob, DurableNetwork

if TYPE_CHECKING:
    from postroad.broker import former_versions


class ChangingMob(DurableMob):
    """Also changes what subscribers want."""

    def act(self) -> None:
        if self.random.random() < 0.1:
            self._change()
        else:
            super().act()

    def _change(self) -> None:
        found = [each for each in self.readers.values() if each.broker in self.brokers]
        if found:
            self.change(self.random.choice(found).name, self.random.choice([None, *range(KINDS)]))


def formers(network: DurableNetwork, number: int) -> former_versions.FormerVersions:
    durables = network.brokers[number].core.durables
    assert durables is not None
    return durables.formers


def acknowledged(network: DurableNetwork, name: str) -> list[int]:
    """What a subscriber has got, once all that is under way has come."""
    reader = network.readers[name]
    for _ in range(5):
        network.settle(3)
        for body in list(reader.held):
            network.acknowledge(reader, body)
    return reader.first
