"""What waits at a broker for a queue of another one: an operator gives it up, and everybody concerned is told."""

from __future__ import annotations

import os

import pytest

from postroad.broker import BrokerError, QueueSettings, outgoing_queues, queue_quota
from postroad.messages import Batch, Draft, MessageId
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import StoreSettings
from postroad.tracking import Verdict
from tests.broker.queue_network import QueueMob, QueueNetwork
from tests.broker.queue_records import Recorders, traced

SEEDS = range(60) if os.environ.get("POSTROAD_THOROUGH") else range(3)


def test_operator_purges_what_waits_for_a_home_that_is_away_and_later_messages_arrive() -> None:
    network = QueueNetwork(count=2)
    network.crash(1)
    network.send(2, 5)
    network.settle(1)
    assert network.purge(2) == 5
    network.send(2, 2)
    network.settle(1)
    (queue,) = network.brokers[2].peers.outgoing.listed()
    assert (queue.messages, queue.cursor.rows, queue.holder.shed) == (2, 2, 5)
    network.start(1)
    network.settle(5)
    reader = network.consume(1)
    network.settle(1)
    assert list(reader.held) == [6, 7]


def test_home_whose_store_is_full_takes_nothing_and_all_of_it_waits_where_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 8_000)
    monkeypatch.setattr("postroad.broker.stored_queues.PUT_RESERVE_BYTES", 4_000)
    network = QueueNetwork(count=2, store=StoreSettings(max_bytes=60_000, segment_bytes=4_096))
    while not network.send(1, size=1_000).unstorable:
        network.commit(1)
    full = len(network.confirmed)
    network.send(2, 5)
    network.settle(5)
    (queue,) = network.brokers[2].peers.outgoing.listed()
    assert queue.messages == 5
    assert "the store is full" in queue.trouble
    reader = network.consume(1)
    got: list[int] = []
    for _ in range(full):
        network.settle(1)
        for body in list(reader.held):
            got.append(body)
            network.answer(reader, body)
    assert got == sorted(network.confirmed)
    assert len(got) == full + 5
    assert network.brokers[1].core.statistics().shed_stored == 0


def test_session_that_waits_for_a_purged_message_is_told_so() -> None:
    network = QueueNetwork(count=2, settings=QueueSettings(when_home_is_down="refuse"))
    network.crash(1)
    network.send(2)
    told: list[str] = []
    waits = network.brokers[2].writer.confirmations
    assert waits is not None
    waits.when_done(told.append)
    network.purge(2)
    assert told == ["what was sent to the queue 'work' was purged by carla"]


@pytest.mark.parametrize("dies", [False, True])
def test_purge_of_messages_that_the_home_may_have_doubles_nothing(dies: bool) -> None:
    network = QueueNetwork(count=2)
    network.send(2)
    network.settle(2)
    network.send(2, 3)
    network.commit(2)
    while network.wires:
        network.pass_packet()
    # The home has stored them, and its word that it has is lost.
    network.commit(1)
    network.wires.clear()
    network.cut.add(frozenset((1, 2)))
    network.settle(12)
    assert network.purge(2) == 3
    if dies:
        # Before anything of the purge is on disk.
        network.crash(2)
        network.start(2)
    network.cut.clear()
    network.settle(15)
    reader = network.consume(1)
    for _ in range(10):
        network.settle(1)
        for body in list(reader.held):
            network.answer(reader, body)
    assert network.faults == []
    assert network.handed == {1, 2, 3, 4}
    for broker in network.brokers.values():
        assert {each.number: each.rows for each in broker.log.cursors.values() if each.rows} == {}


def test_trace_of_a_purged_message_says_by_whom_and_that_it_never_left() -> None:
    recorders = Recorders()
    network = QueueNetwork(count=2, recorder=recorders)
    network.crash(1)
    network.send(2)
    network.settle(1)
    network.purge(2)
    network.settle(1)
    message = MessageId.of(*network.ids[1])
    journey = traced(recorders, message, network.now)
    assert (journey.verdict, journey.certainty) == (Verdict.DROPPED, 1.0)
    assert [(broker, drop.reason) for broker, drop in journey.dropped] == [(2, "held"), (2, "purged by carla")]


