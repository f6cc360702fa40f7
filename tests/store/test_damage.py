"""Segments that rot, or cannot be read: nothing that is left is taken for nothing, and no byte of it is deleted."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.store import FileDisk, Log, Recovered, SimulatedDisk, StoreReadError, StoreSettings, carry_out, recover
from postroad.store.records import Kind, Record, frames_in
from tests.store.oracle import batch_of, commit_all, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = StoreSettings(segment_bytes=4096)
COMMITS, ROWS = 6, 10
EVERY = [(1, number) for number in range(COMMITS * ROWS)]


def recovered(disk: SimulatedDisk | FileDisk) -> Recovered:
    return recover(disk.segments(), disk.read, disk.sync)


def stored(disk: Any, settings: StoreSettings = SMALL) -> None:
    """A process stores confirmed rows for the cursor 1, and ends."""
    log = Log(settings, recovered(disk))
    cursor = log.open_cursor(1, b"terms")
    for first in range(0, COMMITS * ROWS, ROWS):
        log.append(batch_of(1, first, ROWS), [(cursor, np.arange(ROWS))], 0)
        commit_all(log, disk)


def drained(log: Log, disk: Any) -> list[tuple[int, int]]:
    """Take and settle all that waits, and write that."""
    found: list[tuple[int, int]] = []
    while True:
        taken, reads = log.pull(log.cursors[1], 10_000), log.take_reads()
        for read in reads:
            log.loaded(read, disk.read(read.segment, read.start, read.length))
        for each in taken:
            found += messages_of(each)
            log.settle(log.cursors[1], each.places)
        if not taken and not reads:
            commit_all(log, disk)
            return found


def failing(read: Callable[..., bytes], segment: int, times: int) -> Callable[[int], bytes]:
    """Reads of one segment fail so often."""
    left = [times]

    def attempt(wanted: int) -> bytes:
        if wanted == segment and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        return read(wanted)

    return attempt


@pytest.mark.parametrize("segment", [1, 2])
def test_store_with_a_segment_that_cannot_be_read_is_refused_and_unchanged(segment: int) -> None:
    disk = SimulatedDisk()
    stored(disk)
    before, calls = {each: disk.read(each) for each in disk.segments()}, disk.boundaries
    assert len(before) == 2
    with pytest.raises(StoreReadError, match=rf"store/00000000000{segment}\.segment.*start again"):
        recover(disk.segments(), failing(disk.read, segment, 1_000), disk.sync)
    assert {each: disk.read(each) for each in disk.segments()} == before
    assert disk.boundaries == calls


def test_segment_that_cannot_be_read_once_is_read_again() -> None:
    disk = SimulatedDisk()
    stored(disk)
    found = recover(disk.segments(), failing(disk.read, 2, 1), disk.sync)
    assert found.notices == []
    assert drained(Log(SMALL, found), disk) == EVERY


@pytest.mark.parametrize("commits", [1, COMMITS])
@pytest.mark.parametrize("at", [0, 3, 8, 15])
def test_flipped_bit_in_the_header_of_a_segment_costs_no_row(at: int, commits: int) -> None:
    disk = SimulatedDisk()
    log = Log(StoreSettings(), recovered(disk))
    cursor = log.open_cursor(1, b"terms")
    for first in range(0, commits * ROWS, ROWS):
        log.append(batch_of(1, first, ROWS), [(cursor, np.arange(ROWS))], 0)
        if commits > 1:
            commit_all(log, disk)
    commit_all(log, disk)
    disk.rot(1, at)
    rotten = disk.read(1)
    found = recovered(disk)
    assert (found.damaged, found.lost_rows, found.cut_bytes, found.preserved) == (1, 0, 0, (1,))
    log = Log(StoreSettings(segment_bytes=4096), found)
    assert drained(log, disk) == EVERY[: commits * ROWS]
    # All of it is settled, so the segment goes; its bytes stay for people.
    assert 1 not in disk.segments()
    assert disk.preserved == {1: rotten}


def test_last_record_that_rots_is_cut_and_its_bytes_are_preserved() -> None:
    disk = SimulatedDisk()
    stored(disk, StoreSettings())
    last = [each for each in frames_in(memoryview(disk.read(1)), 1) if isinstance(each, Record)][-1]
    disk.rot(1, last.start + last.length // 2)
    rotten = disk.read(1)
    found = recovered(disk)
    assert (found.damaged, found.cut_bytes, found.preserved) == (0, last.length, (1,))
    assert found.notices[-1] == "segment 1: its file is kept as 000000000001.segment.damaged"
    log = Log(StoreSettings(), found)
    assert drained(log, disk) == EVERY[:-ROWS]
    assert disk.segments().keys() == {2}
    assert disk.preserved == {1: rotten}


def test_rows_settled_in_a_write_that_was_cut_off_stay_though_the_checkpoint_after_it_rots() -> None:
    """They were delivered again, and are not settled: what says so was never confirmed, and is still on the disk."""
    disk = SimulatedDisk()
    log = Log(StoreSettings(), recovered(disk))
    cursor = log.open_cursor(1, b"terms")
    log.append(batch_of(1, 0, ROWS), [(cursor, np.arange(ROWS))], 0)
    commit_all(log, disk)
    for taken in log.pull(cursor, ROWS):
        log.settle(cursor, taken.places)
    log.append(batch_of(1, ROWS, ROWS), [(cursor, np.arange(ROWS))], 0)
    unconfirmed = log.take_commit(0)
    assert unconfirmed is not None
    carry_out(unconfirmed, disk)
    *_, batch, settled = [each for each in frames_in(memoryview(disk.read(1)), 1) if isinstance(each, Record)]
    assert (batch.kind, settled.kind) == (Kind.BATCH, Kind.SETTLED)
    # The machine fails, and of the write only the end reaches the disk.
    disk.rot(1, batch.start + batch.length // 2)
    log = Log(StoreSettings(), recovered(disk))
    for first in (2 * ROWS, 3 * ROWS):
        log.append(batch_of(1, first, ROWS), [(log.cursors[1], np.arange(ROWS))], 0)
        commit_all(log, disk)
    checkpoint, *_ = [each for each in frames_in(memoryview(disk.read(2)), 2) if isinstance(each, Record)]
    assert checkpoint.kind is Kind.CHECKPOINT
    disk.rot(2, checkpoint.start + checkpoint.length // 2)
    found = recovered(disk)
    assert (found.damaged, found.lost_rows) == (1, 0)
    assert drained(Log(StoreSettings(), found), disk) == [*EVERY[:ROWS], *EVERY[2 * ROWS : 4 * ROWS]]


def test_write_that_was_cut_short_leaves_nothing_to_preserve() -> None:
    disk = SimulatedDisk()
    stored(disk, StoreSettings())
    last = [each for each in frames_in(memoryview(disk.read(1)), 1) if isinstance(each, Record)][-1]
    disk.append(1, [disk.read(1)[last.start : last.start + last.length - 1]])
    found = recovered(disk)
    assert (found.damaged, found.cut_bytes, found.preserved) == (0, last.length - 1, ())


def test_record_that_rots_while_the_broker_runs_is_preserved_before_its_segment_goes() -> None:
    disk = SimulatedDisk()
    settings = StoreSettings(segment_bytes=4096, cache_bytes=1)
    log = Log(settings)
    cursor = log.open_cursor(1)
    for first in range(0, 60, 10):
        log.append(batch_of(1, first, 10, size=100), [(cursor, np.arange(10))], 0)
        commit_all(log, disk)
    record = next(
        each for each in frames_in(memoryview(disk.read(2)), 2) if isinstance(each, Record) and each.kind == 1
    )
    disk.rot(2, record.start + record.length - 5)
    rotten = disk.read(2)
    assert len(drained(log, disk)) == 50
    assert 2 not in disk.segments()
    assert disk.preserved == {2: rotten}
    assert "000000000002.segment.damaged" in log.notices[0]


def test_nothing_is_removed_while_damage_cannot_be_preserved() -> None:
    disk = SimulatedDisk()
    stored(disk, StoreSettings())
    disk.rot(1, 3)
    log = Log(StoreSettings(), recovered(disk))
    disk.failing = True
    commit = log.take_commit(0)
    assert commit is not None
    with pytest.raises(Exception, match="cannot preserve segment 1"):
        carry_out(commit, disk)
    log.failed(commit, "Input/output error")
    disk.failing = False
    drained(log, disk)
    assert list(disk.preserved) == [1]


@pytest.mark.parametrize("has_links", [True, False])
def test_files_of_damaged_segments_stay_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    folder = tmp_path / "store"
    disk = FileDisk(folder)
    for content in (b"first", b"second"):
        disk.create(1)
        disk.append(1, [content])
        # A commit that failed behind it is carried out again.
        disk.preserve(1)
        disk.preserve(1)
        disk.remove(1)
    disk.preserve(7)
    disk.close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "000000000001.segment.damaged": b"first",
        "000000000001.segment.damaged-2": b"second",
    }
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert FileDisk(folder).segments() == {}


def test_names_of_new_folders_are_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        forced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    disk = FileDisk(tmp_path / "data" / "store")
    disk.create(1)
    disk.close()
    assert [tmp_path.stat().st_ino, (tmp_path / "data").stat().st_ino] == forced[:2]
