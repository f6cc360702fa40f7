"""Durable subscriptions that change while packets get lost, routes break and brokers crash, in a network.

What a broker accepts is for those who wanted it in the state that the broker knew, however late it comes.
"""

from __future__ import annotations

import os

import msgspec
import pytest

from postroad.broker import AckMode, Outbox, accepted_states, former_versions, standing_interest
from postroad.broker.channel_items import Informed, Put, decode_item
from postroad.broker.durables import DurableTerms
from postroad.broker.outgoing_queue import is_remote_interest
from postroad.broker.replays import ReplayStart
from postroad.store import UNLIMITED, RetainedTopic, StoreSettings
from tests.broker.changing_network import ChangingMob, acknowledged, formers
from tests.broker.durable_network import KINDS, TOPIC, DurableNetwork
from tests.broker.slow_network import LyingNetwork, SlowMob, put_of

SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(24)
HOUR = 3_600_000


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


class SlowChangingMob(ChangingMob, SlowMob):
    """The same with brokers that match one message in a turn."""


@pytest.mark.parametrize("seed", range(6))
def test_mob_gets_exactly_what_it_wanted_if_brokers_match_one_message_in_a_turn(seed: int) -> None:
    SlowChangingMob(seed).play(seed)


@pytest.mark.parametrize("crashes", [False, True])
def test_what_others_accepted_for_the_former_selector_comes_and_what_only_the_new_one_wants_does_not(
    crashes: bool,
) -> None:
    network = DurableNetwork()
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.crash(2)
    network.send(1, 6)
    network.send(3, 6)
    network.settle(1)
    # No route: the broker is back, and the others do not hear of the change.
    network.cut = {frozenset((1, 2)), frozenset((2, 3))}
    network.start(2)
    network.change("reader", 2)
    network.settle(1)
    if crashes:
        for number in (1, 2, 3):
            network.commit(number)
            network.crash(number)
            network.start(number)
        network.join_reader("reader")
    network.send(1, 3)
    network.settle(1)
    network.cut.clear()
    network.settle(5)
    network.send(3, 3)
    got = acknowledged(network, "reader")
    assert sorted(got) == [body for body in range(1, 16) if body % KINDS == 1] + [17]
    assert network.faults == []
    assert len(formers(network, 2)) == 0
    assert network.left() == {}


def test_subscription_that_is_new_gets_nothing_that_others_accepted_before_they_knew_of_it() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("old", 2)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    network.join_reader("new", 2)
    network.settle(12)
    network.send(1, 3)
    network.cut.clear()
    assert acknowledged(network, "old") == [1, 2, 3, 4, 5, 6]
    network.send(1, 1)
    assert acknowledged(network, "new") == [7]


def test_topic_that_was_changed_counts_for_what_was_accepted_before() -> None:
    network = DurableNetwork(count=2)
    reader = network.join_reader("reader", 2)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    network.part(reader)
    core = network.brokers[2].core
    assert core.durables is not None
    reader.session = core.attached("reader")
    core.durables.subscribe(reader.session, "s", ("c", "reader"), "b.>", "", AckMode.INDIVIDUAL, network.now, Outbox())
    network.cut.clear()
    assert acknowledged(network, "reader") == [1, 2, 3]


def test_messages_accepted_after_the_last_change_are_not_matched_against_former_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = DurableNetwork(count=3)
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(3)
    network.change("reader", 1)
    network.settle(1)
    former = formers(network, 2)
    # Broker 3 may have something of the state before.
    assert len(former) == 1
    monkeypatch.setattr(former, "_index", None)
    network.send(1, 3)
    assert acknowledged(network, "reader") == [1]


def test_versions_that_nobody_can_ask_for_are_not_kept_however_often_a_client_changes() -> None:
    network = DurableNetwork(count=3)
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(3)
    # Until it counts as gone, it may hear of changes.
    network.settle(12)
    for turn in range(3 * former_versions.MAX_FORMERS):
        network.change("reader", turn % KINDS)
        network.settle(1)
    # Of the state that broker 3 knows; it has not heard of any other.
    assert len(formers(network, 2)) == 1
    assert formers(network, 2).dropped == 0
    network.start(3)
    network.settle(15)
    assert len(formers(network, 2)) == 0


def full_of_changes(changes: int, others: int = 0) -> DurableNetwork:
    """Broker 1 has accepted a message that was wanted under each of several states, and put none of them.

    Message n has kind n. So the subscription wants 1, then 2, and so on.
    """
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    for number in range(others):
        network.join_reader(f"other {number}", 2)
    network.settle(3)
    store = network.brokers[2].core.store
    assert store is not None
    store.log.room.disk = 0
    for turn in range(changes):
        network.send(1, 1)
        network.settle(2)
        network.change("reader", (turn + 2) % KINDS)
        network.settle(2)
    store.log.room.disk = UNLIMITED
    return network


