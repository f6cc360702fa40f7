"""The journal of a running broker: what is on disk, what a restart makes of it, and what it does not claim."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from postroad.config import TrackingConfig
from postroad.messages import Batch, MessageId
from postroad.recording import journal as journal_module
from postroad.recording.journal import MOST_WAITING, JournalWriter
from postroad.recording.recovery import LAPSED, recover
from postroad.tracking import ExactRecorder, Verdict
from postroad.tracking.journaled_recorder import Journaled, turn_entry
from postroad.trail import Journal, Trail, TrailWriter, journal_folder, replay
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

BROKER = 4
NOON = 1_800_000_000_000


def message(time: int) -> Batch:
    """One message that enters at this time."""
    batch = Batch.build([("quotes", {}, {}, b"1")])
    identity = MessageId(7, BROKER, time, 0)
    batch.ids[0] = identity.head, identity.tail
    return batch


def longer_than(found: list[bool], length: int) -> bool:
    return len(found) > length


def verdict(root: Path, time: int, publisher: int = 7) -> Verdict:
    trail = Trail(root)
    return trail.trace(MessageId(publisher, BROKER, time, 0), tolerance=0, skew=0).journey.verdict


def test_what_the_journal_had_no_room_for_is_a_gap_after_a_crash_and_not_a_no(tmp_path: Path) -> None:
    times = range(NOON + 1_000, NOON + 10_000, 1_000)
    journal = Journal(tmp_path, BROKER, max_waiting_bytes=200)
    TrailWriter(tmp_path, BROKER, NOON)
    recorder = Journaled(ExactRecorder(BROKER, NOON, 60_000, 1 << 24), journal.append)
    for time in times:
        recorder.accepted(message(time), time)
        if time == times[6]:
            journal.sync()
    journal.close()
    lost = journal.statistics().lost_entries
    assert 0 < lost < 7
    kept = len(times) - lost
    assert recover(tmp_path, BROKER, lambda now: ExactRecorder(BROKER, now, 60_000, 1 << 24)) == kept
    TrailWriter(tmp_path, BROKER, NOON + 60_000).close(NOON + 61_000)
    told = [verdict(tmp_path, time) for time in times]
    assert told.count(Verdict.NOT_RECORDED) == lost
    assert Verdict.NEVER_ACCEPTED not in told
    assert verdict(tmp_path, times[0] - 500) is Verdict.NEVER_ACCEPTED
    gap = Trail(tmp_path).findings(BROKER, MessageId(7, BROKER, times[6], 0), tolerance=0, skew=0).gaps
    assert [each.reason for each in gap] == [LAPSED]


def test_entries_that_no_receipt_waits_for_reach_the_disk_too(tmp_path: Path) -> None:
    async def talk() -> None:
        journal = Journal(tmp_path, BROKER)
        keeper = JournalWriter(journal)
        keeper.start()
        journal.append(b"nobody waits")
        await until(lambda: list(replay(tmp_path, BROKER, [])) == [b"nobody waits"])
        assert journal.statistics().lost_entries == 0
        await keeper.stop()

    run(talk)


def test_a_receipt_for_what_had_no_room_is_not_safe_whenever_it_is_asked_for(tmp_path: Path) -> None:
    async def talk() -> None:
        journal = Journal(tmp_path, BROKER, max_waiting_bytes=20)
        keeper = JournalWriter(journal)
        told: list[bool] = []
        keeper.when_safe(told.append)
        journal.append(b"too much for twenty bytes")
        journal.sync()
        keeper.when_safe(told.append)
        journal.append(b"fits")
        journal.sync()
        keeper.when_safe(told.append)
        assert told == [True, False, True]
        await keeper.stop()

    run(talk)


def test_a_receipt_for_several_entries_is_not_safe_if_any_of_them_had_no_room(tmp_path: Path) -> None:
    async def talk() -> None:
        journal = Journal(tmp_path, BROKER, max_waiting_bytes=20)
        keeper = JournalWriter(journal)
        told: list[bool] = []
        keeper.start()
        for entries in ([b"fits"], [b"too much for twenty bytes", b"fits"], [b"fits"]):
            for entry in entries:
                journal.append(entry)
            before = len(told)
            keeper.when_safe(told.append)
            await until(partial(longer_than, told, before))
        assert told == [True, False, True]
        await keeper.stop()

    run(talk)


def test_one_that_fails_keeps_no_other_from_its_receipt_and_not_too_many_wait(tmp_path: Path) -> None:
    async def talk() -> None:
        journal = Journal(tmp_path, BROKER)
        keeper = JournalWriter(journal)
        told: list[tuple[int, bool]] = []

        def fail(safe: bool) -> None:
            raise RuntimeError("a defect")

        def note(number: int, safe: bool) -> None:
            told.append((number, safe))

        journal.append(b"entry")
        # Nothing is synced yet: as if the disk did not answer.
        keeper.when_safe(fail)
        for number in range(MOST_WAITING + 2):
            keeper.when_safe(partial(note, number))
        assert told == [(0, False), (1, False)]
        keeper.start()
        await until(lambda: len(told) == MOST_WAITING + 2)
        assert told[2:] == [(number, True) for number in range(2, MOST_WAITING + 2)]
        await keeper.stop()

    run(talk)


def test_a_journal_that_cannot_be_written_is_told_and_taken_up_again(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, tracking=TrackingConfig(journal=True)) as broker:
            client = await Client.connect(broker.port)
            in_the_way = tmp_path / "trail" / "journal"
            in_the_way.write_text("no directory")

            async def receipt(name: str) -> dict[str, str]:
                client.publish("quotes", b"1", receipt=name)
                return dict((await client.frame()).headers)

            assert (await receipt("r1"))["tracked"] == "false"
            await until(lambda: any("journal" in each for each in broker.troubles()))
            assert (await receipt("r2"))["tracked"] == "false"
            assert broker.tracking is not None
            assert broker.tracking.statistics()["journal_failures"] > 0
            in_the_way.unlink()
            await until(lambda: not broker.troubles())
            assert "tracked" not in await receipt("r3")
            await client.close()
            await asyncio.sleep(0)

    run(talk)


class StuckDisk:
    """A disk whose answers can be held up: whoever forces something to it waits, as on one that is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._answers = threading.Event()
        self._answers.set()
        self._force = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._forced)

    def _forced(self, file: int) -> None:
        self._answers.wait()
        self._force(file)

    def stops_answering(self) -> None:
        self._answers.clear()

    def answers_again(self) -> None:
        self._answers.set()


