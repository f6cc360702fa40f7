"""The writer of a running broker's record, on a disk that does not answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.config import BrokerConfig, TrackingConfig
from postroad.messages import Batch, MessageId
from postroad.recording import writer as writer_module
from postroad.recording.recorders import make_recorder
from postroad.recording.writer import RecordWriter
from postroad.tracking import ExactRecorder, Verdict, chronicle
from postroad.trail import Backlog, Trail, TrailWriter
from postroad.trail.coverage import GIVEN_UP
from tests.server.scene import PATIENCE, run, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.config import RecorderName
    from postroad.tracking import Job

BROKER = 4
NOON = 1_800_000_000_000
ROWS = 1_000
# A book with little in it has a chunk anyway.
BOOK_BYTES = 3 << 20


class StuckBacklog(Backlog):
    """Waits in the middle of writing, until it is let go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(lambda now: TrailWriter(root, BROKER, now), 1 << 24)
        self.answers = threading.Event()

    def take(self, job: Job, now: int, told_until: int = 0) -> None:
        self.answers.wait()
        super().take(job, now, told_until)


def messages(second: int) -> Batch:
    """Some messages that enter at this second."""
    batch = Batch.build([("quotes", {}, {}, b"1")] * ROWS)
    for row in range(ROWS):
        identity = MessageId(7, BROKER, NOON + 1_000 * second, row)
        batch.ids[row] = identity.head, identity.tail
    return batch


def test_memory_stays_bounded_while_a_disk_does_not_answer_and_the_trail_names_what_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "HANG_SECONDS", 0.05)
    # Only what the test tells is written.
    monkeypatch.setattr(writer_module, "LOOK_SECONDS", 3_600)
    now = [NOON]

    async def talk() -> None:
        recorder = ExactRecorder(BROKER, NOON, persist_ms=1_000)
        backlog = StuckBacklog(tmp_path)
        most = 10 * BOOK_BYTES
        keeper = RecordWriter(recorder, backlog, lambda: now[0], held_bytes=most)
        await keeper.start()
        for second in range(1, 60):
            now[0] = NOON + 1_000 * second
            recorder.accepted(messages(second), now[0])
            now[0] += 1
            await keeper.keep(force=True)
            # The job that hangs cannot be given up, nor the latest.
            assert recorder.statistics().held_bytes <= most + 2 * BOOK_BYTES
        assert "has not answered" in keeper.trouble
        monkeypatch.setattr(writer_module, "HANG_SECONDS", PATIENCE)
        backlog.answers.set()
        while keeper.trouble:
            await keeper.keep()
        await keeper.stop()

    run(talk)
    trail = Trail(tmp_path)

    def verdict(second: int) -> Verdict:
        identity = MessageId(7, BROKER, NOON + 1_000 * second, 3)
        return trail.trace(identity, tolerance=0, skew=0).journey.verdict

    verdicts = [verdict(second) for second in range(1, 60)]
    assert verdicts[0] is Verdict.MATCHED_NOBODY
    assert verdicts[-1] is Verdict.MATCHED_NOBODY
    given_up = verdicts.index(Verdict.NOT_RECORDED) + 1
    assert Verdict.NEVER_ACCEPTED not in verdicts
    gaps = trail.findings(BROKER, MessageId(7, BROKER, NOON + 1_000 * given_up, 3), tolerance=0, skew=0).gaps
    assert [gap.reason for gap in gaps] == [GIVEN_UP]
    assert trail.warnings == []


def test_memory_stays_bounded_while_the_record_comes_faster_than_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LOOK_SECONDS", 0.001)
    most, text = 10 * BOOK_BYTES, "x" * 1_000_000
    now = [NOON]
    written: list[bool] = []

    async def talk() -> None:
        recorder = ExactRecorder(BROKER, NOON, persist_ms=1)
        backlog = StuckBacklog(tmp_path)
        keeper = RecordWriter(recorder, backlog, lambda: now[0], held_bytes=most)
        await keeper.start()
        now[0] += 1
        await until(lambda: recorder.statistics().pending_jobs == 1)
        for second in range(1, 100):
            now[0] = NOON + 1_000 * second
            recorder.accepted(messages(second), now[0])
            recorder.subscribed(second, "ann", "quotes", text, now[0])
            if second == 50:
                keeper.when_written(written.append)
            await until(lambda: recorder.statistics().held_bytes < writer_module.BUSY_SHARE * most + len(text))
        assert keeper.trouble == ""
        backlog.answers.set()
        await until(lambda: bool(written))
        await keeper.stop()

    run(talk)
    assert written == [False]
    trail = Trail(tmp_path)

    def verdict(second: int) -> Verdict:
        identity = MessageId(7, BROKER, NOON + 1_000 * second, 3)
        return trail.trace(identity, tolerance=0, skew=0).journey.verdict

    assert [verdict(50), verdict(99)] == [Verdict.NOT_RECORDED, Verdict.MATCHED_NOBODY]
    assert [hole.reason for hole in trail.pinned(BROKER).holes] == [GIVEN_UP]