def test_every_message_of_many_states_comes() -> None:
    network = full_of_changes(former_versions.MAX_FORMERS)
    assert len(formers(network, 2)) == former_versions.MAX_FORMERS
    assert acknowledged(network, "reader") == list(range(1, former_versions.MAX_FORMERS + 1))
    assert network.faults == []
    assert len(formers(network, 2)) == 0


def test_version_after_one_that_is_dropped_counts_for_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_versions, "MAX_FORMERS", 2)
    network = full_of_changes(4)
    # Of the four versions that wanted 1, 2, 3 and 4, the last two are kept.
    assert formers(network, 2).dropped == 2
    assert network.brokers[2].core.statistics().former_versions_dropped == 2
    assert acknowledged(network, "reader") == [3, 4]


def test_version_that_there_is_no_room_for_is_replaced_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_versions, "FORMER_SHARE", 2**40)
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.join_reader("all", 2)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    network.change("reader", 2)
    network.cut.clear()
    assert formers(network, 2).dropped == 1
    assert acknowledged(network, "all") == [1, 2, 3]
    # It did not want this when it was accepted, but there is no telling any more.
    assert acknowledged(network, "reader") == [2]


def test_version_that_a_broker_has_stored_outlives_those_that_it_may_not_have_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(former_versions, "MAX_FORMERS", 3)
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 4)
    # Nobody has noticed yet that there is no route.
    for turn in range(8):
        network.change("reader", turn % KINDS)
        network.settle(1)
    assert formers(network, 2).dropped > 0
    network.settle(12)
    network.cut.clear()
    assert acknowledged(network, "reader") == [1, 4]


def test_messages_of_too_many_states_come_to_all_who_wanted_them_in_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepted_states, "MAX_SPANS", 4)
    network = full_of_changes(12, others=1)
    # Each of them once, even if two versions of it want one.
    assert acknowledged(network, "reader") == list(range(1, 13))
    assert not any("and is not marked" in each for each in network.faults)


def test_stopped_subscription_gets_what_others_accepted_before_it_stopped_and_nothing_of_the_time_between() -> None:
    network = DurableNetwork(count=2)
    reader = network.join_reader("reader", 2)
    network.join_reader("other", 2)
    network.settle(3)
    core = network.brokers[2].core
    assert core.store is not None
    assert core.durables is not None
    core.store.log.room.disk = 0
    network.send(1, 2)
    subscription = core.durables.find("c", "reader")
    assert subscription is not None
    core.durables.stop([subscription], network.now)
    network.settle(2)
    network.send(1, 2)
    network.part(reader)
    network.join_reader("reader")
    network.settle(2)
    network.send(1, 2)
    core.store.log.room.disk = UNLIMITED
    assert acknowledged(network, "reader") == [1, 2, 5, 6]
    assert acknowledged(network, "other") == list(range(1, 7))


def test_subscription_that_begins_in_the_past_and_changes_has_no_gap_and_nothing_twice() -> None:
    store = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, retain=[RetainedTopic(topic=TOPIC, age="7d")])
    network = DurableNetwork(count=2, store=store)
    network.settle(3)
    network.send(1, 3)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    # Accepted before the subscription is there, and put after the end of its history.
    network.send(1, 3)
    core, reader = network.brokers[2].core, network.join_reader("reader", 2)
    network.part(reader)
    network.carry_out(2, core.delete_durable(core.attached("reader"), ("c", "reader"), network.now))
    assert core.durables is not None
    reader.session = core.attached("reader")
    name, replay = ("c", "reader"), ReplayStart()
    subscription = core.durables.subscribe(
        reader.session, "s", name, TOPIC, "kind = 1", AckMode.INDIVIDUAL, network.now, Outbox(), replay
    )
    network.of_number[2, subscription.number] = reader
    network.settle(2)
    reader.versions = [(0, 1)]
    network.change("reader", 2)
    network.cut.clear()
    network.settle(5)
    network.send(1, 3)
    assert acknowledged(network, "reader") == [1, 4, 8]


def without_states(network: DurableNetwork, number: int) -> None:
    """Let a broker's store be as an earlier version wrote it."""

    class OldTerms(msgspec.Struct, kw_only=True):
        broker: int
        interest: list[bytes]

    log = network.brokers[number].log
    (cursor,) = [each for each in log.cursors.values() if is_remote_interest(each.terms)]
    log.change_cursor(cursor, msgspec.msgpack.encode(msgspec.msgpack.decode(cursor.terms, type=OldTerms)))


