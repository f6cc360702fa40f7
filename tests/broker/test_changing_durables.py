"""Durable subscriptions that change while packets get lost, routes break and brokers crash, in a network.

What a broker accepts is for those who wanted it in the state that the broker knew, however late it comes.
"""

from __future__ import annotations

import os

import pytest

from postroad.broker import former_versions
from tests.broker.durable_network import KINDS, DurableMob, DurableNetwork

SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(24)
HOUR = 3_600_000


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


@pytest.mark.parametrize("seed", SEEDS)
def test_mob_gets_exactly_what_it_wanted_when_that_was_accepted_while_it_changes_what_it_wants(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound has a test of its own.
    monkeypatch.setattr(former_versions, "MAX_FORMERS", 1_000)
    mob = ChangingMob(seed)
    mob.join_reader("also at 1", 1, kind=2)
    mob.play(seed)
    for broker in mob.brokers.values():
        durables = broker.core.durables
        assert durables is not None
        assert len(durables.formers) == 0