def test_a_record_can_be_ended_though_its_disk_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HANG_SECONDS", 0.05)

    async def talk() -> None:
        recorder = ExactRecorder(BROKER, NOON, persist_ms=1)
        backlog = StuckBacklog(tmp_path)
        keeper = RecordWriter(recorder, backlog, lambda: NOON + 10)
        await keeper.start()
        recorder.accepted(messages(0), NOON)
        await until(lambda: bool(keeper.trouble))
        await keeper.stop()
        backlog.answers.set()

    run(talk)
    assert not Trail(tmp_path).pinned(BROKER).runs[0].closed


class CountingBacklog(Backlog):
    """Counts the rows that wait to be written."""

    def __init__(self, root: Path) -> None:
        super().__init__(lambda now: TrailWriter(root, BROKER, now), 1 << 24)
        self.most_waiting = 0

    def take(self, job: Job, now: int, told_until: int = 0) -> None:
        super().take(job, now, told_until)
        self.most_waiting = max(self.most_waiting, self.statistics().waiting_now)


@pytest.mark.parametrize("name", ["exact", "sealed", "bloom", "log"])
def test_a_subscriber_that_leaves_much_behind_is_recorded_row_by_row_in_bounded_pieces(
    name: RecorderName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chronicle, "SHED_CHAPTER_ROWS", 2 * ROWS)
    monkeypatch.setattr(writer_module, "LOOK_SECONDS", 3_600)
    seconds = range(1, 12)

    async def talk() -> None:
        recorder = make_recorder(BrokerConfig(number=BROKER, tracking=TrackingConfig(recorder=name)), NOON)
        assert recorder is not None
        backlog = CountingBacklog(tmp_path)
        now = [NOON]
        keeper = RecordWriter(recorder, backlog, lambda: now[0])
        await keeper.start()
        now[0] += 20_000
        for second in seconds:
            batch = messages(second)
            recorder.accepted(batch, NOON + 1_000 * second)
            recorder.shed(batch, np.arange(ROWS), 5, "session closed", NOON + 19_000)
        await keeper.keep(force=True)
        assert recorder.statistics().pending_jobs == 0
        assert backlog.statistics().commits == 6
        assert backlog.most_waiting == 1
        await keeper.stop()

    run(talk)
    rows = [entry.rows for entry in Trail(tmp_path).pinned(BROKER).all_entries("shed")[0]]
    assert rows == [2 * ROWS] * 5 + [ROWS]
    found = Trail(tmp_path).findings(BROKER, MessageId(7, BROKER, NOON + 3_000, 3), tolerance=0, skew=0)
    assert [(drop.subscription, drop.reason) for drop in found.dropped] == [(5, "session closed")]


@pytest.mark.parametrize("works", [True, False])
def test_who_waits_for_the_record_learns_that_it_is_written_or_that_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    # A disk may take its time, but one that fails is not waited for.
    monkeypatch.setattr(writer_module, "PATIENCE_SECONDS", PATIENCE if works else 0.3)
    told: list[tuple[bool, bool]] = []

    async def talk() -> None:
        recorder = ExactRecorder(BROKER, NOON, persist_ms=3_600_000)
        backlog = Backlog(lambda now: TrailWriter(tmp_path, BROKER, now), 1 << 24)
        now = NOON
        keeper = RecordWriter(recorder, backlog, lambda: now)
        await keeper.start()
        now = NOON + 3_000
        if not works:
            monkeypatch.setattr(TrailWriter, "commit", refuse)
        for second in (1, 2):
            recorder.accepted(messages(second), NOON + 1_000 * second)
            there = MessageId(7, BROKER, NOON + 1_000 * second, 0)
            keeper.when_written(lambda written, there=there: told.append((written, is_there(there))))  # type: ignore[misc]
        await until(lambda: len(told) == 2)
        monkeypatch.undo()
        await keeper.stop()

    def is_there(message: MessageId) -> bool:
        return Trail(tmp_path).findings(BROKER, message).accepted is not None

    def refuse(*_: object) -> None:
        raise OSError("no space left on device")

    run(talk)
    assert told == [(works, works)] * 2
