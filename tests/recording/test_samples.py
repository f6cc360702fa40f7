"""One read in 64 is timed, from its system call on; what relays bring is for the monitor alone."""

from __future__ import annotations

from postroad.broker import Broker, Limits, Outbox, PublisherNumbers
from postroad.messages import Batch
from postroad.recording import Sampler
from postroad.tracking import BATCHES_PER_SAMPLE, BatchCost, ExactRecorder


class Scene:
    """A sampler with a stopwatch that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000
        self.kept: list[BatchCost] = []
        self.seen: list[tuple[int, float, int]] = []
        core = Broker(1, PublisherNumbers(lambda: 0), Limits())
        recorder = ExactRecorder(1, 0)
        recorder.timed = lambda cost, now: self.kept.append(cost)
        self.sampler = Sampler(
            core, lambda: 5, recorder, lambda *seen: self.seen.append(seen), stopwatch=lambda: self.now
        )

    def read(self, *sizes: int, relayed: bool = False, source: int = 9) -> None:
        """A read that brings batches of these sizes, 100 ns each, after 50 ns in the system call."""
        self.sampler.begin()
        self.now += 50
        for size in sizes:
            self.now += 100
            self.sampler.count(Batch.build([("t",)] * size), Outbox(), relayed)
        self.sampler.end(source)


def test_batches_of_a_read_count_together_from_its_system_call_on() -> None:
    scene = Scene()
    scene.read()  # a heart-beat, say: no sample, and none is used up
    scene.read(3, 4)
    assert [(cost.messages, cost.nanoseconds) for cost in scene.kept] == [(7, 250)]
    assert scene.seen == [(7, 250e-9, 9)]
    assert scene.sampler.messages == 7


def test_one_read_with_messages_in_64_is_timed() -> None:
    scene = Scene()
    for _ in range(3 * BATCHES_PER_SAMPLE):
        scene.read(2)
        scene.read()
    assert len(scene.kept) == len(scene.seen) == 3
    assert scene.sampler.messages == 6 * BATCHES_PER_SAMPLE


def test_relayed_messages_are_for_the_monitor_alone() -> None:
    scene = Scene()
    scene.read(5, relayed=True, source=4)
    assert scene.kept == []
    assert scene.seen == [(5, 150e-9, 4)]


def test_a_read_that_failed_leaves_nothing_to_the_next() -> None:
    scene = Scene()
    scene.sampler.begin()
    scene.now += 10_000
    scene.read(1)
    assert scene.seen == [(1, 150e-9, 9)]


def test_work_that_was_put_off_counts_and_is_not_timed() -> None:
    scene = Scene()
    scene.sampler.count(Batch.build([("t",)] * 3), Outbox())
    assert (scene.sampler.messages, scene.seen) == (3, [])
    scene.read(1)
    assert scene.seen == [(1, 150e-9, 9)]
