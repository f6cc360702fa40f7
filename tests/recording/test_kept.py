"""The record of a running broker when its disk fails, its clock is set back or its process dies: what it still says."""

from __future__ import annotations

import random
import shutil
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.filters import Shape
from postroad.messages import Batch, MessageId
from postroad.recording import LiveRecord
from postroad.recording import record as record_module
from postroad.recording import writer as writer_module
from postroad.recording.recovery import recover
from postroad.tracking import (
    BloomRecorder,
    ExactRecorder,
    HistorySettings,
    LogRecorder,
    NamedSubscription,
    Reconstruction,
    SealedRecorder,
    Verdict,
)
from postroad.tracking.journaled_recorder import Journaled
from postroad.trail import Journal, Trail, TrailError, journal_folder
from postroad.trail.coverage import GapReason
from tests.server.scene import PATIENCE, run, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.tracking import Journey, TrackingRecorder

    Fresh = Callable[[int], TrackingRecorder]

BROKER = 4
PUBLISHER = 7
NOON = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
ROWS = 200
# Less than the rows of one job.
LITTLE_BYTES = 1 << 10


@pytest.fixture(autouse=True)
def nothing_happens_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "LOOK_SECONDS", 3_600)
    monkeypatch.setattr(record_module, "UPKEEP_SECONDS", 3_600)


def exact(at: int) -> TrackingRecorder:
    return ExactRecorder(BROKER, at, MINUTE)


SMALL = HistorySettings(capacity=30, interval=MINUTE, linger=0, shape=Shape(1 << 12, 8, 30))
RECORDERS: dict[str, Fresh] = {
    "exact": exact,
    "log": lambda at: LogRecorder(BROKER, SMALL, at),
    "sealed": lambda at: SealedRecorder(BROKER, SMALL, at),
    "bloom": lambda at: BloomRecorder(BROKER, SMALL, at),
}


class Life:
    """A broker's tracking on a clock of its own."""

    def __init__(
        self,
        root: Path,
        now: int,
        journal: bool = True,
        bytes_waiting: int = 1 << 20,
        fresh: Fresh = exact,
        skew_ms: int = 1_500,
    ) -> None:
        self.now = now
        kept = Journal(root, BROKER) if journal else None
        self.recorder = fresh(now)
        self.tracking = LiveRecord(
            self.recorder if kept is None else Journaled(self.recorder, kept.append),
            root,
            BROKER,
            lambda: self.now,
            bytes_waiting,
            journal=kept,
            recover=None if kept is None else lambda: recover(root, BROKER, fresh),
            skew_ms=skew_ms,
        )

    async def receives(self, count: int = ROWS) -> MessageId:
        """Some messages enter now, and with a journal all have their receipts; returns the id of one."""
        batch = Batch.build([("quotes", {}, {}, b"1")] * count)
        for row in range(count):
            identity = MessageId(PUBLISHER, BROKER, self.now, row)
            batch.ids[row] = identity.head, identity.tail
        self.tracking.recorder.accepted(batch, self.now)
        if self.tracking.journal is not None:
            self.tracking.journal.journal.sync()
            safe: list[bool] = []
            self.tracking.when_safe(safe.append)
            assert safe == [True]
        return MessageId(PUBLISHER, BROKER, self.now, count - 1)

    async def goes_on(self, ms: int, looks: int = 1) -> None:
        """Time goes by, in which the record is looked after."""
        for _ in range(looks):
            self.now += ms // looks
            await self.tracking.writer.keep()
        if self.tracking.journal is not None:
            await self.tracking.journal.release()

    async def tells(self, message: MessageId) -> Journey:
        """Where a message went, as this broker says now."""
        question = Reconstruction(message)
        question.to_ask()
        question.tell(BROKER, (await self.tracking.answer(message)).findings)
        return question.journey()


async def lived(root: Path, now: int, ms: int = MINUTE, fresh: Fresh = exact) -> None:
    """A broker is started, and stopped in good order."""
    life = Life(root, now, fresh=fresh)
    await life.tracking.start()
    life.now += ms
    await life.tracking.stop()


def is_in_the_way(root: Path, table: str = "passages") -> Callable[[], None]:
    """A file stands where a directory has to be, as on a disk that takes nothing; the answer removes it."""
    place = root / table
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("no directory")
    return place.unlink


def has_on_record(root: Path, message: MessageId) -> bool:
    return [stop.broker for stop in Trail(root).trace(message).journey.stops] == [BROKER]


