"""Subscriptions that begin in the past, without sockets: a core, a log and a disk that crashes, beside a plain twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.broker import AckMode, BrokerError, Outbox, OverflowPolicy, ReplayStart
from postroad.matching import NO_BUDGET
from postroad.messages import Batch, Draft, IdGenerator, MessageId
from postroad.store import RetainedTopic, StoreSettings, carry_out
from tests.broker.replay_scene import ReplayScene, ids

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker import Subscription


@pytest.mark.parametrize("seed", range(25))
def test_replays_get_what_a_subscription_from_then_on_would_have_got_in_order_and_once(seed: int) -> None:
    scene = ReplayScene(seed=seed)
    scene.core.replays.budget = [1, 5_000, NO_BUDGET][seed % 3]
    begun: list[tuple[Subscription, int, int]] = []
    for _ in range(60):
        action = scene.random.randrange(10)
        if action < 4:
            scene.publish(scene.random.randrange(1, 12))
        elif action < 5 and len(begun) < 6:
            topic = scene.random.choice(["a.>", "a.x", "a.*"])
            selector = scene.random.choice(["", "n > 1", "n = 3 OR n = 0", "n IS NULL"])
            kept = [each for each in scene.sent if each.topic != "b"]
            start, first, since = ReplayStart(), 0, 0
            chosen = scene.random.choice(kept) if kept else None
            if chosen is not None and scene.random.random() < 0.7:
                first = next(place for place, each in enumerate(scene.sent) if each.id == chosen.id)
                if scene.random.random() < 0.3:
                    since, first = chosen.id.time, 0
                    start = ReplayStart(since=since)
                else:
                    after = scene.random.random() < 0.5
                    start, first = ReplayStart(id=chosen.id, after=after), first + after
            begun.append((scene.subscribe(start, topic, selector), first, since))
        elif action < 6:
            scene.core.congested(scene.reader)
        elif action < 7:
            scene.note(scene.core.drained(scene.reader, scene.now))
        else:
            scene.turn()
    scene.note(scene.core.drained(scene.reader, scene.now))
    scene.settle()
    scene.publish()
    scene.settle()
    for subscription, first, since in begun:
        assert ids(scene, subscription) == scene.wanted(subscription, first, since)
    assert len(scene.core.replays) == 0


@pytest.mark.parametrize("seed", range(30))
def test_durable_replay_survives_torn_writes_and_repeats_nothing_that_was_settled(seed: int) -> None:
    scene = ReplayScene(seed=seed)
    scene.publish(40)
    scene.settle()
    # One row in a turn, some, or all of a record.
    scene.core.replays.budget = scene.budget = [1, 5_000, NO_BUDGET][seed % 3]
    subscription, seen = scene.durable("n", ReplayStart()), set[MessageId]()
    scene.turn_until_safe()
    scene.failures = scene.random.choice([0.0, 0.3])
    for _ in range(80):
        action = scene.random.randrange(12)
        if action < 3:
            scene.publish(scene.random.randrange(1, 8))
        elif action < 6:
            scene.acknowledge(subscription, scene.random.randrange(1, 9))
        elif action < 7:
            seen |= set(ids(scene, subscription))
            scene.crash()
            subscription = scene.durable("n", ReplayStart())
        else:
            scene.turn()
        assert scene.settled.isdisjoint(ids(scene, subscription))
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    last = ids(scene, subscription)
    assert seen | set(last) >= set(scene.wanted(subscription))
    order = {each.id: place for place, each in enumerate(scene.sent)}
    assert [order[each] for each in last] == sorted(order[each] for each in last)


def test_replay_of_a_topic_that_is_not_retained_is_refused_by_name() -> None:
    scene = ReplayScene()
    for topic in ("b", ">", "*.x"):
        with pytest.raises(BrokerError, match="no retained topic has all of it"):
            scene.subscribe(ReplayStart(), topic)
    assert not scene.reader.subscriptions


def test_replay_from_a_message_that_is_gone_begins_at_its_time() -> None:
    scene = ReplayScene()
    scene.publish(10, "a.x")
    scene.now += 10
    scene.publish(10, "a.x")
    known = scene.sent[10].id
    gone = MessageId(known.publisher, known.broker, known.time, 60_000)
    subscription = scene.subscribe(ReplayStart(id=gone, after=True))
    scene.settle()
    assert ids(scene, subscription) == [each.id for each in scene.sent[10:]]


@pytest.mark.parametrize("is_durable", [False, True])
def test_replay_after_a_message_whose_id_is_ahead_of_the_clock_leaves_nothing_out(is_durable: bool) -> None:
    scene = ReplayScene()
    scene.now = 10_000_000
    publisher, _ = scene.core.assigns_ids(scene.writer, "token", scene.now)
    ahead = Batch.build([("a.x", {"n": 1}, (), b"")])
    ahead.ids[:] = IdGenerator(publisher.number, 1).take(scene.now + 600_000, 1)
    outbox, _ = scene.core.receive_identified(ahead, scene.writer, scene.now)
    scene.note(outbox)
    scene.writer = scene.core.attached("another")
    # Several records were stored before the time of the id, and more than the tolerance after the message.
    for _ in range(5):
        scene.now += 60_000
        scene.publish(3, "a.y")
        scene.turn_until_safe()
    for after in (True, False):
        start = ReplayStart(id=ahead.message(0).id, after=after)
        subscription = scene.durable(f"d{after}", start) if is_durable else scene.subscribe(start)
        if is_durable:
            scene.turn()
            scene.crash()
            subscription = scene.durable(f"d{after}", None)
        scene.settle()
        while is_durable and scene.acknowledge(subscription, 20):
            scene.settle()
        assert ids(scene, subscription) == [ahead.message(0).id] * (not after) + scene.wanted(subscription)


def test_retention_of_more_commits_than_are_kept_lets_the_oldest_go_and_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.broker.retentions.MAX_RETAINED_RUNS", 16)
    scene = ReplayScene()
    # Most messages are in the first commit: it is commits that are bounded.
    for count in (50, *[1] * 25):
        scene.publish(count, "a.x")
        scene.turn_until_safe()
    scene.core.retentions.trim(scene.now)
    cursor = scene.core.retentions.cursor_of("a.>")
    assert cursor is not None
    assert len(cursor.waiting.runs.starts) == 14
    counts = scene.core.statistics()
    assert (counts.retained_messages_now, counts.retained_cut) == (14, 61)
    # Publishers and replays notice nothing.
    scene.publish(3, "a.x")
    subscription = scene.subscribe(ReplayStart())
    scene.settle()
    assert ids(scene, subscription) == [each.id for each in scene.sent[-17:]]


def test_retained_messages_go_when_they_are_too_old_or_too_many() -> None:
    scene = ReplayScene(RetainedTopic(topic="a.x", age="2s"), RetainedTopic(topic="a.y", bytes=4_000))
    for _ in range(40):
        scene.now += 100
        scene.publish(2, "a.x")
        scene.publish(2, "a.y")
        scene.turn()
    scene.settle()
    scene.core.retentions.trim(scene.now)
    scene.settle()
    old, many = scene.subscribe(ReplayStart(), "a.x"), scene.subscribe(ReplayStart(), "a.y")
    scene.settle()
    fresh = [each.id for each in scene.sent if each.topic == "a.x" and each.id.time >= scene.now - 2_000]
    assert set(fresh) <= set(ids(scene, old))
    # A record goes as a whole or not at all; it holds what came within one turn.
    assert len(ids(scene, old)) < len(fresh) + 20
    last = [each.id for each in scene.sent if each.topic == "a.y"]
    kept = ids(scene, many)
    assert 5 < len(kept) < 40
    assert kept == last[-len(kept) :]
    assert scene.log.statistics().segments_now < 12


def test_retention_that_the_settings_do_not_name_any_more_ends() -> None:
    scene = ReplayScene()
    scene.publish(50, "a.x")
    scene.settle()
    scene.settings = StoreSettings(retain=[RetainedTopic(topic="b")], segment_bytes=4_096)
    scene.start()
    scene.settle()
    assert scene.core.statistics().retained_messages_now == 0
    with pytest.raises(BrokerError, match="retained are: b"):
        scene.subscribe(ReplayStart(), "a.x")


def test_replay_reads_no_further_than_its_client_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.replays.MAX_AHEAD", 10)
    scene = ReplayScene()
    for _ in range(40):
        scene.publish(5, "a.x")
        scene.turn()
    subscription = scene.subscribe(ReplayStart())
    scene.core.congested(scene.reader)
    for _ in range(100):
        scene.turn()
    assert not scene.core.unfinished
    assert subscription.waiting.stored < 100
    scene.note(scene.core.drained(scene.reader, scene.now))
    scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)


def test_what_nobody_but_retention_wants_is_on_record_as_wanted_by_nobody() -> None:
    told: list[str] = []
    retained: list[int] = []

    class Recorder:
        def __getattr__(self, name: str) -> object:
            return lambda *_: told.append(name)

        def dropped(self, batch: Batch, rows: NDArray[np.int64], link: int, reason: str, now: int) -> None:
            assert (link, reason) == (0, "retained")
            retained.extend(rows.tolist())

    scene = ReplayScene(recorder=Recorder())  # type: ignore[arg-type]
    told.clear()
    scene.publish(3, "a.x")
    expired = Batch.build([Draft("a.x", expiry=1)])
    scene.note(scene.core.receive(expired, scene.writer, scene.now))
    scene.settle()
    assert set(told) <= {"accepted", "publishes"}
    # Later subscribers may get these, which a reader of the record has to know.
    assert retained == [0, 1, 2]
    statistics = scene.core.statistics()
    assert statistics.retained_messages_now == 3
    assert (statistics.matched_nobody, statistics.shed_expired) == (4, 0)
    scene.subscribe(None, "a.x")
    scene.publish(3, "a.x")
    assert scene.core.statistics().matched_nobody == 4
    assert len(retained) == 3


def test_durable_replay_that_its_limit_stopped_goes_on_after_a_restart() -> None:
    scene = ReplayScene(at_limit="stop")
    scene.publish(50, "a.x")
    scene.settle()
    durables = scene.core.durables
    assert durables is not None
    durables.stop([scene.durable("n", ReplayStart())], scene.now)
    # It ends in good order, before any of the history was read.
    while (commit := scene.log.take_commit(scene.now)) is not None:
        carry_out(commit, scene.disk)
        scene.log.committed(commit)
    scene.start()
    subscription = scene.durable("n", None)
    scene.publish(5, "a.x")
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)


@pytest.mark.parametrize("policy", OverflowPolicy)
def test_what_comes_never_overtakes_history_that_still_waits(policy: OverflowPolicy) -> None:
    scene = ReplayScene()
    for _ in range(10):
        scene.publish(5, "a.x")
    scene.turn_until_safe()
    subscription = scene.core.subscribe(
        scene.reader, "k", "a.>", "", AckMode.INDIVIDUAL, policy, scene.now, ReplayStart()
    )
    scene.settle()
    assert len(scene.core.replays) == 0
    assert len(ids(scene, subscription)) == 20
    scene.publish(5, "a.x")
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    # Nothing waits on disk any more: what comes goes the short way again.
    assert (subscription.stores, subscription.cursor) == (False, None)
    scene.publish(5, "a.x")
    scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)


def test_history_that_a_durable_subscription_asked_for_is_not_too_old_before_it_has_waited() -> None:
    scene = ReplayScene(max_age_seconds=60)
    scene.publish(50, "a.x")
    scene.settle()
    durables = scene.core.durables
    assert durables is not None
    scene.now += 3_600_000
    subscription = scene.durable("n", ReplayStart())
    scene.settle()
    assert subscription.waiting.stored
    scene.now += 59_000
    durables.expire(scene.now)
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)
    # Nobody takes what comes then: it has waited too long, as ever.
    scene.core.congested(scene.reader)
    scene.publish(5, "a.x")
    scene.settle()
    scene.now += 120_000
    durables.expire(scene.now)
    scene.settle()
    assert subscription.waiting.stored == 0
    assert subscription.shed == len(scene.wanted(subscription)) - len(ids(scene, subscription))


def test_history_is_what_the_subscription_wanted_when_it_began_also_after_a_restart() -> None:
    scene = ReplayScene()
    scene.publish(30, "a.x")
    scene.settle()
    before = scene.wanted(scene.durable("n", ReplayStart()))
    durables = scene.core.durables
    assert durables is not None
    scene.core.unsubscribe(scene.reader, "n", scene.now)
    arguments = (scene.reader, "n", ("c", "n"), "a.x", "n = 2", AckMode.INDIVIDUAL, scene.now)
    durables.subscribe(*arguments, Outbox())
    # It ends in good order, before any of the history was read.
    while (commit := scene.log.take_commit(scene.now)) is not None:
        carry_out(commit, scene.disk)
        scene.log.committed(commit)
    scene.start()
    durables = scene.core.durables
    assert durables is not None
    subscription = durables.subscribe(scene.reader, *arguments[1:], Outbox())
    scene.publish(10, "a.x")
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    assert ids(scene, subscription) == before + scene.wanted(subscription, first=30)
