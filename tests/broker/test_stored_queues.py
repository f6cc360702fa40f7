"""Rows of subscriptions in the store, without sockets: a core, a log and a simulated disk."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.broker import AckMode, Broker, Limits, Outbox, OverflowPolicy, PublisherNumbers
from postroad.messages import Batch
from postroad.store import Log, SimulatedDisk, StoreSettings, carry_out

if TYPE_CHECKING:
    import pytest

    from postroad.store import DiskCommit


class Scene:
    """A core with a store that is driven by hand."""

    def __init__(self, **settings: Any) -> None:
        blocks = itertools.count(1, 1_000)
        self.core = Broker(1, PublisherNumbers(lambda: next(blocks)), Limits(spool_memory_bytes=1))
        self.log, self.disk = Log(StoreSettings(**settings)), SimulatedDisk()
        self.core.open_store(self.log, np.empty((0, 2), np.uint64), 0)
        self.writer, self.reader = self.core.attached("writer"), self.core.attached("reader")

    def begin(self) -> DiskCommit:
        commit = self.log.take_commit(0)
        assert commit is not None
        return commit

    def end(self, commit: DiskCommit) -> list[int]:
        """Carry a commit out; returns the sessions that go on."""
        carry_out(commit, self.disk)
        self.log.committed(commit)
        return self.core.stored(0).resumes


def batch_of(size: int) -> Batch:
    return Batch.build([("a", {}, (), bytes(size))])


def test_publisher_that_the_disk_pushed_back_goes_on_when_the_disk_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.store.room.MAX_WAITING_BYTES", 4_000)
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 1_000)
    scene = Scene()
    scene.core.subscribe(scene.reader, "s", "a", "", AckMode.AUTO, OverflowPolicy.SPOOL)
    scene.core.congested(scene.reader)
    # The first waits in memory; what comes then waits on disk.
    for _ in range(2):
        assert scene.core.receive(batch_of(100), scene.writer, 0).pauses == []
    first = scene.begin()
    assert scene.core.receive(batch_of(3_000), scene.writer, 0).pauses == [scene.writer.number]
    assert scene.end(first) == []
    assert scene.end(scene.begin()) == [scene.writer.number]


def test_subscription_that_comes_back_gets_rows_that_two_batches_brought_in_order() -> None:
    scene = Scene()
    durables = scene.core.durables
    assert durables is not None

    subscription = durables.subscribe(scene.reader, "k", ("c", "n"), "a", "", AckMode.CLIENT, 0, Outbox())
    scene.end(scene.begin())
    for size in (10, 20, 30):
        scene.core.receive(batch_of(size), scene.writer, 0)
    commit = scene.begin()
    carry_out(commit, scene.disk)
    scene.log.committed(commit)
    delivered = scene.core.stored(0).deliveries
    assert [len(each.batch.message(row).body) for each in delivered for row in each.rows.tolist()] == [10, 20, 30]
    assert len(subscription.unacknowledged) == 3
