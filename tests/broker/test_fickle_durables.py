"""Durable subscriptions that change, are purged, deleted and made again, while packets get lost and brokers crash."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from postroad.store import StoreSettings
from tests.broker.durable_network import KINDS, DurableMob

if TYPE_CHECKING:
    from tests.broker.durable_network import DurableReader

SEEDS = range(200) if os.environ.get("POSTROAD_THOROUGH") else range(8)


class FickleMob(DurableMob):
    """Also changes what subscribers want, and gives up what waits for them."""

    def act(self) -> None:
        if self.random.random() < 0.08:
            getattr(self, self.random.choice(["_change", "_purge", "_delete", "_purge_outgoing"]))()
        else:
            super().act()

    def _one(self) -> DurableReader | None:
        """Any subscriber whose broker is up."""
        found = [each for each in self.readers.values() if each.broker in self.brokers]
        return self.random.choice(found) if found else None

    def _change(self) -> None:
        if (reader := self._one()) is not None:
            if reader.session is not None:
                self.part(reader)
            reader.kind = self.random.choice([None, *range(KINDS)])
            self.join_reader(reader.name)

    def _purge(self) -> None:
        if (reader := self._one()) is not None:
            durables = self.brokers[reader.broker].core.durables
            assert durables is not None
            if (subscription := durables.find("c", reader.name)) is not None:
                durables.purge(subscription, "purged by carla")

    def _delete(self) -> None:
        if (reader := self._one()) is not None:
            core = self.brokers[reader.broker].core
            assert core.durables is not None
            if core.durables.find("c", reader.name) is not None:
                if reader.session is not None:
                    self.part(reader)
                reader.versions, reader.safe = [], 0
                broker = self.brokers[reader.broker]
                broker.changing = [each for each in broker.changing if each[1] is not reader]
                self.carry_out(
                    reader.broker, core.delete_durable(core.attached("reader"), ("c", reader.name), self.now)
                )

    def _purge_outgoing(self) -> None:
        if number := self._any():
            outgoing = self.brokers[number].peers.outgoing
            for queue in outgoing.for_durables():
                outgoing.purge(queue, "purged by carla")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bytes_each", [1_500, 2**32])
def test_mob_gets_nothing_twice_and_everything_in_order_while_subscriptions_change(bytes_each: int, seed: int) -> None:
    mob = FickleMob(seed, store=StoreSettings(segment_bytes=8_192, cache_bytes=16_000, subscription_bytes=bytes_each))
    for number in (1, 2, 3):
        mob.join_reader(f"at {number}", number)
    mob.settle(3)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(600):
        mob.act()
    mob.end()
    # A crash may bring a deleted subscription back, with what it wanted.
    assert [each for each in mob.faults if "did not want" not in each] == []
    assert mob.handed
    assert mob.disorder() == []
    assert mob.left() == {}