def test_messages_in_a_store_of_an_earlier_version_come_to_all_who_wanted_them_at_any_time() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    without_states(network, 1)
    network.commit(1)
    network.crash(1)
    network.start(1)
    network.change("reader", 2)
    network.settle(12)
    network.cut.clear()
    network.settle(3)
    network.send(1, 3)
    # Broker 1 stored what the subscription wanted; the other messages of the first three never waited for it.
    assert acknowledged(network, "reader") == [1, 5]
    assert len(formers(network, 2)) == 0


def test_broker_of_an_earlier_version_says_no_states_and_gets_and_puts_all_the_same() -> None:
    # Further fields are ignored there, and those that it leaves out have a meaning here.
    put = decode_item(msgspec.msgpack.encode([1, 5, 0, "", "", False, b"rows"]))
    assert isinstance(put, Put)
    assert (put.oldest, put.newest) == (0, 2**62)
    assert decode_item(msgspec.msgpack.encode([12, 5])) == Informed(5, 0)
    assert decode_item(msgspec.msgpack.encode([12, 5, 3, "later"])) == Informed(5, 3)


def test_durable_subscription_of_an_earlier_version_gets_what_others_have() -> None:
    terms = msgspec.msgpack.encode({"client": "c", "name": "n", "principal": "p", "topic": "a"})
    restored = msgspec.msgpack.decode(terms, type=DurableTerms)
    assert (restored.since, restored.formers) == (0, ())


def test_put_of_states_in_the_wrong_order_ends_the_channel() -> None:
    network = LyingNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    honest = put_of(network, 900)
    lie = Put(901, 0, "", "", False, honest.rows, 9, 8)
    (fault,) = network.faults_of(lie)
    assert "of the states from 9 to 8" in fault


def test_broker_that_says_it_has_nothing_of_states_that_it_was_never_told_is_not_believed() -> None:
    network = LyingNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    network.brokers[1].peers.want(2, network.now)
    network.settle(1)
    standing = network.brokers[2].peers.standing
    assert standing is not None
    said = standing.number
    assert network.faults_of(Informed(2**62, 2**62)) == []
    network.change("reader", 1)
    assert standing.may_come(said, said + 1)


def test_state_is_said_when_it_is_safe() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    before = network.known_state(1, 2)
    network.change("reader", 1)
    for committing in [{1}] * 20 + [{1, 2}] * 5:
        network.tick()
        while network.is_busy:
            network.pass_packet()
        for number in committing:
            network.commit(number)
        if 2 not in committing:
            assert network.known_state(1, 2) == before
    assert network.known_state(1, 2) > before


def test_state_of_which_only_a_part_is_known_does_not_count_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_interest, "PART_ROWS", 1)
    network = DurableNetwork(count=2)
    for name in ("one", "other"):
        network.join_reader(name, 2, kind=0)
    network.settle(3)
    network.change("one", 1)
    network.change("other", 2)
    # One part in a tick: what the first of them wants is added, and what both wanted is not removed.
    network.tick()
    network.commit(2)
    while network.is_busy:
        network.pass_packet()
    network.cut.add(frozenset((1, 2)))
    network.send(1, 3)
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert queue.messages == 2
    network.cut.clear()
    assert acknowledged(network, "one") == [3]
    assert acknowledged(network, "other") == [3]


def test_state_that_a_crash_of_another_broker_loses_was_not_said_to_be_stored() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 2, kind=1)
    network.settle(3)
    before = network.known_state(1, 2)
    network.change("reader", 2)
    # Broker 1 learns of it, and writes nothing.
    for _ in range(5):
        network.tick()
        network.commit(2)
        while network.is_busy:
            network.pass_packet()
    assert network.known_state(1, 2) > before
    network.cut.add(frozenset((1, 2)))
    network.crash(1)
    network.start(1)
    assert network.known_state(1, 2) == before
    network.send(1, 3)
    network.settle(12)
    network.cut.clear()
    assert acknowledged(network, "reader") == [1]


def test_numbers_of_states_rise_though_the_subscription_that_made_the_last_one_is_gone() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("stays", 2, kind=0)
    network.join_reader("goes", 2, kind=1)
    network.settle(3)
    reader = network.readers.pop("goes")
    network.part(reader)
    core = network.brokers[2].core
    network.carry_out(2, core.delete_durable(core.attached("reader"), ("c", "goes"), network.now))
    network.settle(3)
    known = network.known_state(1, 2)
    network.crash(2)
    network.start(2)
    standing = network.brokers[2].peers.standing
    assert standing is not None
    assert standing.number >= known
    assert standing.change() > known
