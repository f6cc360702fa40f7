"""Durable subscriptions that change, end and begin again while stores fill, in a network of brokers that crash.

What is confirmed reaches exactly those who wanted it when it was accepted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from postroad.broker import former_versions, standing_interest
from postroad.store import UNLIMITED
from tests.broker.changing_network import ChangingMob
from tests.broker.durable_network import KINDS, DurableReader
from tests.broker.slow_network import SlowMob

if TYPE_CHECKING:
    from postroad.broker import Broker

SEEDS = range(300) if os.environ.get("POSTROAD_THOROUGH") else range(10)


class RestlessMob(ChangingMob):
    """Also deletes subscriptions, changes one several times at once, and fills disks."""

    def act(self) -> None:
        if self.random.random() < 0.06:
            getattr(self, self.random.choice(["_fill", "_free", "_delete", "_change_often"]))()
        else:
            super().act()

    def _fill(self) -> None:
        if number := self._any():
            self.give_room(self.brokers[number].core, 0)

    def _free(self) -> None:
        for broker in self.brokers.values():
            self.give_room(broker.core)

    @staticmethod
    def give_room(core: Broker, room: int = UNLIMITED) -> None:
        assert core.store is not None
        core.store.log.room.disk = room

    def join_reader(self, name: str, number: int = 0, kind: int | None = None) -> DurableReader:
        reader = self.readers.get(name)
        core = self.brokers[number if reader is None else reader.broker].core
        assert core.durables is not None
        if core.durables.find("c", name) is None:
            # A full store refuses new subscriptions.
            self.give_room(core)
        return super().join_reader(name, number, kind)

    def _one(self) -> DurableReader | None:
        found = [each for each in self.readers.values() if each.broker in self.brokers]
        return self.random.choice(found) if found else None

    def _change_often(self) -> None:
        if (reader := self._one()) is not None:
            for _ in range(self.random.randint(1, 4)):
                self.change(reader.name, self.random.choice([None, *range(KINDS)]))

    def _delete(self) -> None:
        reader = self._one()
        if reader is None:
            return
        broker = self.brokers[reader.broker]
        durables = broker.core.durables
        assert durables is not None
        if durables.find("c", reader.name) is None:
            return
        if reader.session is not None:
            self.part(reader)
        reader.versions, reader.safe = [], 0
        broker.changing = [each for each in broker.changing if each[1] is not reader]
        session = broker.core.attached("reader")
        self.carry_out(reader.broker, broker.core.delete_durable(session, ("c", reader.name), self.now))
        # No crash brings it back.
        for _ in range(3):
            self.commit(reader.broker)
        reader.wanted = set(reader.first)

    def end(self) -> None:
        self._free()
        super().end()


class SlowRestlessMob(RestlessMob, SlowMob):
    """The same with brokers that match one message in a turn."""


@pytest.mark.parametrize("kind", [RestlessMob, SlowRestlessMob])
@pytest.mark.parametrize("seed", SEEDS)
def test_mob_gets_exactly_what_it_wanted_while_subscriptions_end_and_disks_fill(
    seed: int, kind: type[RestlessMob], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound has a test of its own.
    monkeypatch.setattr(former_versions, "MAX_FORMERS", 1_000)
    if seed % 2:
        # States of several parts.
        monkeypatch.setattr(standing_interest, "PART_ROWS", 1)
    mob = kind(seed)
    mob.join_reader("also at 1", 1, kind=2)
    mob.join_reader("at 3", 3, kind=2)
    mob.play(seed)
    for broker in mob.brokers.values():
        durables = broker.core.durables
        assert durables is not None
        assert len(durables.formers) == 0