def test_receipts_do_not_wait_for_ever_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "HANG_SECONDS", 0.3)
    disk = StuckDisk(monkeypatch)

    async def talk() -> None:
        async with service(tmp_path, tracking=TrackingConfig(journal=True)) as broker:
            tracking = broker.tracking
            assert tracking is not None
            client = await Client.connect(broker.port)

            async def receipt(name: str) -> dict[str, str]:
                client.publish("quotes", b"1", receipt=name)
                return dict((await client.frame()).headers)

            assert "tracked" not in await receipt("r1")
            disk.stops_answering()
            assert (await receipt("r2"))["tracked"] == "false"
            assert any("the disk has not answered" in each for each in broker.troubles())
            assert tracking.statistics()["degraded_now"]
            assert (await receipt("r3"))["tracked"] == "false"
            disk.answers_again()
            await until(lambda: not broker.troubles())
            assert "tracked" not in await receipt("r4")
            await client.close()

    run(talk)
    # What waited was written after all.
    assert len(Trail(tmp_path / "trail").pinned(1).runs) == 1


def test_a_broker_can_be_stopped_though_its_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "HANG_SECONDS", 0.1)
    disk = StuckDisk(monkeypatch)

    async def talk() -> None:
        journal = Journal(tmp_path, BROKER)
        keeper = JournalWriter(journal)
        keeper.start()
        disk.stops_answering()
        journal.append(b"entry")
        told: list[bool] = []
        keeper.when_safe(told.append)
        await keeper.stop()
        assert told == [False]
        assert "has not answered" in keeper.trouble
        disk.answers_again()

    run(talk)


def crashed(root: Path, times: range) -> list[Path]:
    """A broker takes a message at each time, each into a segment of its own, and dies; returns the segments."""
    journal = Journal(root, BROKER)
    TrailWriter(root, BROKER, NOON)
    recorder = Journaled(ExactRecorder(BROKER, NOON, 60_000, 1 << 24), journal.append)
    for time in times:
        recorder.accepted(message(time), time)
        journal.append(turn_entry(time + 1), ends_turn=True)
        journal.sync()
        journal.release(0)
    journal.append(turn_entry(times[-1] + 500), ends_turn=True)
    journal.sync()
    return sorted(journal_folder(root, BROKER).iterdir())


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("harm", ["missing", "damaged", "another"])
def test_a_segment_of_the_journal_that_is_gone_is_a_gap_and_not_a_no(tmp_path: Path, place: int, harm: str) -> None:
    times = range(NOON + 10_000, NOON + 50_000, 10_000)
    segments = crashed(tmp_path, times)
    assert [verdict(tmp_path, time) for time in times] == [Verdict.MATCHED_NOBODY] * 4
    assert verdict(tmp_path, times[-1] + 100) is Verdict.NEVER_ACCEPTED
    if harm == "missing":
        segments[place].unlink()
    elif harm == "damaged":
        segments[place].write_bytes(segments[place].read_bytes()[:-40] + bytes(40))
    else:
        segments[place].write_bytes(segments[place - 1].read_bytes())
    told = [verdict(tmp_path, time) for time in times]
    assert told[place] is Verdict.NOT_RECORDED
    assert Verdict.NEVER_ACCEPTED not in told
    assert verdict(tmp_path, NOON + 5_000) in (Verdict.NEVER_ACCEPTED, Verdict.NOT_RECORDED)


def test_an_end_of_a_turn_after_what_had_no_room_makes_nothing_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path, BROKER, max_waiting_bytes=200)
    TrailWriter(tmp_path, BROKER, NOON)
    recorder = Journaled(ExactRecorder(BROKER, NOON, 60_000, 1 << 24), journal.append)
    times = range(NOON + 1_000, NOON + 10_000, 1_000)
    for time in times:
        recorder.accepted(message(time), time)
    journal.sync()
    assert journal.statistics().lost_entries > 0
    journal.append(turn_entry(times[-1] + 1_000), ends_turn=True)
    journal.close()
    told = [verdict(tmp_path, time) for time in times]
    assert Verdict.NEVER_ACCEPTED not in told
    assert Verdict.NOT_RECORDED in told
