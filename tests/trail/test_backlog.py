from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

from postroad.tracking import Job, LinkChanges
from postroad.trail import TrailWriter, gaps_within, pin
from postroad.trail.backlog import FIRST_PAUSE_MS, Backlog

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000


def job(number: int, through: int) -> Job:
    one = np.array([through], np.int64)
    change = LinkChanges(one * 0 + 7, one, np.ones(1, np.int32), np.ones(1, np.int32))
    return Job(number, lambda: [change], through)


def backlog(root: Path, budget: int = 1 << 20) -> Backlog:
    made = Backlog(lambda now: TrailWriter(root, 1, now), budget)
    made.open(START)
    return made


class Locked:
    """A directory tree that nothing can be written to while it is locked, also not by root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def lock(self) -> None:
        self.hidden = self.root.with_name("hidden")
        self.root.rename(self.hidden)
        self.root.write_text("not a directory")

    def unlock(self) -> None:
        self.root.unlink()
        self.hidden.rename(self.root)


def test_jobs_are_written_in_order_and_reported_done(tmp_path: Path) -> None:
    shelf = backlog(tmp_path)
    shelf.take(job(0, START + 10), START + 10)
    shelf.take(job(1, START + 20), START + 20)
    assert shelf.put(START + 20) == [(0, True), (1, True)]
    shelf.close(START + 30)
    pinned = pin(tmp_path, 1)
    assert gaps_within(pinned.runs, pinned.holes, START + 10, START + 1, START + 29) == ()
    assert shelf.statistics().commits == 2
    assert not shelf.trouble


def test_rows_wait_for_a_disk_that_does_not_take_them_and_are_written_when_it_does(tmp_path: Path) -> None:
    root = tmp_path / "trail"
    shelf = backlog(root)
    disk = Locked(root)
    disk.lock()
    shelf.take(job(0, START + 10), START + 10)
    assert shelf.put(START + 10) == []
    assert shelf.trouble
    assert shelf.statistics().degraded_now
    disk.unlock()
    assert shelf.put(START + 11) == []  # it does not try again at once
    assert shelf.put(START + 10 + FIRST_PAUSE_MS) == [(0, True)]
    assert not shelf.trouble
    shelf.close(START + 600)
    pinned = pin(root, 1)
    assert gaps_within(pinned.runs, pinned.holes, START + 10, START + 1, START + 599) == ()


def test_beyond_the_budget_the_oldest_rows_are_given_up_and_the_trail_says_for_when(tmp_path: Path) -> None:
    root = tmp_path / "trail"
    shelf = backlog(root, budget=100)
    disk = Locked(root)
    disk.lock()
    done = []
    for number in range(20):
        now = START + 100 * (number + 1)
        shelf.take(job(number, now), now)
        done += shelf.put(now)
    assert done[0] == (0, False)
    disk.unlock()
    done += shelf.put(START + 100_000)
    assert [job.number for job in done] == list(range(20))
    # In order: first what was given up, then what was stored.
    assert sorted(done, key=lambda job: job.stored) == done
    assert done[-1].stored
    shelf.close(START + 100_001)
    pinned = pin(root, 1)
    gaps = gaps_within(pinned.runs, pinned.holes, START + 10, START + 1, START + 100_000)
    assert gaps[0].since == START
    assert "disk" in gaps[0].reason
    assert gaps[-1].until < START + 2_000


def test_a_job_that_fails_leaves_a_gap_and_not_a_no(tmp_path: Path) -> None:
    shelf = backlog(tmp_path)

    def fail() -> NoReturn:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shelf.take(Job(0, fail, START + 10), START + 10)
    shelf.take(job(1, START + 20), START + 20)
    assert shelf.holes
    assert shelf.put(START + 20) == [(0, False), (1, True)]
    assert not shelf.holes
    pinned = pin(tmp_path, 1)
    (gap,) = gaps_within(pinned.runs, pinned.holes, START + 5, START + 5, START + 5)
    assert (gap.since, gap.until) == (START, START + 11)
    assert "failed" in gap.reason
    assert gaps_within(pinned.runs, pinned.holes, START + 15, START + 15, START + 15) == ()


def test_a_trail_that_cannot_be_opened_degrades_and_begins_later(tmp_path: Path) -> None:
    root = tmp_path / "trail"
    root.write_text("not a directory")
    shelf = backlog(root)
    assert shelf.trouble
    shelf.take(job(0, START + 10), START + 10)
    assert shelf.put(START + 10) == [(0, False)]
    root.unlink()
    shelf.take(job(1, START + 1_000), START + 1_001)
    shelf.take(job(2, START + 2_000), START + 2_000)
    assert shelf.put(START + 2_000) == [(1, False), (2, True)]
    assert shelf.statistics().given_up == 2
    pinned = pin(root, 1)
    (gap,) = gaps_within(pinned.runs, pinned.holes, START + 1_000, START, START + 1_999)
    assert gap.until == START + 1_001


def test_a_clock_that_is_set_back_makes_no_pause_longer(tmp_path: Path) -> None:
    root = tmp_path / "trail"
    shelf = backlog(root)
    disk = Locked(root)
    disk.lock()
    shelf.take(job(0, START + 10), START + 10)
    assert shelf.put(START + 10) == []
    disk.unlock()
    assert shelf.put(START - 3_600_000) == [(0, True)]
