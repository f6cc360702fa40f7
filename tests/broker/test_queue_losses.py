"""No message of a queue is lost, given up early or kept back, whatever becomes of its consumers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.broker import AckMode, BrokerError, Outbox, QueueSettings, consumers, named_queues, queue_quota
from postroad.messages.columns import FLAGS, QUEUED
from postroad.security import AllowAll, Refusal
from postroad.store import StoreSettings
from postroad.tracking import ExactRecorder
from tests.broker.queue_scene import QueueScene

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.selectors import Selector


def test_what_a_lost_session_had_does_not_go_to_another_consumer_of_that_session() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    scene.consume(session, "a", prefetch=1)
    scene.send(["m1"])
    scene.consume(session, "b", AckMode.AUTO)
    assert [(each.key, each.body) for each in scene.take()] == [("a", "m1")]
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    assert scene.take() == []
    scene.consume(scene.core.attached("reader"), "c")
    assert [(each.key, each.body, each.delivery) for each in scene.take()] == [("c", "m1", "2")]


def test_consumers_of_a_lost_session_use_up_one_try_together() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    for key in "ab":
        scene.consume(session, key, prefetch=1)
    scene.send(["m1"])
    scene.take()
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    scene.consume(scene.core.attached("reader"), "c")
    assert [(each.key, each.delivery) for each in scene.take()] == [("c", "2")]


def test_what_an_exclusive_consumer_kept_back_does_not_go_to_the_rest_of_its_lost_session() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    scene.consume(session, "a", prefetch=1, exclusive=True)
    scene.consume(session, "b", AckMode.AUTO)
    scene.send([str(each) for each in range(50)])
    scene.take()
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    assert scene.take() == []
    assert scene.queue().cursor.rows == 50


def test_nobody_gets_messages_of_a_queue_that_is_being_deleted() -> None:
    scene = QueueScene()
    first, second = scene.core.attached("reader"), scene.core.attached("reader")
    scene.consume(first, "a")
    scene.send(["m1"])
    scene.consume(second, "b", AckMode.AUTO)
    scene.take()
    queues = scene.core.queues
    assert queues is not None
    outbox = Outbox()
    assert queues.delete(scene.queue(), "not needed", outbox, scene.now) == 1
    assert not outbox.deliveries
    assert [number for number, _ in outbox.closes] == [first.number, second.number]


def test_full_queue_refuses_a_publisher_that_cannot_be_paused_and_loses_nothing() -> None:
    scene = QueueScene(store=StoreSettings(subscription_bytes=20_000))
    worker = scene.core.attached("worker")
    scene.core.subscribe(worker, "jobs", "other", "", AckMode.INDIVIDUAL)
    sent = 0
    while not (refusal := scene.send(["x" * 1_000], source=worker).unstorable):
        sent += 1
        assert sent < 100
    assert "'work' is full" in refusal
    assert "store.subscription_bytes is 20,000" in refusal
    assert scene.queue().cursor.rows == sent
    assert scene.queue().holder.shed == 0
    # Others are paused, as always.
    assert scene.send(["x"]).pauses == [scene.writer.number]


def test_dead_letter_queue_is_bounded_and_keeps_the_latest() -> None:
    scene = QueueScene(store=StoreSettings(subscription_bytes=20_000))
    session = scene.core.attached("reader")
    scene.consume(session, "a")
    for number in range(60):
        scene.send([f"{number:04} {'x' * 1_000}"])
        (got,) = scene.take()
        scene.answer(session, got, positive=False, requeues=False)
        scene.settle()
    dead = scene.queue("DLQ.work")
    assert dead.cursor.bytes < 25_000
    assert dead.holder.shed == 60 - dead.cursor.rows
    scene.consume(session, "dead", queue="DLQ.work")
    assert scene.take()[-1].body.startswith("0059")


def test_queues_of_clients_do_not_keep_dead_letter_queues_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_quota, "MAX_QUEUES", 3)
    monkeypatch.setattr(queue_quota, "MAX_QUEUES_PER_PRINCIPAL", 2)
    scene = QueueScene()
    session = scene.core.attached("")
    queues = scene.core.queues
    assert queues is not None
    for name in "abcd":
        owner = session if name < "c" else scene.core.attached("somebody")
        try:
            scene.consume(owner, name, queue=name)
        except BrokerError:
            assert name == "d"
            continue
        scene.send(["m"], queue=name)
        (got,) = scene.take()
        scene.answer(owner, got, positive=False, requeues=False)
        assert scene.queue(f"DLQ.{name}").cursor.rows == 1
    assert queues.returns.undeliverable == ""
    monkeypatch.setattr(queue_quota, "MAX_QUEUES", 30)
    with pytest.raises(BrokerError, match="without a login has 2 queues"):
        scene.consume(session, "e", queue="e")


class NobodyPublishes(AllowAll):
    """A policy that lets nothing in."""

    def may_publish(self, principal: str, batch: Batch) -> NDArray[np.intp] | None:
        return np.empty(0, np.intp)


def test_publisher_whom_the_policy_refuses_makes_no_queues() -> None:
    scene = QueueScene(policy=NobodyPublishes())
    assert scene.send(["m1"]).refused == 1
    assert scene.core.queues is not None
    assert len(scene.core.queues) == 0


def test_what_a_congested_consumer_refuses_goes_to_another_one() -> None:
    scene = QueueScene(QueueSettings(redelivery_ms=0))
    slow, other = scene.core.attached("reader"), scene.core.attached("reader")
    scene.consume(slow, "a", prefetch=1)
    scene.send(["m1"])
    scene.consume(other, "b", prefetch=1)
    (got,) = scene.take()
    scene.core.congested(slow)
    scene.answer(slow, got, positive=False)
    scene.settle()
    assert [(each.key, each.body) for each in scene.take()] == [("b", "m1")]


def test_queue_counts_what_expired_when_it_was_to_be_handed_out() -> None:
    scene = QueueScene()
    scene.send(["late", "later"], expiry=scene.now + 10)
    scene.now += 20
    scene.consume(scene.core.attached("reader"), "a")
    assert scene.take() == []
    assert scene.queue().holder.expired == 2


def test_dead_letters_that_come_in_bursts_do_not_pile_up() -> None:
    scene = QueueScene(store=StoreSettings(subscription_bytes=20_000))
    session = scene.core.attached("reader")
    scene.consume(session, "a")
    for _ in range(15):
        scene.send(["x" * 1_000] * 15)
        for got in scene.take():
            scene.answer(session, got, positive=False, requeues=False)
        scene.settle()
    # The limit, and a burst or two.
    assert scene.queue("DLQ.work").cursor.bytes < 3 * 20_000


def test_messages_that_expire_unseen_are_given_up_by_a_sweep_and_leave_room_to_others() -> None:
    recorder = ExactRecorder(1, 0)
    scene = QueueScene(recorder=recorder)
    scene.send([f"e{each}" for each in range(30)], expiry=scene.now + 500)
    scene.send(["stays"])
    scene.send(["later"], expiry=scene.now + 60_000)
    queues = scene.core.queues
    assert queues is not None
    queues.expire(scene.now)
    assert scene.queue().holder.waiting.stored == 32
    scene.now += 1_000
    queues.expire(scene.now)
    scene.settle()
    assert (scene.queue().holder.waiting.stored, scene.queue().cursor.rows) == (2, 2)
    assert scene.queue().holder.expired == 30
    scene.consume(scene.core.attached("reader"), "a")
    assert [each.body for each in scene.take()] == ["stays", "later"]


def test_sweep_looks_at_a_bounded_part_and_finds_what_an_earlier_process_left(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = QueueScene(store=StoreSettings(segment_bytes=4_096, cache_bytes=2_000))
    for first in range(0, 100, 10):
        scene.send([str(each) for each in range(first, first + 10)], expiry=scene.now + 500)
    scene.restart()
    scene.now += 1_000
    monkeypatch.setattr(named_queues, "SWEPT_ROWS", 20)
    queues = scene.core.queues
    assert queues is not None
    left = [100]
    for _ in range(60):
        queues.expire(scene.now)
        scene.settle()
        left.append(scene.queue().cursor.rows)
    # A record more or less: it is looked at as a whole.
    assert all(before - after <= 40 for before, after in itertools.pairwise(left))
    assert left[-1] == 0


def test_dead_letters_do_not_expire_when_the_sweep_comes() -> None:
    scene = QueueScene(QueueSettings(max_deliveries=1, redelivery_ms=0))
    reader = scene.core.attached("reader")
    scene.consume(reader, "a")
    scene.send(["m"], expiry=scene.now + 500)
    scene.answer(reader, scene.take()[0], positive=False)
    scene.settle()
    scene.now += 10_000
    queues = scene.core.queues
    assert queues is not None
    queues.expire(scene.now)
    scene.settle()
    assert scene.queue("DLQ.work").cursor.rows == 1


@pytest.mark.parametrize("wanted", ["odd", "last"])
def test_what_is_remembered_as_unwanted_is_bounded_and_what_is_wanted_behind_it_is_found(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MAX_PASSED_RUNS", 50)
    scene = QueueScene()
    for first in range(0, 4_000, 500):
        scene.send(
            [str(each) for each in range(first, first + 500)],
            each=lambda number, first=first: [("kind", "even" if (first + number) % 2 == 0 else "odd")],  # type: ignore[misc]
        )
    scene.send(["the last"], headers=[("kind", "last")])
    picky, other = scene.core.attached("picky"), scene.core.attached("other")
    scene.consume(picky, "a", AckMode.AUTO, selector=f"kind = '{wanted}'")
    # Another set of consumers: the queue is searched for both.
    scene.consume(other, "b", AckMode.AUTO, selector="kind = 'nothing'")
    scene.send(["one more"], headers=[("kind", wanted)])
    profiles = scene.queue().consumers.profiles.values()
    assert max(len(each.passed.runs.starts) for each in profiles) <= 50 + 1_000
    got = [each.body for each in scene.take()]
    assert got == [*(str(each) for each in range(1, 4_000, 2) if wanted == "odd"), *_last(wanted), "one more"]


def _last(wanted: str) -> list[str]:
    return ["the last"] if wanted == "last" else []


def test_policy_sees_the_same_name_of_a_queue_from_those_who_send_and_those_who_consume() -> None:
    seen: list[tuple[str, str, bool]] = []

    class Listening(AllowAll):
        def may_publish(self, principal: str, batch: Batch) -> NDArray[np.intp] | None:
            seen.append((principal, batch.message(0).topic, bool(batch.envelopes[0, FLAGS] & QUEUED)))
            return None

        def may_subscribe(
            self, principal: str, topic: str, selector: Selector | None, queued: bool = False
        ) -> Selector | Refusal | None:
            seen.append((principal, topic, queued))
            return Refusal("not you") if principal == "stranger" else selector

    scene = QueueScene(policy=Listening())
    scene.send(["m"])
    scene.consume(scene.core.attached("reader"), "a")
    assert seen == [("writer", "work", True), ("reader", "work", True)]
    with pytest.raises(BrokerError, match="subscription to '/queue/work' refused: not you"):
        scene.consume(scene.core.attached("stranger"), "a")


def test_message_that_comes_back_while_a_queue_is_purged_stays_and_those_that_waited_go() -> None:
    scene = QueueScene(QueueSettings(redelivery_ms=0), StoreSettings(segment_bytes=4_096, cache_bytes=1))
    session = scene.core.attached("reader")
    scene.consume(session, "a", prefetch=1)
    for number in range(5):
        scene.send([f"m{number} {'x' * 1_000}"])
    (got,) = scene.take()
    queues = scene.core.queues
    assert queues is not None
    # What waits has to be read first, for the record.
    assert queues.purge(scene.queue(), "purged by carla") == 4
    scene.answer(session, got, positive=False)
    scene.send(["later"])
    scene.settle()
    assert scene.queue().holder.shed == 4
    (again,) = scene.take()
    assert (again.body[:2], again.delivery) == ("m0", "2")
    scene.answer(session, again)
    scene.settle()
    assert [each.body for each in scene.take()] == ["later"]


def test_refused_message_is_handed_out_again_in_time_after_the_clock_was_set_back() -> None:
    scene = QueueScene()
    reader = scene.core.attached("reader")
    scene.consume(reader, "a")
    hour = 3_600_000
    scene.now += hour
    scene.send(["1"])
    (got,) = scene.take()
    scene.answer(reader, got, positive=False)
    assert scene.core.redeliveries is not None
    due = scene.core.redeliveries.due()
    assert due is not None
    # The driver comes when it is due, and the clock has gone back meanwhile.
    scene.later(due - scene.now - hour)
    assert [again.body for again in scene.take()] == ["1"]