class PurgingMob(QueueMob):
    """An operator purges now and then, wherever something waits for the home of the queue."""

    def __init__(self, seed: int) -> None:
        self.recorders = Recorders()
        super().__init__(seed, recorder=self.recorders)

    def _tick(self) -> None:
        super()._tick()
        number = self._any()
        if number and self.random.random() < 0.4 and self.brokers[number].peers.outgoing.listed():
            self.purge(number)

    def was_purged(self, body: int) -> bool:
        message = MessageId.of(*self.ids[body])
        drops = [each for one in self.recorders.values() for each in one.findings(message, self.now).dropped]
        return any(each.reason.startswith("purged by carla") for each in drops)


def test_mob_whose_messages_are_purged_loses_no_others_and_gets_nothing_twice() -> None:
    purged = 0
    for seed in SEEDS:
        mob = PurgingMob(seed)
        mob.loss = [0.0, 0.2][seed % 2]
        for _ in range(400):
            mob.act()
        mob.end()
        assert mob.faults == [], f"seed {seed}"
        assert [body for body in mob.confirmed - mob.handed if not mob.was_purged(body)] == [], f"seed {seed}"
        left = [each.rows for broker in mob.brokers.values() for each in broker.log.cursors.values() if each.rows]
        assert left == [], f"seed {seed}"
        purged += sum(map(mob.was_purged, mob.ids))
    assert purged > 10


def test_empty_queue_that_a_batch_is_for_does_not_make_room_for_another_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_queues, "MAX_OUTGOING", 1)
    network = QueueNetwork(count=2)
    queues = network.brokers[1].core.queues
    assert queues is not None

    def send(*names: str) -> None:
        batch = Batch.build([Draft(name, {}, (), b"1") for name in names])
        batch.envelopes[:, FLAGS] |= QUEUED
        broker = network.brokers[2]
        network.carry_out(2, broker.core.receive(batch, broker.writer, network.now, queued=True))
        network.settle(3)

    send("one")
    with pytest.raises(BrokerError, match="the limit"):
        send("one", "other")
    send("other")
    send("one")
    assert {each.name: each.cursor.rows for each in queues.listed()} == {"one": 2, "other": 1}


def test_one_login_leaves_places_for_the_queues_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_queues, "MAX_OUTGOING_PER_PRINCIPAL", 2)
    network = QueueNetwork(count=2)
    network.crash(1)
    outgoing = network.brokers[2].peers.outgoing
    core = network.brokers[2].core

    def send(login: str, name: str) -> None:
        batch = Batch.build([Draft(name, {}, (), b"1")])
        batch.envelopes[:, FLAGS] |= QUEUED
        network.carry_out(2, core.receive(batch, core.attached(login), network.now, queued=True))

    send("one", "first")
    send("one", "second")
    with pytest.raises(BrokerError, match="the limit"):
        send("one", "third")
    send("one", "first")
    send("other", "third")
    assert {each.name: each.principal for each in outgoing.listed()} == {
        "first": "one",
        "second": "one",
        "third": "other",
    }


def test_messages_that_come_home_wait_while_no_queue_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    network = QueueNetwork(count=2)
    network.crash(1)
    network.send(2, 3)
    network.settle(1)
    broker = network.brokers[2]
    (queue,) = broker.peers.outgoing.listed()
    # A new plan makes this broker the home; at first it has as many queues as it may.
    broker.core.homes.home, queue.home = (lambda _: 2), 2
    monkeypatch.setattr(queue_quota, "MAX_QUEUES", 0)
    broker.peers.outgoing.pump(queue, network.now)
    assert (queue.cursor.rows, "the limit" in queue.trouble) == (3, True)
    monkeypatch.undo()
    network.settle(2)
    assert broker.core.queues is not None
    assert [(each.name, each.cursor.rows) for each in broker.core.queues.listed()] == [(queue.name, 3)]
    assert (queue.cursor.rows, queue.trouble) == (0, "")
