"""A trace tells what became of a message that waited in the store for a durable subscription or in a queue."""

from __future__ import annotations

import pytest

from postroad.broker import AckMode, ConsumerTerms, Outbox, QueueSettings, given_up, stored_queues
from postroad.messages import Batch, Draft, MessageId
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import SimulatedDisk, carry_out
from postroad.tracking import Journey, Verdict
from postroad.tracking.reasons import LATE_MS
from tests.broker.queue_records import Recorders, traced
from tests.broker.stored_core import NumberBlocks, stored_core

HOURS = 3_600_000


class TracedStore:
    """One broker with a record and a store, in one life after the other; its client comes and goes."""

    def __init__(self, dead_letter: str = "DLQ.") -> None:
        self.recorders, self.numbers, self.disk = Recorders(), NumberBlocks(), SimulatedDisk()
        self.settings = QueueSettings(redelivery_ms=100, dead_letter=dead_letter)
        self.now = 1_000_000
        self.start()

    def start(self) -> None:
        self.core, self.log = stored_core(
            self.disk, self.numbers, self.now, recorder=self.recorders(1), queues=self.settings
        )
        self.session = self.core.attached("ann")

    def kill(self) -> None:
        """The process dies, and another one begins."""
        self.start()

    def publish(self, topic: str, queued: bool = False) -> None:
        batch = Batch.build([Draft(topic, {}, (), b"")])
        if queued:
            batch.envelopes[:, FLAGS] |= QUEUED
        self.core.receive(batch, self.core.attached("writer"), self.now, queued=queued)
        self.message: MessageId = batch.message(0).id
        self.turn()

    def turn(self) -> int:
        """Write and read what there is to; return how many messages went out."""
        commit = self.log.take_commit(self.now)
        if commit is not None:
            carry_out(commit, self.disk)
            self.log.committed(commit)
        for read in self.log.take_reads():
            self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
        return sum(len(each.rows) for each in self.core.stored(self.now).deliveries)

    def come(self, queued: bool = False) -> int:
        """The client subscribes; return how many messages it got."""
        self.session = self.core.attached("ann")
        if queued:
            assert self.core.queues is not None
            made = self.core.queues.subscribe(self.session, "k", "q", ConsumerTerms("", AckMode.INDIVIDUAL), self.now)
        else:
            assert self.core.durables is not None
            made = self.core.durables.subscribe(
                self.session, "k", ("c", "n"), "t", "", AckMode.INDIVIDUAL, self.now, Outbox(), None
            )
        got = sum(len(each.rows) for each in self.core.offer(made, self.now).deliveries)
        return got + self.turn() + self.turn()

    def leave(self) -> None:
        self.core.detached(self.session, self.now)
        self.turn()

    def acknowledge(self, positive: bool = True, requeues: bool = True, turns: int = 1) -> None:
        head, tail = self.message.head, self.message.tail
        self.core.acknowledge(self.session, "k", head, tail, positive, self.now, requeues)
        for _ in range(turns):
            self.turn()

    def purge(self) -> None:
        """An operator purges the subscription; nothing of that is written yet."""
        assert self.core.durables is not None
        subscription = self.core.durables.find("c", "n")
        assert subscription is not None
        self.core.durables.purge(subscription, "purged by carla")
        self.core.stored(self.now)

    @property
    def trace(self) -> Journey:
        return traced(self.recorders, self.message, self.now)

    def verdict(self) -> Verdict:
        return self.trace.verdict

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(drop.reason, drop.at) for _, drop in self.trace.dropped]


def test_message_that_a_lost_client_of_a_durable_subscription_had_waits_again_and_is_told_when_it_goes_out() -> None:
    scene = TracedStore()
    scene.come()
    scene.publish("t")
    scene.turn()
    assert scene.trace.verdict is Verdict.DELIVERED
    scene.now += 1_000
    left = scene.now
    scene.leave()
    assert (scene.trace.verdict, scene.told) == (Verdict.WAITING, [("comes again", left)])
    scene.now += 1_000
    assert scene.come() == 1
    assert scene.trace.verdict is Verdict.DELIVERED
    assert scene.told == [("comes again", left), ("delivered again", scene.now)]
    scene.acknowledge()
    assert (scene.trace.verdict, scene.trace.certainty) == (Verdict.ACKNOWLEDGED, 1.0)


def test_message_that_a_killed_broker_had_handed_out_is_told_to_go_out_again() -> None:
    scene = TracedStore()
    scene.come()
    scene.publish("t")
    scene.turn()
    scene.kill()
    scene.now += 1_000
    assert scene.come() == 1
    assert scene.told == [("delivered again", scene.now)]


