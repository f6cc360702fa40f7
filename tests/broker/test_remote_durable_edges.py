"""Durable subscriptions of other brokers, at the edges: puts in turns, histories, limits, and brokers that lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from postroad.broker import AckMode, Outbox, receptions, remote_durables
from postroad.broker.channel_items import Forget, StandingPart
from postroad.broker.replays import ReplayStart
from postroad.matching.encoding import encode_exact
from postroad.messages import MessageId
from postroad.store import UNLIMITED, RetainedTopic, StoreSettings, stored_bytes
from postroad.tracking import Verdict
from tests.broker.durable_network import KINDS, TOPIC, DurableNetwork
from tests.broker.queue_records import Recorders, traced
from tests.broker.slow_network import LyingNetwork, SlowMob, SlowNetwork, put_of

if TYPE_CHECKING:
    from postroad.broker import Subscription
    from postroad.broker.channel_items import Item


@pytest.mark.parametrize("seed", range(6))
def test_mob_misses_nothing_and_gets_nothing_twice_if_brokers_match_one_message_in_a_turn(seed: int) -> None:
    SlowMob(seed).play(seed)


def test_store_keeps_nothing_of_a_put_whose_channel_was_lost_while_it_was_matched() -> None:
    network = SlowNetwork(count=2)
    reader = network.join_reader("reader", 2)
    network.settle(3)
    network.send(1, 5)
    network.commit(1)
    while network.is_busy:
        network.pass_packet()
    # The first of the five is stored when the other broker is gone.
    network.commit(2)
    network.crash(1)
    network.start(1)
    network.turns = 100
    network.settle(5)
    for body in list(reader.held):
        network.acknowledge(reader, body)
    network.settle(5)
    assert reader.first == [1, 2, 3, 4, 5]
    assert network.left() == {}


class PlainReaders(DurableNetwork):
    """A subscriber that is not durable, who begins with all that is kept."""

    def __init__(self, **others: Any) -> None:
        self.got: list[int] = []
        super().__init__(**others)

    def begin(self, number: int) -> None:
        core = self.brokers[number].core
        core.subscribe(core.attached("reader"), "s", TOPIC, now=self.now, replay=ReplayStart())

    def _note(self, subscription: Subscription, message: Any) -> None:
        self.got.append(int(message.body))


def test_subscriber_who_begins_in_the_past_misses_nothing_that_enters_at_other_brokers_meanwhile() -> None:
    store = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, retain=[RetainedTopic(topic=TOPIC, age="7d")])
    network = PlainReaders(count=2, store=store)
    network.settle(3)
    network.send(1, 3)
    network.settle(3)
    # Accepted before the subscription is there, and under way while it is made.
    network.send(1, 2)
    network.begin(2)
    network.send(1, 2)
    network.settle(5)
    network.send(1, 2)
    network.settle(5)
    assert network.got == list(range(1, 10))


@pytest.mark.parametrize("lie", ["twice", "forgotten"])
def test_broker_that_numbers_its_puts_as_no_honest_one_does_loses_its_channel(lie: str) -> None:
    network = LyingNetwork(count=2)
    network.join_reader("reader", 2)
    network.settle(3)
    assert network.faults_of(put_of(network, 900)) == []
    last: Item = put_of(network, 900) if lie == "twice" else Forget(900)
    assert len(network.faults_of(put_of(network, 901), last)) == 1
    network.turns = 100
    network.settle(10)
    # It begins again, and its messages come.
    network.send(1, 2)
    network.settle(10)
    assert network.missing() == {}


def test_row_that_an_index_has_no_room_for_is_not_forgotten_when_match_all_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_durables, "MAX_STANDING_ROWS", 2)
    network = DurableNetwork(count=2)
    core = network.brokers[2].core
    session = core.attached("reader")
    assert core.durables is not None
    core.durables.subscribe(session, "w", ("c", "wide"), ">", "", AckMode.AUTO, network.now, Outbox())
    network.settle(3)
    for kind in range(KINDS):
        network.join_reader(f"kind {kind}", 2, kind)
    network.settle(3)
    network.carry_out(2, core.unsubscribe(session, "w", network.now, deletes=True))
    network.settle(3)
    network.send(1, 6)
    network.settle(3)
    assert network.missing() == {}
    # With fewer rows there is room for each, and nothing more is sent than is wanted.
    network.carry_out(2, core.delete_durable(core.attached("reader"), ("c", "kind 2"), network.now))
    network.settle(3)
    del network.readers["kind 2"]
    network.send(1, 6)
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert queue.messages == 4


def test_client_that_changes_its_selector_all_the_time_delays_nobody_s_subscription() -> None:
    network = DurableNetwork(count=2)
    reader = network.join_reader("fickle", 2, 0)
    network.settle(3)
    for turn in range(100):
        network.part(reader)
        reader.kind = turn % KINDS
        network.join_reader("fickle")
        step(network)
    network.join_reader("other", 2)
    for _ in range(10):
        step(network)
    assert network.uninformed() == {}


def step(network: DurableNetwork) -> None:
    """A tenth of a second."""
    while network.is_busy:
        network.pass_packet()
    for number in list(network.brokers):
        network.commit(number)
    network.tick()


def test_confirmation_for_an_earlier_process_is_none_for_this_one() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("first", 2, 0)
    network.settle(3)
    network.join_reader("second", 2, 1)
    for _ in range(3):
        # The other broker knows of both, and has not stored it.
        network.tick()
        while network.is_busy:
            network.pass_packet()
        network.commit(2)
    assert network.uninformed() == {2: [1]}
    network.crash(2)
    network.start(2)
    for _ in range(100):
        network.tick()
        while network.is_busy:
            network.pass_packet()
        if network.brokers[1].peers.is_open(2) and network.brokers[2].peers.is_open(1):
            break
    network.join_reader("third", 2, 2)
    network.carry_out(2, network.brokers[2].peers.tick(network.now))
    network.wires.clear()
    network.commit(1)
    while network.is_busy:
        network.pass_packet()
    assert network.uninformed() == {2: [1]}


def test_broker_that_says_a_whole_interest_without_end_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_durables, "MAX_STANDING_ROWS", 10)
    network = LyingNetwork(count=2)
    network.settle(3)
    network.brokers[1].peers.want(2, network.now)
    network.settle(3)
    for part in range(20):
        rows = [(f"t{part}.{each}", ()) for each in range(5)]
        network.faults_of(StandingPart(1, True, part == 0, False, encode_exact(rows), b""))
    (remote,) = network.brokers[2].peers.remote_durables._of.values()
    assert remote.heard is not None
    assert len(remote.heard) <= 20
    # It gets all then, and says the end as any other.
    network.faults_of(StandingPart(1, True, False, True, encode_exact([("last", ())]), b""))
    network.send(2, 2)
    (queue,) = network.brokers[2].peers.outgoing.for_durables()
    assert queue.messages == 2


def test_put_that_was_refused_does_not_overtake_one_that_waits_to_be_matched() -> None:
    store = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, subscription_bytes=10_000)
    network = SlowNetwork(count=2, store=store)
    reader = network.join_reader("reader", 2)
    network.settle(3)
    entry, other = network.brokers[1], network.brokers[2]
    assert other.core.store is not None
    for count in (1, 2, 1, 1):
        # The first of the two is matched at once; there is no turn for more. The last one is refused.
        other.log.room.disk = 0 if network.entered.get(4) else UNLIMITED
        network.send(1, count)
        network.commit(1)
        pass_all(network)
    network.commit(2)
    pass_all(network)
    (queue,) = entry.peers.outgoing.for_durables()
    assert (queue.unconfirmed, queue.messages) == (3, 4)
    network.tick(1_000)
    network.carry_out(1, entry.core.stored(network.now))
    # Meanwhile the subscription has too much, and the message before it is refused as well.
    other.log.room.disk = UNLIMITED
    network.send(2, 1, size=12_000)
    network.commit(2)
    for _ in range(2):
        network.carry_out(2, other.core.proceed(network.now))
    for _ in range(2):
        network.commit(2)
        acknowledge_all(network)
    network.turns = 100
    for _ in range(5):
        network.settle(1)
        acknowledge_all(network)
    assert [body for body in reader.first if network.entered[body] == 1] == [1, 2, 3, 4, 5]


def test_what_a_broker_puts_and_waits_to_be_matched_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receptions, "MAX_UNMATCHED_BYTES", 2_000)
    network = SlowNetwork(count=2)
    reader = network.join_reader("reader", 2)
    network.settle(3)
    # The first one is larger than the bound, and taken; the second half of it waits.
    network.send(1, 2, size=5_000)
    for _ in range(9):
        network.send(1, 2, size=300)
        network.commit(1)
        pass_all(network)
    (reception,) = network.brokers[2].peers.receptions._of.values()
    waits = sum(stored_bytes(each.batch) for each in reception.unmatched)
    assert reception.unmatched_bytes == waits
    assert 5_000 < waits < 5_000 + 1_000
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert "wait to be matched" in queue.trouble
    network.turns = 100
    for _ in range(10):
        network.settle(1)
        acknowledge_all(network)
    assert reader.first == list(range(1, 21))
    assert reception.unmatched_bytes == 0
    assert network.left() == {}


def pass_all(network: DurableNetwork) -> None:
    while network.is_busy:
        network.pass_packet()


def acknowledge_all(network: DurableNetwork) -> None:
    for reader in network.readers.values():
        for body in list(reader.held):
            network.acknowledge(reader, body)


def test_message_that_was_given_up_for_lack_of_room_after_it_had_come_does_not_come_again() -> None:
    store = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, subscription_bytes=1_000, at_limit="drop-oldest")
    network = DurableNetwork(count=2, store=store)
    reader = network.join_reader("reader", 2)
    network.settle(3)
    network.send(1, 1, size=300)
    network.commit(1)
    while network.is_busy:
        network.pass_packet()
    network.commit(2)
    # It is there, and its entry broker does not know it.
    network.wires.clear()
    network.cut.add(frozenset((1, 2)))
    for _ in range(4):
        network.tick(20_000)
        network.commit(1)
        network.commit(2)
        network.wires.clear()
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert (queue.messages, queue.doubtful) == (1, 1)
    for size in (9_000, 1):
        network.send(1, 1, size=size)
        network.commit(1)
    assert queue.messages == 0
    # Given up, and not stored yet as such when the channel opens and the broker dies.
    network.cut.clear()
    for _ in range(20):
        network.tick(1_000)
        while network.is_busy:
            network.pass_packet()
        network.commit(2)
    network.crash(1)
    network.start(1)
    network.settle(5)
    for body in list(reader.held):
        network.acknowledge(reader, body)
    network.settle(5)
    assert network.faults == []
    assert reader.first[0] == 1


def test_long_selectors_of_clients_do_not_break_the_channel() -> None:
    network = DurableNetwork(count=2)
    core = network.brokers[2].core
    assert core.durables is not None
    session = core.attached("reader")
    for number in range(30):
        selector = f"kind = 1 AND name = '{number} {chr(0x20AC) * 30_000}'"
        core.durables.subscribe(session, f"{number}", ("c", f"{number}"), TOPIC, selector, AckMode.AUTO, 0, Outbox())
    network.settle(3)
    network.join_reader("reader", 2, 1)
    network.settle(3)
    assert network.uninformed() == {}
    network.send(1, 6)
    network.settle(3)
    assert network.missing() == {}


def test_full_subscription_is_asked_about_one_message_at_a_time() -> None:
    store = StoreSettings(segment_bytes=8_192, cache_bytes=16_000, subscription_bytes=10_000)
    network = DurableNetwork(count=2, store=store)
    reader = network.join_reader("reader", 2)
    network.part(reader)
    network.settle(3)
    network.send(2, 1, size=12_000)
    network.settle(1)
    network.send(1, 20)
    network.settle(3)
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert queue.trouble.startswith("the durable subscription 'reader'")
    network.cut.add(frozenset((1, 2)))
    network.tick(1_000)
    network.carry_out(1, network.brokers[1].core.stored(network.now))
    assert (queue.unconfirmed, queue.messages) == (1, 20)
    network.cut.clear()
    network.join_reader("reader")
    for _ in range(5):
        network.settle(1)
        acknowledge_all(network)
    assert network.missing() == {}
    assert network.disorder() == []


class TracedNetwork(SlowNetwork):
    """Two brokers that keep records."""

    def __init__(self) -> None:
        self.recorders = Recorders()
        super().__init__(count=2, recorder=self.recorders)

    def verdict(self, body: int) -> Verdict:
        return traced(self.recorders, MessageId.of(*self.ids[body]), self.now).verdict


@pytest.mark.parametrize("dies", [False, True])
def test_trace_says_of_a_message_that_waits_to_be_matched_that_it_waits(dies: bool) -> None:
    network = TracedNetwork()
    network.join_reader("reader", 2)
    network.settle(3)
    for _ in range(2):
        network.send(1, 2)
        network.commit(1)
        pass_all(network)
    assert [network.verdict(body) for body in (1, 2, 3, 4)] == [Verdict.WAITING] * 4
    if dies:
        network.crash(2)
        network.start(2)
        network.settle(3)
        network.join_reader("reader")
    network.turns = 100
    network.settle(3)
    assert [network.verdict(body) for body in (1, 2, 3, 4)] == [Verdict.DELIVERED] * 4
    acknowledge_all(network)
    network.settle(3)
    assert [network.verdict(body) for body in (1, 2, 3, 4)] == [Verdict.ACKNOWLEDGED] * 4


def start_with(network: DurableNetwork, number: int, listed: set[int]) -> None:
    """A broker is started anew with another list of the brokers of its network."""
    network.crash(number, power=False)
    network.listed = frozenset(listed)
    network.start(number)
    network.settle(1)


def test_start_without_a_broker_in_the_list_gives_up_what_waits_for_it_and_its_return_begins_anew() -> None:
    recorders = Recorders()
    network = DurableNetwork(count=3, recorder=recorders)
    network.join_reader("reader", 2)
    network.settle(3)
    network.crash(2)
    network.send(1, 3)
    network.settle(1)
    (queue,) = network.brokers[1].peers.outgoing.for_durables()
    assert queue.messages == 3
    start_with(network, 1, {1, 3})
    assert network.brokers[1].peers.outgoing.for_durables() == []
    assert network.brokers[1].core.statistics().shed_stored == 3
    network.send(1, 3)
    network.settle(1)
    start_with(network, 1, {1, 2, 3})
    # What it wants is not known here any more, until it says so again.
    network.send(1, 3)
    network.start(2)
    network.join_reader("reader")
    network.settle(12)
    network.send(1, 3)
    network.settle(3)
    assert network.readers["reader"].first == [10, 11, 12]
    assert not network.faults


def test_what_a_broker_that_is_listed_again_has_kept_comes() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 1)
    network.settle(3)
    network.cut = {frozenset((1, 2))}
    network.send(2, 3)
    network.settle(1)
    start_with(network, 1, {1, 3})
    start_with(network, 1, {1, 2, 3})
    network.cut.clear()
    network.join_reader("reader")
    network.settle(12)
    assert network.readers["reader"].first == [1, 2, 3]
    assert not network.faults


def test_broker_that_is_listed_again_puts_again_what_was_not_confirmed_to_it() -> None:
    network = DurableNetwork(count=2)
    network.join_reader("reader", 1)
    network.settle(3)
    network.send(2, 3)
    network.commit(2)
    while network.wires:
        network.pass_packet()
    # Stored and acknowledged here, and broker 2 does not hear of it.
    network.commit(1)
    network.wires.clear()
    network.cut = {frozenset((1, 2))}
    for body in (1, 2, 3):
        network.acknowledge(network.readers["reader"], body)
    network.settle(1)
    start_with(network, 1, {1, 3})
    start_with(network, 1, {1, 2, 3})
    network.cut.clear()
    network.join_reader("reader")
    network.settle(12)
    assert [fault for fault in network.faults if "is not marked" in fault] == [
        f"{body} came to reader again, and is not marked" for body in (1, 2, 3)
    ]