@pytest.mark.parametrize("place", ["passages", "manifests"])
def test_what_has_a_receipt_survives_though_the_trail_gave_it_up_before_the_crash(tmp_path: Path, place: str) -> None:
    root, crashed = tmp_path / "trail", tmp_path / "crashed"

    async def talk() -> None:
        gone = is_in_the_way(root, place)
        life = Life(root, NOON, bytes_waiting=LITTLE_BYTES)
        await life.tracking.start()
        life.now += 20 * SECOND
        message = await life.receives()
        await life.goes_on(10 * MINUTE, looks=3)
        assert life.tracking.statistics()["given_up"] > 0
        gone()
        # What comes later is stored, and its part of the journal goes.
        await life.goes_on(10 * MINUTE, looks=3)
        later = await life.receives()
        await life.goes_on(10 * MINUTE, looks=3)
        shutil.copytree(root, crashed)
        await life.tracking.stop()
        await lived(crashed, life.now + MINUTE)
        assert has_on_record(crashed, message)
        assert has_on_record(crashed, later)
        assert not list(journal_folder(crashed, BROKER).iterdir())

    run(talk)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RECORDERS)
def test_nothing_with_a_receipt_is_missing_after_a_crash_whatever_went_before(
    tmp_path: Path, name: str, seed: int
) -> None:
    """Some messages at a time, looks at the record in between, and a clock that is set back now and then."""
    root, crashed = tmp_path / "trail", tmp_path / "crashed"
    chance = random.Random(seed)

    async def talk() -> None:
        life = Life(root, NOON, bytes_waiting=LITTLE_BYTES, fresh=RECORDERS[name])
        await life.tracking.start()
        known: list[MessageId] = []
        for _ in range(40):
            life.now += chance.randrange(1, 20 * SECOND)
            step = chance.randrange(8)
            if step == 0:
                life.now -= chance.randrange(10 * SECOND, HOUR)
                await life.goes_on(1)
            elif step < 4:
                known.append(await life.receives(chance.randrange(1, 50)))
            else:
                await life.goes_on(chance.randrange(1, 30 * SECOND))
        shutil.copytree(root, crashed)
        await life.tracking.stop()
        await lived(crashed, life.now + MINUTE, fresh=RECORDERS[name])
        trail = Trail(crashed)
        missing = [one for one in known if trail.findings(BROKER, one).accepted is None]
        assert not missing

    run(talk)


def test_a_journal_that_could_not_be_recovered_is_at_a_later_start_whatever_was_between(tmp_path: Path) -> None:
    root = tmp_path / "crashed"

    async def talk() -> None:
        life = Life(tmp_path / "trail", NOON)
        await life.tracking.start()
        life.now += 20 * SECOND
        message = await life.receives()
        shutil.copytree(tmp_path / "trail", root)
        await life.tracking.stop()
        gone = is_in_the_way(root)
        await lived(root, NOON + 10 * MINUTE)
        # Not written; but the journal stays, and answers.
        assert not list(root.glob("passages/broker=*/date=*/*.parquet"))
        assert has_on_record(root, message)
        gone()
        await lived(root, NOON + 20 * MINUTE)
        assert has_on_record(root, message)
        assert not list(journal_folder(root, BROKER).iterdir())
        # Complete up to the crash, and not beyond it.
        never = MessageId(PUBLISHER, BROKER, message.time - 1, 9)
        assert Trail(root).trace(never, tolerance=0, skew=0).journey.verdict is Verdict.NEVER_ACCEPTED
        after = MessageId(PUBLISHER, BROKER, message.time + SECOND, 9)
        assert Trail(root).trace(after, tolerance=0, skew=0).journey.verdict is Verdict.NOT_RECORDED

    run(talk)


def test_what_waits_for_the_trail_is_there_when_the_journal_cannot_be_read(tmp_path: Path) -> None:
    """As the receipts of late ids wait: a question about one does not lead to a journal that is large, or elsewhere."""
    root = tmp_path / "crashed"

    async def talk() -> None:
        life = Life(tmp_path / "trail", NOON)
        await life.tracking.start()
        life.now += 20 * SECOND
        message = await life.receives()
        safe: list[bool] = []
        life.tracking.when_safe(safe.append, in_trail=True)
        assert safe == []
        await life.tracking.writer.keep()
        assert safe == [True]
        shutil.copytree(tmp_path / "trail", root)
        shutil.rmtree(root / "journal")
        assert has_on_record(root, message)
        await life.tracking.stop()

    run(talk)


