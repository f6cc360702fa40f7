"""Queues used from other brokers than their home, without sockets: nothing confirmed is lost, nothing is doubled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from postroad.broker import AckMode, BrokerError, ConsumerTerms, Limits, QueueSettings
from postroad.messages import MessageId
from postroad.store import StoreSettings
from postroad.tracking import Verdict
from tests.broker.queue_network import QueueMob, QueueNetwork
from tests.broker.queue_records import Recorders, traced

if TYPE_CHECKING:
    from postroad.broker import Outbox, Subscription
    from postroad.messages import Message

SEEDS = range(300) if os.environ.get("POSTROAD_THOROUGH") else range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_mob_at_all_brokers_loses_nothing_and_gets_nothing_twice_through_crashes_and_cuts(seed: int) -> None:
    mob = QueueMob(seed)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(400):
        mob.act()
    mob.end()
    assert mob.faults == []
    assert mob.confirmed - mob.handed == set(), "confirmed, and handed to nobody"
    assert mob.confirmed
    assert mob.confirmed <= mob.acknowledged
    for broker in mob.brokers.values():
        assert {each.number: each.rows for each in broker.log.cursors.values() if each.rows} == {}


def test_message_sent_elsewhere_is_confirmed_by_its_own_broker_and_consumed_at_the_home() -> None:
    network = QueueNetwork()
    reader = network.consume(1)
    network.send(2, 3)
    network.settle(1)
    assert sorted(reader.held) == [1, 2, 3]
    assert network.confirmed == {1, 2, 3}


def test_consumer_at_another_broker_gets_what_was_sent_at_a_third_and_acknowledges_it_for_good() -> None:
    network = QueueNetwork()
    reader = network.consume(3)
    network.send(2, 3)
    network.settle(1)
    assert sorted(reader.held) == [1, 2, 3]
    for body in (1, 2, 3):
        network.answer(reader, body)
    network.settle(1)
    assert network.settled == {1, 2, 3}
    network.crash(1)
    network.start(1)
    network.settle(20)
    assert not reader.held
    assert not network.faults


def test_messages_are_kept_while_the_home_is_down_and_come_in_order_when_it_returns() -> None:
    network = QueueNetwork()
    network.crash(1)
    for _ in range(5):
        network.send(2, 2)
        network.settle(4)
    assert network.confirmed == set(range(1, 11))
    assert network.brokers[2].core.statistics().outgoing_messages_now == 10
    network.start(1)
    network.settle(5)
    assert network.brokers[2].core.statistics().outgoing_messages_now == 0
    reader = network.consume(1, prefetch=50)
    network.settle(1)
    assert list(reader.held) == list(range(1, 11))


def test_sender_is_told_while_the_home_is_down_if_that_is_configured() -> None:
    network = QueueNetwork(settings=QueueSettings(when_home_is_down="refuse"))
    network.send(2)
    network.settle(1)
    told: list[str] = []
    network.crash(1)
    network.send(2)
    waits = network.brokers[2].writer.confirmations
    assert waits is not None
    waits.when_done(told.append)
    network.settle(25)
    assert told == ["another broker did not confirm it within 10 s"]
    assert "broker 1 of this network, which cannot be reached" in network.send(2).unstorable
    network.start(1)
    network.settle(5)
    network.send(2)
    waits.when_done(told.append)
    assert len(told) == 1
    network.settle(1)
    assert told[1:] == [""]


def test_lost_broker_is_a_lost_consumer_and_its_messages_go_to_another_with_a_count() -> None:
    network = QueueNetwork()
    network.send(1, 2)
    network.commit(1)
    lost = network.consume(3)
    network.settle(1)
    assert sorted(lost.held) == [1, 2]
    network.crash(3)
    reader = network.consume(2)
    network.settle(5)
    assert not reader.held
    network.settle(10)
    assert sorted(reader.held) == [1, 2]
    assert not network.faults


def test_consumer_with_unanswered_messages_is_closed_when_the_home_is_lost_and_one_without_consumes_on() -> None:
    network = QueueNetwork()
    busy = network.consume(2)
    network.send(1)
    network.settle(1)
    assert busy.held
    idle = network.consume(3)
    network.settle(1)
    network.crash(1)
    network.start(1)
    network.settle(15)
    assert busy not in network.clients.values()
    assert "broker 1, which has the queue, is gone or out of reach" in network.told[0]
    assert list(idle.held) == [1]


def test_automatic_acknowledgement_at_another_broker_is_one_when_the_message_is_written_to_the_socket() -> None:
    network = QueueNetwork()
    network.consume(2, AckMode.AUTO)
    network.send(3, 20)
    network.settle(2)
    assert network.handed == set(range(1, 21))
    queues = network.brokers[1].core.queues
    assert queues is not None
    (queue,) = queues.listed()
    assert queue.cursor.rows == 0


def test_refused_message_of_a_remote_consumer_comes_again_with_its_count() -> None:
    network = QueueNetwork()
    reader = network.consume(2)
    network.send(3)
    network.settle(1)
    network.answer(reader, 1, positive=False)
    network.settle(1)
    assert list(reader.held) == [1]
    assert not network.faults


def test_full_queue_leaves_messages_at_their_own_broker_in_order_until_there_is_room() -> None:
    network = QueueNetwork(store=StoreSettings(subscription_bytes=5_000))
    for _ in range(30):
        network.send(2, 2, size=300)
        network.settle(1)
    queues = network.brokers[1].core.queues
    assert queues is not None
    (queue,) = queues.listed()
    (outgoing,) = network.brokers[2].peers.outgoing.listed()
    assert queue.cursor.bytes < 10_000
    assert "full" in outgoing.trouble
    reader = network.consume(1)
    got: list[int] = []
    for _ in range(60):
        network.settle(1)
        for body in list(reader.held):
            got.append(body)
            network.answer(reader, body)
    # Those that it was told to keep back were never taken.
    assert got == sorted(network.confirmed)
    assert len(got) > 30
    assert network.brokers[1].core.statistics().shed_stored == 0


class LivingMob(QueueMob):
    """No broker dies: their records are complete."""

    def __init__(self, seed: int, recorder: Recorders) -> None:
        super().__init__(seed, recorder=recorder)
        self.seen = set[MessageId]()

    def _die(self) -> None:
        pass

    def _commit(self) -> None:
        if number := self._any():
            self.commit(number)

    def _note(self, subscription: Subscription, message: Message) -> None:
        self.seen.add(message.id)
        super()._note(subscription, message)


@pytest.mark.parametrize("seed", SEEDS)
def test_trace_of_complete_records_never_takes_a_message_of_a_queue_for_lost(seed: int) -> None:
    recorders = Recorders()
    mob = LivingMob(seed, recorders)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(400):
        mob.act()
    mob.end()
    assert mob.seen
    for message in mob.seen:
        journey = traced(recorders, message, mob.now)
        assert journey.lost == ()
        assert journey.verdict in (Verdict.ACKNOWLEDGED, Verdict.DELIVERED)


def test_message_on_its_way_to_a_consumer_that_leaves_is_traced_to_who_got_it_then() -> None:
    recorders = Recorders()
    network = QueueNetwork(recorder=recorders)
    remote = network.consume(3)
    network.settle(1)
    network.send(1)
    while not (hands := [wire for wire in network.wires if wire[:2] == (1, 3)]):
        network.commit(1)
        network.tick()
    # The message is on the wire; its consumer goes, and says so.
    network.wires = [wire for wire in network.wires if wire not in hands]
    network.leave(remote)
    network.wires += hands
    network.settle(2)
    local = network.consume(1)
    network.settle(2)
    message = MessageId.of(*local.held[1])
    network.answer(local, 1)
    network.settle(2)
    journey = traced(recorders, message, network.now)
    assert (journey.verdict, journey.certainty, journey.lost) == (Verdict.ACKNOWLEDGED, 1.0, ())


def test_record_tells_the_way_from_the_sender_over_the_home_to_the_consumer() -> None:
    recorders = Recorders()
    network = QueueNetwork(recorder=recorders)
    reader = network.consume(3)
    network.send(2)
    network.settle(1)
    message = MessageId.of(*reader.held[1])
    network.answer(reader, 1)
    network.settle(1)
    sender, home, consumer = (recorders[number].findings(message, network.now) for number in (2, 1, 3))
    assert [hit.number for hit in sender.relayed_to] == [1]
    assert not sender.waits
    assert [hit.number for hit in home.arrived_from] == [2]
    assert [hit.number for hit in home.relayed_to] == [3]
    assert [hit.number for hit in home.queued] == [hit.number for hit in home.acknowledged]
    assert [hit.number for hit in consumer.arrived_from] == [1]
    assert len(consumer.delivered) == len(consumer.acknowledged) == 1


def test_consumers_at_another_broker_take_no_places_of_clients() -> None:
    network = QueueNetwork(count=2)
    home, remote = network.brokers[1], network.brokers[2]
    home.core.take_limits(Limits(unacknowledged=50, sessions=len(home.core.sessions()) + 1))
    client = remote.core.attached("one client")
    assert remote.core.queues is not None
    for number in range(20):
        terms = ConsumerTerms("", AckMode.INDIVIDUAL, 1)
        remote.core.queues.subscribe(client, f"key {number}", "work", terms, network.now)
    network.settle(2)
    assert len(home.peers.guests) == 20
    home.core.attached("a client of the home")
    with pytest.raises(BrokerError, match="sessions, its limit"):
        home.core.attached("one too many")


def test_consumers_that_come_in_one_packet_are_offered_their_queue_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = QueueNetwork(count=2)
    home, remote = network.brokers[1], network.brokers[2]
    network.send(1, 30)
    network.settle(1)
    assert home.core.queues is not None
    offers, offer = [], home.core.queues.offer

    def counted(subscription: Subscription, outbox: Outbox, now: int) -> int:
        offers.append(now)
        return offer(subscription, outbox, now)

    monkeypatch.setattr(home.core.queues, "offer", counted)
    client = remote.core.attached("one client")
    assert remote.core.queues is not None
    for number in range(200):
        terms = ConsumerTerms("", AckMode.INDIVIDUAL, 1)
        remote.core.queues.subscribe(client, f"key {number}", "work", terms, network.now)
    network.settle(2)
    assert len(home.peers.guests) == 200
    # All messages are out, one for each of the first consumers.
    assert [each.holder.waiting.stored for each in home.core.queues.listed()] == [0]
    assert len(offers) < 50


@pytest.mark.parametrize("minutes", [-15, 15])
def test_clock_that_is_set_ends_no_channel_and_delays_nothing(minutes: int) -> None:
    network = QueueNetwork()
    reader = network.consume(3)
    network.send(2, 2)
    network.settle(1)
    assert sorted(reader.held) == [1, 2]
    network.now += minutes * 60_000
    network.behind -= minutes * 60_000
    network.tick()
    network.send(2, 1)
    network.settle(1)
    # Its broker would have closed it if the home had seemed to be gone.
    assert sorted(reader.held) == [1, 2, 3]
    assert network.told == []
    for body in (1, 2, 3):
        network.answer(reader, body)
    network.settle(1)
    assert network.settled == {1, 2, 3}
