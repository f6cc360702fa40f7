"""Brokers that come back with a newer version: what an earlier one stored of the standing interest is read."""

from __future__ import annotations

import os

import msgspec
import pytest

from postroad.broker import former_versions
from postroad.broker.standing_interest import StandingTerms, is_standing
from postroad.store import Log, carry_out, recover
from tests.broker.changing_network import ChangingMob, acknowledged, formers
from tests.broker.durable_network import DurableNetwork


class EarlierTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What was stored before it was stored which states others may have heard."""

    standing: int


def begin_again(network: DurableNetwork, number: int) -> None:
    """A broker crashes, and comes back with another version: it was an earlier one that has stored all this."""
    network.crash(number)
    disk = network.disks[number]
    log = Log(network.store, recover(disk.segments(), disk.read, disk.sync))
    for cursor in [each for each in log.cursors.values() if is_standing(each.terms)]:
        standing = msgspec.msgpack.decode(cursor.terms, type=StandingTerms).standing
        log.change_cursor(cursor, msgspec.msgpack.encode(EarlierTerms(standing=standing)))
        commit = log.take_commit(network.now)
        assert commit is not None
        carry_out(commit, disk)
        log.committed(commit)
    network.start(number)


def test_what_others_accepted_under_a_state_of_an_earlier_version_is_matched_against_that() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.change("reader", 2)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    begin_again(network, 2)
    network.change("reader", 0)
    network.settle(3)
    network.cut.clear()
    assert acknowledged(network, "reader") == [2]
    assert len(formers(network, 2)) == 0


def test_store_of_an_earlier_version_may_have_been_heard_by_everybody_also_after_more_restarts() -> None:
    network = DurableNetwork(count=3)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.cut = {frozenset((1, 2)), frozenset((1, 3))}
    network.send(1, 3)
    # Until it counts as gone, it may hear of changes.
    network.settle(12)
    begin_again(network, 2)
    for turn in range(2 * former_versions.MAX_FORMERS):
        network.change("reader", turn % 2 * 2)
        network.settle(2)
        network.crash(2)
        network.start(2)
        network.join_reader("reader")
    network.settle(3)
    # Broker 1 heard nothing of what came after the upgrade: one version is enough for it.
    assert (formers(network, 2).dropped, len(formers(network, 2))) == (0, 1)
    network.cut.clear()
    assert acknowledged(network, "reader") == [1]
    assert len(formers(network, 2)) == 0


def test_earlier_version_that_ran_in_between_counts_as_one_that_everybody_may_have_heard() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    begin_again(network, 2)
    network.join_reader("reader")
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    for kind in (2, 0):
        network.send(1, 3)
        begin_again(network, 2)
        network.change("reader", kind)
        network.settle(2)
    network.cut.clear()
    assert acknowledged(network, "reader") == [1, 4]


class UpgradingMob(ChangingMob):
    """Also upgrades brokers, and takes them back to the earlier version for a while."""

    def act(self) -> None:
        if self.random.random() < 0.02 and (number := self._any()):
            begin_again(self, number)
        else:
            super().act()


SEEDS = range(200) if os.environ.get("POSTROAD_THOROUGH") else range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_mob_gets_exactly_what_it_wanted_through_upgrades(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bound has a test of its own.
    monkeypatch.setattr(former_versions, "MAX_FORMERS", 1_000)
    UpgradingMob(seed).play(seed)