def test_a_recovery_adds_nothing_that_the_trail_has(tmp_path: Path) -> None:
    root = tmp_path / "crashed"

    async def talk() -> None:
        life = Life(tmp_path / "trail", NOON)
        await life.tracking.start()
        life.now += SECOND
        written = await life.receives()
        life.now += 2 * MINUTE
        # The journal is not let go of yet.
        await life.tracking.writer.keep()
        life.now += SECOND
        open_yet = await life.receives()
        shutil.copytree(tmp_path / "trail", root)
        await life.tracking.stop()
        await lived(root, life.now + MINUTE)
        files, _ = Trail(root).files("passages", BROKER)
        assert sum(file.rows for file in files) == 2 * ROWS
        assert has_on_record(root, written)
        assert has_on_record(root, open_yet)

    run(talk)


def test_a_live_answer_does_not_deny_what_was_given_up(tmp_path: Path) -> None:
    async def talk() -> None:
        gone = is_in_the_way(tmp_path)
        life = Life(tmp_path, NOON, journal=False, bytes_waiting=LITTLE_BYTES)
        await life.tracking.start()
        life.now += 20 * SECOND
        message = await life.receives()
        assert (await life.tells(message)).verdict is Verdict.MATCHED_NOBODY
        await life.goes_on(10 * MINUTE, looks=3)
        assert life.tracking.statistics()["given_up"] > 0
        assert (await life.tells(message)).verdict is Verdict.NOT_RECORDED
        gone()
        await life.goes_on(10 * MINUTE, looks=3)
        assert (await life.tells(message)).verdict is Verdict.NOT_RECORDED
        # What came after is on record, and what did not come is certainly not.
        later = await life.receives()
        assert (await life.tells(later)).verdict is Verdict.MATCHED_NOBODY
        never = MessageId(PUBLISHER, BROKER, later.time, 60_000)
        assert (await life.tells(never)).verdict is Verdict.NEVER_ACCEPTED
        await life.tracking.stop()

    run(talk)


