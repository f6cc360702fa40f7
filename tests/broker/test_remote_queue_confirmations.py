"""What another broker confirms is what it was asked for, also after a restart of either end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from postroad.broker import QueueSettings
from postroad.broker.confirmations import CONFIRM_MS
from postroad.messages import Batch, Draft, IdGenerator, MessageId
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import carry_out
from tests.broker.queue_network import QUEUE, QueueMob, QueueNetwork
from tests.broker.queue_records import Recorders

if TYPE_CHECKING:
    from postroad.broker import Outbox

SEEDS = range(200) if os.environ.get("POSTROAD_THOROUGH") else range(12)

REFUSING = QueueSettings(when_home_is_down="refuse", redelivery_ms=10)


def pass_all(network: QueueNetwork, *committing: int, reading: int = 0, rounds: int = 40) -> None:
    """Let packets come, while only some brokers write to their disks, and one may read."""
    for _ in range(rounds):
        while network.wires:
            network.pass_packet()
        for number in committing:
            network.commit(number)
        if reading:
            network.read(reading)
        network.tick()


def test_rows_that_an_earlier_process_left_confirm_nothing_of_what_came_since() -> None:
    network = QueueNetwork(count=2, settings=REFUSING)
    network.crash(1)
    network.send(2, 3)
    network.commit(2)
    network.crash(2)
    network.start(2)
    network.settle(1)
    network.start(1)
    network.send(2)
    told: list[str] = []
    waits = network.brokers[2].writer.confirmations
    assert waits is not None
    waits.when_done(told.append)
    # The new message is not on the disk of its own broker yet, so it cannot have gone to the home.
    pass_all(network, 1, reading=2)
    queues = network.brokers[1].core.queues
    assert queues is not None
    assert [each.cursor.rows for each in queues.listed()] == [3]
    assert told == []
    network.settle(2)
    assert [each.cursor.rows for each in queues.listed()] == [4]
    assert told == [""]


def test_sessions_that_have_waited_too_long_are_told_in_the_order_in_which_they_began_to_wait() -> None:
    network = QueueNetwork(count=2)
    peers, core = network.brokers[2].peers, network.brokers[2].core
    told: list[int] = []
    sessions = [core.attached("writer") for _ in range(100)]
    for number, session in enumerate(sessions):
        waits = peers.confirmations(session)
        waits.ask(peers.time(network.now))
        waits.when_done(lambda _, number=number: told.append(number))  # type: ignore[misc]
    network.tick(CONFIRM_MS)
    assert told == list(range(100))


def test_answers_of_an_earlier_process_confirm_nothing_that_its_successor_has_answered() -> None:
    network = QueueNetwork(count=2)
    network.send(1, 3)
    network.commit(1)
    # It keeps a message, so that the queue always has a consumer.
    keeper = network.consume(1, prefetch=1)
    network.settle(1)
    first = network.consume(2, prefetch=1)
    network.settle(1)
    (kept,) = keeper.held
    (body,) = first.held
    network.answer(first, body)
    pass_all(network, rounds=3)
    # The acknowledgement is on its way to the disk when its broker dies; another takes its place at once.
    home = network.brokers[1]
    commit = home.log.take_commit(network.now)
    assert commit is not None
    network.crash(2)
    network.start(2)
    second = network.consume(2, prefetch=1)
    pass_all(network, 2)
    (later,) = second.held
    assert later not in (kept, body)
    network.answer(second, later)
    pass_all(network, 2, rounds=3)
    carry_out(commit, home.disk)
    home.log.committed(commit)
    network.read(1)
    pass_all(network, 2, rounds=3)
    assert later not in network.settled
    network.settle(1)
    assert later in network.settled
    assert not network.faults


class RefusingMob(QueueMob):
    """Brokers that confirm what the home of the queue has stored; each confirmation is checked when it comes."""

    def __init__(self, seed: int) -> None:
        self.recorders = Recorders()
        self.checked = 0
        super().__init__(seed, count=2, settings=REFUSING, recorder=self.recorders)

    def send(self, number: int, count: int = 1, size: int = 0) -> Outbox:
        outbox = super().send(number, count, size)
        waits = self.brokers[number].writer.confirmations
        if number != 1 and waits and not outbox.unstorable:
            bodies = self.brokers[number].sent[-1][1]
            waits.when_done(lambda why: None if why else self._check(bodies))
        return outbox

    def _tick(self) -> None:
        # Seldom so long that nobody waits any more.
        self.tick(self.random.choice([10, 100, 500]))

    def _cut(self) -> None:
        pass

    def _check(self, bodies: list[int]) -> None:
        self.checked += 1
        for body in bodies:
            if self.recorders[1].findings(MessageId.of(*self.ids[body]), self.now).arrived is None:
                self.faults.append(f"{body} is confirmed, and never came to the home")


def test_whatever_is_confirmed_is_at_the_home_through_crashes_of_both_ends() -> None:
    checked = 0
    for seed in SEEDS:
        mob = RefusingMob(seed)
        for _ in range(600):
            mob.act()
        assert mob.faults == [], f"seed {seed}"
        checked += mob.checked
    assert checked > len(SEEDS)


def test_settlements_of_an_earlier_session_are_safe_before_the_home_forgets_them() -> None:
    network = QueueNetwork(count=2)
    reader = network.consume(1)
    network.send(2)
    network.commit(2)
    for _ in range(20):
        network.tick()
        pass_packets(network)
        network.commit(2)
        if network.brokers[2].peers.outgoing.listed()[0].unconfirmed:
            break
    # The home stores the message, says so, and its consumer has it; the sender's disk is busy from now on.
    for _ in range(2):
        network.commit(1)
        pass_packets(network)
    network.answer(reader, 1)
    for _ in range(2):
        network.commit(1)
    network.crash(1, power=False)
    network.start(1)
    pass_all(network, 1)
    network.crash(2)
    network.start(2)
    network.settle(5)
    network.consume(1)
    network.settle(2)
    assert network.faults == []


def pass_packets(network: QueueNetwork) -> None:
    while network.wires:
        network.pass_packet()


def test_message_that_is_sent_again_is_confirmed_when_its_home_has_it() -> None:
    network = QueueNetwork(count=2, settings=REFUSING)
    core = network.brokers[2].core
    network.cut.add(frozenset((1, 2)))
    client = core.attached("writer")
    publisher, _ = core.assigns_ids(client, "token", network.now)
    batch = Batch.build([Draft(QUEUE, {}, (), b"1")])
    batch.envelopes[:, FLAGS] |= QUEUED
    IdGenerator(publisher.number, 2).give(batch.ids, network.now)
    ids = batch.ids.copy()
    network.carry_out(2, core.receive_identified(batch, client, network.now, queued=True)[0])
    pass_all(network, 2)
    core.detached(client, network.now)
    again = core.attached("writer")
    core.assigns_ids(again, "another token", network.now, (publisher.number, "token"))
    batch = Batch.build([Draft(QUEUE, {}, (), b"1")])
    batch.envelopes[:, FLAGS] |= QUEUED
    batch.ids[:] = ids
    _, admission = core.receive_identified(batch, again, network.now, queued=True)
    assert admission.resent == 1
    told: list[str] = []
    assert again.confirmations is not None
    again.confirmations.when_done(told.append)
    assert told == []
    network.cut.clear()
    network.settle(3)
    assert told == [""]
