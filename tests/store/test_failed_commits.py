"""Commits that fail for a while: what they have written takes no room from those that follow."""

from __future__ import annotations

import numpy as np

from postroad.store import Log, SimulatedDisk, StoreSettings, StoreWriteError, carry_out, recover, stored_bytes
from tests.store.oracle import batch_of, commit_all

SMALL = StoreSettings(segment_bytes=4096)


def failed_commit(log: Log, disk: SimulatedDisk) -> bool:
    """Carry out a commit; return whether it failed."""
    commit = log.take_commit(0)
    assert commit is not None
    try:
        carry_out(commit, disk)
    except StoreWriteError as error:
        log.failed(commit, str(error))
        return True
    log.committed(commit)
    return False


def test_commit_succeeds_when_room_comes_bit_by_bit_because_what_failed_before_takes_none_of_it() -> None:
    log, disk = Log(SMALL), SimulatedDisk(capacity=2_000)
    cursor = log.open_cursor(1)
    log.append(batch_of(1, 0, 5), [(cursor, np.arange(5))], 0)
    commit_all(log, disk)
    batch = batch_of(1, 5, 50, size=100)
    log.append(batch, [(cursor, np.arange(50))], 0)
    tries = 0
    while failed_commit(log, disk):
        tries += 1
        assert tries < 40
        disk.capacity += 1_000
    # The beginning of a segment, what its last write left there, and all of the commit.
    assert disk.capacity < 2 * 2_000 + 2 * stored_bytes(batch)
    assert log.unread(cursor) == 55
    again = Log(SMALL, recover(disk.segments(), disk.read, disk.sync))
    assert again.unread(again.cursors[1]) == 55


def test_disk_that_fails_for_long_does_not_make_the_store_seem_full() -> None:
    log, disk = Log(SMALL), SimulatedDisk()
    cursor = log.open_cursor(1)
    commit_all(log, disk)
    log.append(batch_of(1, 0, 50), [(cursor, np.arange(50))], 0)
    disk.failing = True
    assert failed_commit(log, disk)
    assert failed_commit(log, disk)
    size = log.size
    for _ in range(20):
        assert failed_commit(log, disk)
    assert log.size == size
    disk.failing = False
    commit_all(log, disk)
    assert log.size == sum(disk.segments().values())