def test_what_was_sealed_and_given_up_is_not_denied_though_older_records_were_stored_later(tmp_path: Path) -> None:
    """A history of another origin is open since before, so that the job that is given up says little of its time."""
    sizes = HistorySettings(capacity=ROWS, interval=MINUTE, linger=0)

    async def talk() -> None:
        gone = is_in_the_way(tmp_path, "filters")
        life = Life(tmp_path, NOON, False, LITTLE_BYTES // 4, lambda at: SealedRecorder(BROKER, sizes, at))
        await life.tracking.start()
        life.now += SECOND
        other = Batch.build([("quotes", {}, {}, b"1")])
        foreign = MessageId(1, BROKER + 1, life.now, 0)
        other.ids[0] = foreign.head, foreign.tail
        life.tracking.recorder.arrived(other, BROKER + 1, life.now)
        life.now += 30 * SECOND
        message = await life.receives()
        await life.goes_on(20, looks=2)
        assert life.tracking.statistics()["given_up"] > 0
        gone()
        await life.goes_on(5 * MINUTE, looks=3)
        await life.tracking.stop()
        assert Trail(tmp_path).findings(BROKER, foreign).arrived is not None
        assert Trail(tmp_path).trace(message, tolerance=0, skew=0).journey.verdict is Verdict.NOT_RECORDED

    run(talk)


def test_a_search_for_an_alias_holds_up_no_writing_and_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    search = Trail.aliased

    def slow(trail: Trail, alias: str) -> list[MessageId]:
        goes_on.wait()
        return search(trail, alias)

    monkeypatch.setattr(Trail, "aliased", slow)

    async def talk() -> None:
        life = Life(tmp_path, NOON)
        await life.tracking.start()
        message = await life.receives()
        life.tracking.recorder.aliased("order-7", message.head, message.tail, life.now)
        monkeypatch.setattr(record_module, "ALIAS_SECONDS", 0.01)
        for _ in range(record_module.MOST_SEARCHES):
            with pytest.raises(TrailError, match="within"):
                await life.tracking.aliased("order-7")
        with pytest.raises(TrailError, match="again in a moment"):
            await life.tracking.aliased("order-7")
        await life.goes_on(2 * MINUTE)
        assert has_on_record(tmp_path, message)
        goes_on.set()
        monkeypatch.setattr(record_module, "ALIAS_SECONDS", PATIENCE)
        await until(lambda: not life.tracking.searches)
        assert await life.tracking.aliased("order-7") == ([message], [])
        await life.tracking.stop()

    run(talk)


def test_an_id_of_a_time_to_come_is_not_recorded_live_and_on_the_trail(tmp_path: Path) -> None:
    async def talk() -> None:
        life = Life(tmp_path, NOON)
        await life.tracking.start()
        life.now += 20 * SECOND
        await life.receives()
        await life.goes_on(2 * MINUTE)
        to_come = MessageId(PUBLISHER, BROKER, NOON + 30_000 * HOUR, 1)
        assert (await life.tells(to_come)).verdict is Verdict.NOT_RECORDED
        assert Trail(tmp_path).trace(to_come).journey.verdict is Verdict.NOT_RECORDED
        await life.tracking.stop()

    run(talk)


def test_live_answers_name_clients_long_after_they_came(tmp_path: Path) -> None:
    async def talk() -> None:
        life = Life(tmp_path, NOON)
        await life.tracking.start()
        life.tracking.recorder.publishes(PUBLISHER, "feed", life.now)
        life.tracking.recorder.subscribed(3, "trader", "quotes", "price > 1", life.now)
        for _ in range(3):
            life.now += 10 * SECOND
            batch = Batch.build([("quotes", {}, {}, b"1")])
            message = MessageId(PUBLISHER, BROKER, life.now, 0)
            batch.ids[0] = message.head, message.tail
            life.tracking.recorder.accepted(batch, life.now)
            life.tracking.recorder.delivered(batch, np.zeros(1, np.int32), 3, life.now)
            answer = await life.tracking.answer(message)
            assert answer.publisher == "feed"
            assert answer.subscriptions == (NamedSubscription(3, "trader", "quotes", "price > 1"),)
            await life.goes_on(2 * MINUTE)
        await life.tracking.stop()

    run(talk)


@pytest.mark.parametrize("journal", [True, False])
def test_what_enters_after_the_clock_was_set_back_is_written_in_time_and_never_denied(
    tmp_path: Path, journal: bool
) -> None:
    root, crashed = tmp_path / "trail", tmp_path / "crashed"

    async def talk() -> None:
        life = Life(root, NOON, journal)
        await life.tracking.start()
        await life.goes_on(2 * HOUR)
        life.now -= HOUR
        await life.goes_on(SECOND)
        written = await life.receives()
        await life.goes_on(3 * MINUTE, looks=3)
        assert life.tracking.statistics()["open_entries_now"] == 0
        assert has_on_record(root, written)
        open_yet = await life.receives()
        await life.goes_on(SECOND)
        shutil.copytree(root, crashed)
        await life.tracking.stop()
        story = Trail(crashed).trace(open_yet).journey
        # The journal of a process that is gone has it.
        assert story.verdict is (Verdict.RECORDED_IN_PART if journal else Verdict.NOT_RECORDED)
        assert GapReason.SET_BACK in {gap.reason for _, gap in story.gaps}
        if journal:
            await lived(crashed, life.now + MINUTE)
            assert has_on_record(crashed, open_yet)

    run(talk)


def test_a_broker_that_starts_after_the_clock_was_set_back_denies_nothing(tmp_path: Path) -> None:
    root, crashed = tmp_path / "trail", tmp_path / "crashed"

    async def talk() -> None:
        await lived(root, NOON, 2 * HOUR)
        life = Life(root, NOON + HOUR, journal=False)
        await life.tracking.start()
        life.now += SECOND
        message = await life.receives()
        shutil.copytree(root, crashed)
        await life.tracking.stop()
        assert Trail(crashed).trace(message).journey.verdict is Verdict.NOT_RECORDED
        assert has_on_record(root, message)

    run(talk)


@pytest.mark.parametrize(("skew_ms", "reasons"), [(1_500, []), (60_000, [GapReason.CRASHED])])
def test_a_running_broker_looks_as_far_around_an_id_as_its_clock_may_be_off(
    tmp_path: Path, skew_ms: int, reasons: list[str]
) -> None:
    """An id of ten seconds after the start that followed a crash concerns the crash only if clocks differ as much."""
    root, crashed = tmp_path / "trail", tmp_path / "crashed"

    async def talk() -> None:
        life = Life(root, NOON, journal=False)
        await life.tracking.start()
        await life.goes_on(MINUTE)
        shutil.copytree(root, crashed)
        await life.tracking.stop()
        life = Life(crashed, NOON + HOUR, journal=False, skew_ms=skew_ms)
        await life.tracking.start()
        message = MessageId(PUBLISHER, BROKER, life.now + 10 * SECOND, 0)
        await life.goes_on(MINUTE)
        found = (await life.tracking.answer(message)).findings
        await life.tracking.stop()
        assert [gap.reason for gap in found.gaps] == reasons

    run(talk)
