"""A trace tells what became of a message that waited in the store for a durable subscription or in a queue."""

from __future__ import annotations

import pytest

from postroad.broker import AckMode, ConsumerTerms, Outbox, QueueSettings
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

    def __init__(self) -> None:
        self.recorders, self.numbers, self.disk = Recorders(), NumberBlocks(), SimulatedDisk()
        self.now = 1_000_000
        self.start()

    def start(self) -> None:
        self.core, self.log = stored_core(
            self.disk, self.numbers, self.now, recorder=self.recorders(1), queues=QueueSettings(redelivery_ms=100)
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

    def acknowledge(self) -> None:
        self.core.acknowledge(self.session, "k", self.message.head, self.message.tail, True, self.now)
        self.turn()

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
