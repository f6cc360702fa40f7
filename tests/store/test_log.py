"""What a log promises, one promise at a time."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.messages import Batch, Draft
from postroad.store import (
    FileDisk,
    Log,
    Recovered,
    SimulatedDisk,
    StoreFullError,
    StoreSettings,
    StoreWriteError,
    carry_out,
    recover,
    stored_bytes,
)
from postroad.store.payloads import EncodedRows
from postroad.store.records import Record, frames_in
from postroad.store.row_sets import Runs
from postroad.store.writer import MAX_UNSYNCED_BYTES
from tests.store.oracle import batch_of, commit_all, messages_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = StoreSettings(segment_bytes=4096)


def every(batch: Batch) -> np.ndarray:
    return np.arange(len(batch), dtype=np.int64)


def drained(log: Log, cursor: Any, disk: SimulatedDisk | FileDisk, most: int = 10_000) -> list[tuple[int, int]]:
    """Take all that waits, and settle it."""
    found = []
    while True:
        taken = log.pull(cursor, most)
        reads = log.take_reads()
        for read in reads:
            log.loaded(read, disk.read(read.segment, read.start, read.length))
        for each in taken:
            found += messages_of(each)
            log.settle(cursor, each.places)
        if not taken and not reads:
            return found


def recovered(disk: SimulatedDisk | FileDisk) -> Recovered:
    return recover(disk.segments(), disk.read, disk.sync)


def test_log_writes_nothing_before_something_is_stored() -> None:
    assert Log(SMALL).take_commit(0) is None


def test_batch_that_ten_cursors_want_is_written_once() -> None:
    sizes = []
    for cursors in (1, 10):
        log, disk = Log(StoreSettings()), SimulatedDisk()
        wanting = [log.open_cursor(number) for number in range(1, cursors + 1)]
        commit_all(log, disk)
        before = sum(disk.segments().values())
        batch = batch_of(1, 0, 1_000, size=100)
        log.append(batch, [(cursor, every(batch)[cursor.number % 3 :]) for cursor in wanting], 5)
        log.append(batch, [(cursor, every(batch)) for cursor in wanting], 5)
        commit_all(log, disk)
        sizes.append(sum(disk.segments().values()) - before)
    assert sizes[1] < 1.2 * sizes[0]


def test_many_batches_and_acknowledgements_go_into_one_commit() -> None:
    log, disk = Log(StoreSettings()), SimulatedDisk()
    cursor = log.open_cursor(1)
    for first in range(0, 50, 5):
        batch = batch_of(1, first, 5)
        log.append(batch, [(cursor, every(batch))], 0)
    assert len(commit_all(log, disk)) == 1
    taken = log.pull(cursor, 20)
    log.settle(cursor, taken[0].places)
    log.append(batch_of(2, 0, 3), [(cursor, np.arange(3))], 0)
    assert len(commit_all(log, disk)) == 1
    assert disk.boundaries == 2 + 3 + 2 + 3 + 2  # create, write, sync; write, sync
    left = {cursor.number: cursor.live.size for cursor in recovered(disk).cursors}
    assert left == {1: 33}


def test_row_is_handed_out_only_when_it_is_safe() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    position = log.append(batch_of(1, 0, 3), [(cursor, np.arange(3))], 0)
    assert log.pull(cursor, 10) == []
    commit = log.take_commit(0)
    assert commit is not None
    assert log.pull(cursor, 10) == []
    carry_out(commit, disk)
    log.committed(commit)
    assert log.safe >= position
    assert messages_of(log.pull(cursor, 10)[0]) == [(1, 0), (1, 1), (1, 2)]


def test_spool_needs_no_sync_and_leaves_nothing_behind_after_a_restart() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    spool = log.open_cursor(1, durable=False)
    log.append(batch_of(1, 0, 3), [(spool, np.arange(3))], 0)
    commit = log.take_commit(0)
    assert commit is not None
    assert not commit.syncs
    assert messages_of(log.pull(spool, 10)[0]) == [(1, 0), (1, 1), (1, 2)]
    carry_out(commit, disk)
    log.committed(commit)
    assert recovered(disk).cursors == []


@pytest.mark.parametrize("durable", [True, False])
def test_segments_go_when_nobody_needs_them(durable: bool) -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1, durable=durable)
    for first in range(0, 400, 10):
        log.append(batch_of(1, first, 10, size=200), [(cursor, np.arange(10))], 0)
        commit_all(log, disk)
    assert len(disk.segments()) > 10
    assert drained(log, cursor, disk) == [(1, number) for number in range(400)]
    commit_all(log, disk)
    assert len(disk.segments()) == 1
    assert log.size == sum(disk.segments().values())


def test_last_rows_of_nearly_empty_segments_are_copied_forward_and_keep_their_place() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    slow, fast = log.open_cursor(1), log.open_cursor(2)
    for first in range(0, 1_000, 10):
        batch = batch_of(1, first, 10, size=200)
        wanted = [(fast, every(batch))] + ([(slow, np.array([3]))] if first < 100 else [])
        log.append(batch, wanted, 0)
        commit_all(log, disk)
        drained(log, fast, disk)
        for read in log.take_reads():
            log.loaded(read, disk.read(read.segment, read.start, read.length))
    commit_all(log, disk)
    assert log.statistics().moved_records > 0
    assert len(disk.segments()) < 8
    expected = [(1, first + 3) for first in range(0, 100, 10)]
    again = Log(SMALL, recovered(disk))
    assert drained(again, again.cursors[1], disk) == expected
    assert drained(log, slow, disk) == expected


def test_damaged_record_is_named_and_none_of_its_rows_is_handed_out() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    for first in range(0, 30, 10):
        log.append(batch_of(1, first, 10), [(cursor, np.arange(10))], 0)
        commit_all(log, disk)
    data = memoryview(disk.read(1))
    damaged = [each for each in frames_in(data, 1) if isinstance(each, Record)][3]
    disk.rot(1, damaged.start + damaged.length // 2)
    found = recovered(disk)
    assert found.damaged == 1
    assert found.cut_bytes == 0
    assert f"segment 1 at {damaged.start:,}" in found.notices[0]
    again = Log(SMALL, found)
    assert drained(again, again.cursors[1], disk) == [(1, n) for n in (*range(10), *range(20, 30))]


def test_record_that_rots_while_the_broker_runs_is_named_and_skipped() -> None:
    log, disk = Log(StoreSettings(segment_bytes=4096, cache_bytes=1)), SimulatedDisk()
    cursor = log.open_cursor(1)
    for first in range(0, 60, 10):
        log.append(batch_of(1, first, 10, size=100), [(cursor, np.arange(10))], 0)
        commit_all(log, disk)
    third = memoryview(disk.read(2))
    record = next(each for each in frames_in(third, 2) if isinstance(each, Record) and each.kind == 1)
    disk.rot(2, record.start + record.length - 5)
    left = drained(log, cursor, disk)
    assert len(left) == 50
    assert log.statistics().damaged_records == 1
    assert log.statistics().lost_rows == 10
    assert "segment 2" in log.notices[0]


def test_rows_in_flight_of_a_record_that_rots_do_not_come_back() -> None:
    log, disk = Log(StoreSettings(segment_bytes=4096, cache_bytes=1)), SimulatedDisk()
    cursor, other = log.open_cursor(1), log.open_cursor(2)
    log.append(batch_of(1, 0, 10, size=100), [(cursor, np.arange(10))], 0)
    commit_all(log, disk)
    log.append(batch_of(1, 10, 10, size=100), [(other, np.arange(10))], 0)
    commit_all(log, disk)
    assert log.pull(cursor, 3) == []
    (read,) = log.take_reads()
    log.loaded(read, disk.read(read.segment, read.start, read.length))
    (taken,) = log.pull(cursor, 3)
    # What another one reads takes its place in memory.
    assert len(drained(log, other, disk)) == 10
    disk.rot(read.segment, read.start + read.length - 5)
    assert drained(log, cursor, disk) == []
    assert log.statistics().lost_rows == 10
    log.retry(cursor, taken.places)
    log.give_back(cursor, taken.places)
    assert log.unread(cursor) == 0
    assert cursor.tries_of(taken.places).tolist() == [0, 0, 0]


def test_torn_tail_is_cut_and_named() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 5), [(cursor, np.arange(5))], 0)
    commit_all(log, disk)
    disk.append(1, [b"half a record"])
    found = recovered(disk)
    assert (found.cut_bytes, found.damaged) == (13, 0)
    assert "13 bytes of an unfinished write are cut off" in found.notices[0]
    assert found.cursors[0].live.size == 5


def test_full_disk_keeps_rows_readable_and_is_written_again_when_there_is_room() -> None:
    log, disk = Log(SMALL), SimulatedDisk(capacity=2_000)
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 5), [(cursor, np.arange(5))], 0)
    commit_all(log, disk)
    position = log.append(batch_of(1, 5, 50), [(cursor, np.arange(50))], 0)
    for _ in range(3):
        commit = log.take_commit(0)
        assert commit is not None
        with pytest.raises(StoreWriteError, match="No space left"):
            carry_out(commit, disk)
        log.failed(commit, "No space left on device")
        assert log.trouble == "No space left on device"
        assert log.safe < position
    assert messages_of(log.pull(cursor, 100)[0]) == [(1, number) for number in range(5)]
    disk.capacity = 2**30
    commit_all(log, disk)
    assert log.trouble == ""
    assert log.safe >= position
    again = Log(SMALL, recovered(disk))
    assert drained(again, again.cursors[1], disk) == [(1, number) for number in range(55)]


def test_store_over_its_limit_refuses_and_names_the_limit() -> None:
    log = Log(StoreSettings(segment_bytes=4096, max_bytes=65_536))
    cursor = log.open_cursor(1)
    batch = batch_of(1, 0, 10, size=100)
    while log.room.left > 2 * len(batch.buffer):
        log.append(batch, [(cursor, every(batch))], 0)
    large = batch_of(1, 0, 100, size=100)
    with pytest.raises(StoreFullError, match=r"store\.max_bytes"):
        log.append(large, [(cursor, every(large))], 0)


@pytest.mark.parametrize("with_metadata", [False, True])
def test_bytes_of_rows_are_known_before_they_are_encoded(with_metadata: bool) -> None:
    metadata = {"seen": 3} if with_metadata else {}
    batch = Batch.build([Draft("a.b", {"n": n}, (("x", "y"),), bytes(n), metadata=metadata) for n in range(50)])
    some = np.array([3, 7, 49])
    assert stored_bytes(batch) == EncodedRows(batch).size
    assert stored_bytes(batch, some) == EncodedRows(batch.take(some)).size


def test_interval_syncs_when_it_is_due_and_not_before() -> None:
    log, disk = Log(StoreSettings(fsync="interval", interval_ms=100)), SimulatedDisk()
    cursor = log.open_cursor(1)
    assert log.sync_due() is None
    syncs = []
    for now in range(0, 400, 40):
        log.append(batch_of(1, now, 3), [(cursor, np.arange(3))], now)
        commit = log.take_commit(now)
        assert commit is not None
        carry_out(commit, disk)
        log.committed(commit)
        syncs.append(commit.syncs)
    assert syncs == [False, False, False, True, False, False, False, True, False, False]
    assert log.sync_due() == 420
    assert log.take_commit(419) is None
    due = log.take_commit(420)
    assert due is not None
    assert due.syncs


def test_interval_syncs_in_time_after_the_clock_was_set_back() -> None:
    hour = 3_600_000
    log, disk = Log(StoreSettings(fsync="interval", interval_ms=100)), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 3), [(cursor, np.arange(3))], hour)
    commit = log.take_commit(hour)
    assert commit is not None
    assert not commit.syncs
    carry_out(commit, disk)
    log.committed(commit)
    # The timer of the driver comes 100 ms later, and the clock has gone back meanwhile.
    due = log.take_commit(100)
    assert due is not None
    assert due.syncs


def test_interval_syncs_early_when_much_was_written() -> None:
    log, disk = Log(StoreSettings(fsync="interval", interval_ms=10**9)), SimulatedDisk()
    cursor = log.open_cursor(1)
    large = Batch.build([Draft("t", body=bytes(4 * 1024 * 1024))])
    for _ in range(MAX_UNSYNCED_BYTES // (4 * 1024 * 1024) + 2):
        log.append(large, [(cursor, np.arange(1))], 0)
        commit_all(log, disk)
    assert log.statistics().syncs >= 1


def test_never_writes_without_a_sync() -> None:
    log, disk = Log(StoreSettings(fsync="never")), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 3), [(cursor, np.arange(3))], 0)
    (commit,) = commit_all(log, disk)
    assert not commit.syncs
    assert messages_of(log.pull(cursor, 5)[0]) == [(1, 0), (1, 1), (1, 2)]


def test_rows_that_come_back_are_marked_and_keep_their_place() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 6), [(cursor, np.arange(6))], 0)
    commit_all(log, disk)
    (taken,) = log.pull(cursor, 4)
    log.settle(cursor, taken.places[:2])
    log.give_back(cursor, taken.places[2:])
    (again,) = log.pull(cursor, 10)
    assert messages_of(again) == [(1, 2), (1, 3), (1, 4), (1, 5)]
    assert again.tried is not None
    assert again.tried.tolist() == [True, True, False, False]
    assert taken.tried is None


def test_settled_row_stays_settled_when_its_taker_leaves_at_once() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 3), [(cursor, np.arange(3))], 0)
    commit_all(log, disk)
    (taken,) = log.pull(cursor, 3)
    log.settle(cursor, taken.places[:1])
    log.detach(cursor)
    commit_all(log, disk)
    assert messages_of(log.pull(cursor, 3)[0]) == [(1, 1), (1, 2)]


def test_checkpoint_keeps_how_often_scattered_rows_came_back() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 2_400), [(cursor, np.arange(2_400))], 0)
    commit_all(log, disk)
    places = np.concatenate([each.places for each in log.pull(cursor, 2_400)])
    scattered = places[::2]
    log.retry(cursor, scattered)
    log.give_back(cursor, places)
    # The segment that says so goes, and those that follow begin with a checkpoint.
    other = log.open_cursor(2)
    for first in range(0, 1_000, 100):
        log.append(batch_of(2, first, 100, size=2_000), [(other, np.arange(100))], 0)
        commit_all(log, disk)
        drained(log, other, disk)
        commit_all(log, disk)
    again = Log(SMALL, recovered(disk)).cursors[1]
    assert again.tries_of(scattered).tolist() == [1] * 1_200
    assert not again.tries_of(places[1::2]).any()


def test_cursor_keeps_its_terms_and_ends_for_good() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    log.open_cursor(1, b"first")
    second = log.open_cursor(2, b"second")
    log.change_cursor(second, b"changed")
    commit_all(log, disk)
    assert [(each.number, each.terms) for each in recovered(disk).cursors] == [(1, b"first"), (2, b"changed")]
    log.end_cursor(log.cursors[1])
    commit_all(log, disk)
    assert [(each.number, each.terms) for each in recovered(disk).cursors] == [(2, b"changed")]


def test_row_that_is_adopted_again_after_a_crash_counts_once() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    kept, late = log.open_cursor(1), log.open_cursor(2)
    log.append(batch_of(1, 0, 10), [(kept, np.arange(10))], 0)
    commit_all(log, disk)
    history = Runs(*(each.copy() for each in kept.waiting.runs))
    log.adopt(late, history)
    size = late.bytes
    log.pull(late, 4)
    # Its owner has lost how far it had come, and reads the same again.
    log.adopt(late, history)
    assert (late.waiting.count, late.in_flight.count, late.bytes) == (6, 4, size)
    log.end_cursor(kept)
    log.end_cursor(late)
    # Nobody needs the record, and nobody is thought to.
    assert len(log._catalog) == 0


def test_age_and_bytes_of_what_waits_are_known() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    for now in (100, 200, 300):
        log.append(batch_of(1, now, 4), [(cursor, np.arange(4))], now)
        commit_all(log, disk)
    assert [log.older_than(cursor, time) for time in (100, 101, 200, 250, 301)] == [0, 4, 4, 8, 12]
    held = cursor.bytes
    assert held > 12 * 40
    drained(log, cursor, disk)
    commit_all(log, disk)
    assert cursor.bytes == 0


def test_segment_of_another_store_is_not_taken_for_one() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 3), [(cursor, np.arange(3))], 0)
    commit_all(log, disk)
    strange = disk.read(1)
    other = SimulatedDisk()
    other.create(5)
    other.append(5, [strange])
    found = recovered(other)
    assert found.cursors == []
    assert found.notices


@pytest.mark.parametrize("seed", range(30))
def test_recovery_of_random_bytes_answers_or_names_damage(seed: int) -> None:
    chance = random.Random(seed)
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    for first in range(0, 60, 10):
        log.append(batch_of(1, first, 10), [(cursor, np.arange(10))], 0)
        commit_all(log, disk)
    for _ in range(chance.randrange(1, 20)):
        segment = chance.choice(list(disk.segments()))
        disk.rot(segment, chance.randrange(disk.segments()[segment]), chance.randrange(1, 256))
    again = Log(SMALL, recovered(disk))
    stored = [(1, number) for number in range(60)]
    found = [message for each in list(again.cursors.values()) for message in drained(again, each, disk)]
    # Whatever is handed out is what was stored (`messages_of` compares id, attributes and body), and nothing is
    # missing in silence.
    assert set(found) <= set(stored)
    assert found == stored or again.notices


def test_files_keep_what_was_stored(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "store")
    log = Log(SMALL, recovered(disk))
    assert not (tmp_path / "store").exists()
    cursor = log.open_cursor(1, b"terms")
    for first in range(0, 300, 10):
        log.append(batch_of(1, first, 10, size=100), [(cursor, np.arange(10))], 0)
    while (commit := log.take_commit(0)) is not None:
        carry_out(commit, disk)
        log.committed(commit)
    disk.close()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "store").iterdir()} == {0o600}
    again = FileDisk(tmp_path / "store")
    log = Log(SMALL, recovered(again))
    assert drained(log, log.cursors[1], again) == [(1, number) for number in range(300)]
    while (commit := log.take_commit(0)) is not None:
        carry_out(commit, again)
        log.committed(commit)
    assert len(again.segments()) == 1
    again.close()


def test_rows_of_a_process_that_was_killed_are_handed_out_when_they_are_forced_to_disk() -> None:
    class Reluctant(SimulatedDisk):
        """A disk that cannot be forced for a while."""

        reluctant = False

        def sync(self, segment: int) -> None:
            if self.reluctant:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(segment)

    disk = Reluctant()
    log = Log(StoreSettings(), recovered(disk))
    cursor = log.open_cursor(1, b"terms")
    log.append(batch_of(1, 0, 10), [(cursor, np.arange(10))], 0)
    disk.reluctant = True
    commit = log.take_commit(0)
    assert commit is not None
    with pytest.raises(StoreWriteError):
        carry_out(commit, disk)
    # The process is killed after its write and before its sync: the rows are there, and a power failure may take them.
    again = Log(StoreSettings(), recovered(disk))
    assert drained(again, again.cursors[1], disk) == []
    disk.reluctant = False
    assert again.has_work
    commit_all(again, disk)
    assert drained(again, again.cursors[1], disk) == [(1, number) for number in range(10)]
    # Where the disk takes it, recovery itself forces it, and nothing has to wait.
    third = Log(StoreSettings(), recovered(disk))
    assert drained(third, third.cursors[1], disk) == [(1, number) for number in range(10)]
