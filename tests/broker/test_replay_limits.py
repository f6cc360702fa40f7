"""Replays cost no more than they may, however many there are: time, memory and reads from the disk."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest

from postroad.broker import BrokerError, ReplayStart
from postroad.broker.replays import MAX_READING, RunningReplay
from postroad.matching import SubscriptionIndex
from postroad.messages import Batch
from postroad.store import TIGHT_BYTES, RetainedTopic
from tests.broker.replay_scene import ReplayScene, ids


def test_replay_matches_no_more_in_one_turn_than_the_budget_lets_it() -> None:
    scene = ReplayScene()
    scene.publish(40, "a.x")
    scene.turn_until_safe()
    scene.core.congested(scene.reader)
    scene.core.replays.budget = 1
    subscription, seen = scene.subscribe(ReplayStart()), [0]
    while scene.core.unfinished:
        scene.note(scene.core.proceed(scene.now))
        seen.append(subscription.waiting.stored)
    assert seen == list(range(41))
    scene.note(scene.core.drained(scene.reader, scene.now))
    scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)


def test_replays_that_wait_are_not_looked_at_before_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Counted(RunningReplay):
        @property
        def ahead(self) -> int:
            looked.append(self.subscription.number)
            return super().ahead

    monkeypatch.setattr("postroad.broker.replays.RunningReplay", Counted)
    monkeypatch.setattr("postroad.broker.replays.MAX_AHEAD", 3)
    scene = ReplayScene()
    for _ in range(5):
        scene.publish(5, "a.x")
        scene.turn_until_safe()
    scene.core.congested(scene.reader)
    waiting = [scene.subscribe(ReplayStart()) for _ in range(20)]
    scene.settle()
    looked.clear()
    scene.publish(1, "b")
    scene.settle()
    assert (len(scene.core.replays), len(looked)) == (20, 0)
    scene.note(scene.core.drained(scene.reader, scene.now))
    scene.settle()
    for subscription in waiting:
        assert ids(scene, subscription) == scene.wanted(subscription)


def test_few_replays_wait_for_the_disk_at_a_time() -> None:
    topics = [f"t{number}" for number in range(12)]
    scene = ReplayScene(*(RetainedTopic(topic=topic) for topic in topics))
    for topic in topics:
        scene.publish(5, topic)
        scene.turn_until_safe()
    # A new process has no record in memory.
    scene.start()
    replays = [scene.subscribe(ReplayStart(), topic) for topic in topics]
    for _ in range(20):
        scene.core.proceed(scene.now)
    assert not scene.core.unfinished
    reads = scene.log.take_reads()
    assert 1 <= len(reads) <= MAX_READING
    for read in reads:
        scene.log.loaded(read, scene.disk.read(read.segment, read.start, read.length))
    scene.settle()
    for subscription in replays:
        assert ids(scene, subscription) == scene.wanted(subscription)


def test_replays_are_limited_for_a_session_and_for_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.replays.MAX_REPLAYS_PER_SESSION", 3)
    monkeypatch.setattr("postroad.broker.replays.MAX_REPLAYS", 5)
    scene = ReplayScene()
    scene.publish(5, "a.x")
    scene.durable("n", ReplayStart())
    scene.core.unsubscribe(scene.reader, "n", scene.now)
    # The durable one is away, and counts anyway.
    kept = [scene.subscribe(ReplayStart()) for _ in range(2)]
    refusal = "3 subscriptions of this client read their history"
    with pytest.raises(BrokerError, match=refusal):
        scene.subscribe(ReplayStart())
    with pytest.raises(BrokerError, match=refusal):
        scene.durable("m", ReplayStart())
    assert len(scene.reader.subscriptions) == 2
    scene.subscribe(None)
    scene.reader = scene.core.attached("another")
    for _ in range(2):
        scene.subscribe(ReplayStart())
    with pytest.raises(BrokerError, match="5 subscriptions of this broker read their history"):
        scene.subscribe(ReplayStart())
    # One that ends makes room, and so do those that have caught up.
    scene.core.unsubscribe(kept[0].session, kept[0].key, scene.now)
    scene.subscribe(ReplayStart())
    scene.settle()
    scene.subscribe(ReplayStart())


def test_replays_of_many_selectors_keep_few_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: WeakSet[SubscriptionIndex] = WeakSet()

    class Counted(SubscriptionIndex):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            kept.add(self)

    monkeypatch.setattr("postroad.broker.replays.SubscriptionIndex", Counted)
    monkeypatch.setattr("postroad.broker.replays.MAX_INDEXES", 2)
    scene = ReplayScene()
    scene.publish(30, "a.x")
    scene.turn_until_safe()
    scene.core.replays.budget = 1
    replays = [scene.subscribe(ReplayStart(), "a.>", f"n <> {number % 4}") for number in range(8)]
    most = 0
    while scene.core.unfinished:
        scene.note(scene.core.proceed(scene.now))
        most = max(most, len(kept))
    assert (most, len(kept)) == (2, 0)
    scene.settle()
    for subscription in replays:
        assert ids(scene, subscription) == scene.wanted(subscription)


def test_store_that_fails_refuses_what_a_turn_cannot_tell_apart_and_matches_no_longer() -> None:
    scene = ReplayScene()
    scene.failures = 1.0
    scene.publish(5, "a.x")
    while not scene.log.trouble:
        scene.turn()
    batch = Batch.build([("b", {"n": 1}, (), b".") for _ in range(50)])
    assert not scene.core.receive(batch, scene.writer, scene.now).unstorable
    scene.core.turn_budget = 1
    refused = scene.core.receive(batch, scene.writer, scene.now).unstorable
    assert "takes too long" in refused
    assert scene.log.trouble in refused
    # One message is told within any budget: it is not for the retained topic.
    single = Batch.build([("b", {"n": 1}, (), b".")])
    assert not scene.core.receive(single, scene.writer, scene.now).unstorable


@pytest.mark.parametrize("full", ["store", "disk"])
def test_oldest_retained_messages_go_until_a_store_or_disk_that_is_nearly_full_has_room(
    full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 1_000)
    settings: dict[str, Any] = {"segment_bytes": 2_000, "max_bytes": 2**30 if full == "disk" else 16_000}
    scene = ReplayScene(RetainedTopic(topic="a.>"), **settings)
    retentions = scene.core.retentions
    scene.publish(16, "a.x")
    scene.turn_until_safe()
    retentions.trim(scene.now)
    assert (len(scene.retained()), retentions.cut) == (16, 0)
    if full == "store":
        while scene.log.size <= 14_000:
            scene.publish(16, "a.x")
            scene.turn_until_safe()
    else:
        scene.log.room.disk = TIGHT_BYTES - 1
    before = sorted(scene.retained(), key=lambda each: each.tail)
    retentions.trim(scene.now)
    kept = sorted(scene.retained(), key=lambda each: each.tail)
    assert retentions.cut == len(before) - len(kept) == 1 + len(before) // 8
    assert kept == before[retentions.cut :]
    for _ in range(8):
        while scene.turn():
            pass
        scene.log.room.disk = TIGHT_BYTES
        retentions.trim(scene.now)
    # It stops when there is room.
    assert scene.retained()
    assert scene.log.size <= 14_000
