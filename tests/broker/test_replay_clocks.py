"""Replays from a time and from an id, while the clocks of publishers are wrong by up to a day, beside a plain twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from postroad.broker import AckMode, Outbox, ReplayStart
from postroad.messages import Batch, IdGenerator
from postroad.store import Log, recover
from tests.broker.replay_scene import ReplayScene, ids

if TYPE_CHECKING:
    from postroad.broker import Session, Subscription
    from postroad.messages import MessageId

DAY = 86_400_000
SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(25)


class SkewedScene(ReplayScene):
    """Publishers that give their ids by clocks of their own."""

    def start(self) -> None:
        super().start()
        self.now = max(self.now, 10 * DAY)
        self.clocks: list[tuple[Session, IdGenerator, int]] = []
        for number in range(3):
            session = self.core.attached(f"p{number}")
            publisher, _ = self.core.assigns_ids(session, f"token {number}", self.now)
            # The last one goes right; the others are ahead, or behind.
            skew = [DAY, -DAY, 0][number] * self.random.random() * self.random.random()
            self.clocks.append((session, IdGenerator(publisher.number, 1), int(skew)))
        self.worker = self._works()

    def _works(self) -> Subscription:
        """A durable subscriber to what is not retained, so that segments become sparse and records move."""
        durables = self.core.durables
        assert durables is not None
        return durables.subscribe(self.reader, "b", ("c", "b"), "b", "", AckMode.INDIVIDUAL, self.now, Outbox(), None)

    def publish_skewed(self) -> None:
        self.now += self.random.choice([1, 1_000, 600_000])
        session, generator, skew = self.random.choice(self.clocks)
        count = self.random.randrange(1, 6)
        batch = Batch.build([("a.x", {"n": 1}, (), b"." * 40)] * count)
        batch.ids[:] = generator.take(self.now + skew, count)
        outbox, _ = self.core.receive_identified(batch, session, self.now)
        assert not outbox.unstorable
        self.sent += [batch.message(row) for row in range(count)]
        self.note(outbox)

    def expected(self, first: int, since: int, began: int) -> list[MessageId]:
        """What was retained then, from one message on and from a time on; and all that came since."""
        kept = [each.id for each in self.sent if each.topic != "b"]
        return [each for each in kept[first:began] if each.time >= since] + kept[began:]


def _start(scene: SkewedScene, kept: list[MessageId]) -> tuple[ReplayStart, int, int]:
    """Where a replay begins; the first message of it, and the time of its messages."""
    place = scene.random.randrange(len(kept))
    chosen = kept[place]
    if scene.random.random() < 0.6:
        since = chosen.time + scene.random.choice([-1, 0, 1])
        return ReplayStart(since=since), 0, since
    after = scene.random.random() < 0.5
    return ReplayStart(id=chosen, after=after), place + after, 0


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_from_a_time_or_an_id_misses_and_repeats_nothing_whatever_the_clocks_say(seed: int) -> None:
    scene = SkewedScene(seed=seed)
    for _ in range(scene.random.randrange(10, 60)):
        action = scene.random.randrange(10)
        if action < 5:
            scene.publish_skewed()
        elif action < 7:
            scene.publish(8, "b")
        elif action < 9:
            scene.turn()
            scene.acknowledge(scene.worker, 20)
        else:
            scene.turn_until_safe()
            scene.crash()
    scene.publish_skewed()
    kept = [each.id for each in scene.sent if each.topic != "b"]
    begun = []
    for _ in range(6):
        start, first, since = _start(scene, kept)
        begun.append((scene.subscribe(start, "a.>"), first, since))
    scene.publish_skewed()
    scene.settle()
    scene.publish_skewed()
    scene.settle()
    for subscription, first, since in begun:
        assert ids(scene, subscription) == scene.expected(first, since, len(kept))


def test_records_that_move_and_restarts_keep_what_replays_are_found_by() -> None:
    scene = SkewedScene(seed=1)
    moved = 0
    for _ in range(30):
        scene.publish_skewed()
        scene.publish(8, "b")
        scene.turn_until_safe()
        while scene.acknowledge(scene.worker, 20):
            scene.turn_until_safe()
        moved += scene.log.statistics().moved_records
        scene.crash()
    assert moved
    kept = [each.id for each in scene.sent if each.topic != "b"]
    latest = max(each.time for each in kept)
    subscription = scene.subscribe(ReplayStart(since=latest), "a.>")
    scene.settle()
    assert ids(scene, subscription) == [each for each in kept if each.time == latest]


def test_replay_from_a_time_reads_only_records_that_may_have_ids_of_it() -> None:
    scene = SkewedScene(seed=2)
    scene.clocks = [(*scene.clocks[2][:2], 0)]
    for _ in range(40):
        scene.publish_skewed()
        scene.turn_until_safe()
    asked: list[int] = []
    record = scene.log.record
    scene.log.record = lambda number: asked.append(number) or record(number)  # type: ignore[method-assign,func-returns-value]
    late = scene.sent[-1].id.time
    subscription = scene.subscribe(ReplayStart(since=late), "a.>")
    scene.settle()
    assert ids(scene, subscription) == [each.id for each in scene.sent if each.id.time >= late]
    assert len(set(asked)) == 1


def test_store_of_a_version_that_kept_no_times_of_ids_is_replayed_whole() -> None:
    scene = SkewedScene(seed=3)
    for _ in range(20):
        scene.publish_skewed()
        scene.turn_until_safe()
    found = recover(scene.disk.segments(), scene.disk.read)
    unknown = found.records.copy()
    unknown[-1] = 2**62
    scene.log = Log(scene.settings, found._replace(records=unknown))
    assert scene.log.first_since(0, DAY * 1_000) == int(unknown[0, 0]) << 20