@pytest.mark.parametrize("queued", [False, True])
def test_message_that_waited_for_hours_is_told_when_it_went_out_at_last(queued: bool) -> None:
    scene = TracedStore()
    if not queued:
        scene.come()
        scene.leave()
    scene.publish("q" if queued else "t", queued)
    assert scene.verdict() is Verdict.WAITING
    scene.now += 3 * HOURS
    assert scene.come(queued) == 1
    assert (scene.verdict(), scene.told) == (Verdict.DELIVERED, [("delivered late", scene.now)])
    scene.acknowledge()
    assert scene.verdict() is Verdict.ACKNOWLEDGED


def test_message_that_goes_out_in_time_costs_no_row_of_the_record() -> None:
    scene = TracedStore()
    scene.come()
    scene.leave()
    scene.publish("t")
    scene.now += LATE_MS - 1
    assert scene.come() == 1
    assert scene.told == []


def test_message_that_a_crash_brought_back_after_a_purge_is_not_told_to_be_purged() -> None:
    scene = TracedStore()
    scene.come()
    scene.leave()
    scene.publish("t")
    scene.purge()
    scene.kill()
    assert (scene.verdict(), scene.told) == (Verdict.WAITING, [])
    assert scene.come() == 1
    assert scene.verdict() is Verdict.DELIVERED
    scene.acknowledge()
    assert (scene.verdict(), scene.trace.certainty) == (Verdict.ACKNOWLEDGED, 1.0)


def test_message_is_told_to_be_purged_once_no_crash_can_bring_it_back() -> None:
    scene = TracedStore()
    scene.come()
    scene.leave()
    scene.publish("t")
    scene.purge()
    scene.turn()
    assert (scene.verdict(), scene.told) == (Verdict.SHED, [("purged by carla", scene.now)])
    scene.kill()
    assert scene.come() == 0


@pytest.mark.parametrize("dead_letter", ["DLQ.", ""])
def test_message_that_a_crash_took_out_of_the_dead_letter_queue_is_not_told_to_be_there(dead_letter: str) -> None:
    scene = TracedStore(dead_letter)
    scene.come(queued=True)
    scene.publish("q", queued=True)
    scene.turn()
    scene.acknowledge(positive=False, requeues=False, turns=0)
    scene.kill()
    scene.now += 1_000
    assert scene.told == []
    assert scene.come(queued=True) == 1
    scene.acknowledge()
    assert (scene.verdict(), scene.told) == (Verdict.ACKNOWLEDGED, [])


def test_no_more_is_given_up_than_can_be_recorded_when_the_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_up, "MAX_UNRECORDED_ROWS", 10)
    monkeypatch.setattr(stored_queues, "DISCARDED_PER_TURN", 5)
    scene = TracedStore()
    scene.come()
    scene.leave()
    for _ in range(30):
        scene.publish("t")
    scene.purge()
    store = scene.core.store
    assert store is not None
    for _ in range(30):
        scene.core.stored(scene.now)
        assert store.given_up.rows <= 10
    assert store.discards == 1
    for _ in range(30):
        scene.turn()
    assert (store.discards, store.given_up.rows, scene.come()) == (0, 0, 0)


def test_no_more_becomes_a_dead_letter_than_can_be_recorded_when_the_disk_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(given_up, "MAX_UNRECORDED_ROWS", 10)
    scene = TracedStore()
    scene.come(queued=True)
    messages = []
    for _ in range(30):
        scene.publish("q", queued=True)
        messages.append(scene.message)
    scene.turn()
    for message in messages:
        scene.core.acknowledge(scene.session, "k", message.head, message.tail, False, scene.now, requeues=False)
    store, queues = scene.core.store, scene.core.queues
    assert store is not None
    assert queues is not None
    assert (store.given_up.rows, queues.returns.dead_lettered) == (10, 10)
    queue = queues.find("q")
    assert queue is not None
    assert queue.dead_lettered == 10
    # The others are refused again when they come back.
    for _ in range(3):
        scene.turn()
        scene.now += scene.settings.max_redelivery_ms + 1_000
        for each in scene.core.redeliver(scene.now).deliveries:
            for head, tail in each.batch.ids[each.rows].tolist():
                scene.core.acknowledge(scene.session, "k", head, tail, False, scene.now, requeues=False)
    assert (queue.dead_lettered, queue.cursor.rows) == (30, 0)
    for scene.message in messages:
        scene.turn()
        assert scene.verdict() is Verdict.SHED
