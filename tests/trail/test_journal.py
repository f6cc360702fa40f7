"""The journal: what was durable before a crash is there after it, and nothing that was not written."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.trail import Journal, TrailWriteError, journal_folder, replay
from postroad.trail.journal import MAGIC

if TYPE_CHECKING:
    from pathlib import Path


def entries_in(root: Path) -> tuple[list[bytes], list[str]]:
    warnings: list[str] = []
    return list(replay(root, 4, warnings)), warnings


def test_synced_entries_are_replayed_in_order_and_others_are_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    positions = [journal.append(entry) for entry in (b"a", b"", b"c" * 1000)]
    assert journal.durable == 0
    assert journal.sync() == positions[-1] == journal.durable
    journal.append(b"not synced")
    assert entries_in(tmp_path) == ([b"a", b"", b"c" * 1000], [])
    assert journal.durable < journal.position


def test_a_position_is_durable_only_once_its_entry_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    first = journal.append(b"a")
    journal.sync()
    second = journal.append(b"b")
    assert first <= journal.durable < second


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_a_torn_or_damaged_end_costs_only_what_follows(
    tmp_path_factory: pytest.TempPathFactory, entries: list[bytes], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("trail")
    journal = Journal(root, 4)
    ends = [8, *(8 + journal.append(entry) for entry in entries)]
    journal.close()
    (path,) = journal_folder(root, 4).iterdir()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    found, warnings = entries_in(root)
    kept = max([index for index, end in enumerate(ends) if end <= cut], default=0)
    assert found == entries[:kept]
    assert bool(warnings) == (cut > 8 and cut not in ends)
    place = data.draw(st.integers(8, len(whole) - 1))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    found, warnings = entries_in(root)
    assert found == entries[: max(index for index, end in enumerate(ends) if end <= place)]
    assert warnings


def test_later_processes_leave_what_earlier_ones_wrote_until_they_are_told(tmp_path: Path) -> None:
    Journal(tmp_path, 4).close()
    first = Journal(tmp_path, 4)
    first.append(b"one")
    first.close()
    second = Journal(tmp_path, 4)
    second.append(b"two")
    second.sync()
    assert entries_in(tmp_path)[0] == [b"one", b"two"]
    second.forget_earlier()
    assert entries_in(tmp_path)[0] == [b"two"]


def test_segments_go_when_the_trail_has_all_of_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    first = journal.append(b"one")
    journal.sync()
    assert journal.release(first - 1) == 0
    second = journal.append(b"two")
    journal.sync()
    assert journal.release(second - 1) == 1
    assert entries_in(tmp_path)[0] == [b"two"]
    assert journal.release(second) == 1
    assert entries_in(tmp_path)[0] == []


def test_segments_that_the_trail_has_lost_something_of_stay_among_those_that_go(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    ends = [0]
    for entry in (b"one", b"two", b"three", b"four"):
        ends.append(journal.append(entry))
        journal.sync()
        journal.release(0)
    lost = (ends[1], ends[3] - 1)
    assert journal.release(ends[3], [lost]) == 1
    assert entries_in(tmp_path)[0] == [b"two", b"three", b"four"]
    assert journal.release(ends[4], [lost]) == 1
    assert entries_in(tmp_path)[0] == [b"two", b"three"]


def test_a_segment_that_cannot_even_be_begun_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 4)
    journal.append(b"x" * 20)
    journal.sync()
    journal.release(0)
    write = os.write

    def full(file: int, data: bytes) -> int:
        if bytes(data[:8]) == MAGIC:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    journal.append(b"y")
    with pytest.raises(TrailWriteError):
        journal.sync()
    monkeypatch.undo()
    journal.close()
    missing: list[None] = []
    warnings: list[str] = []
    found = list(replay(tmp_path, 4, warnings, lambda: missing.append(None)))
    assert (found, warnings, missing) == ([b"x" * 20, b"y"], [], [])


def test_a_disk_that_takes_a_few_bytes_at_a_time_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    journal = Journal(tmp_path, 4)
    for text in (b"one", b"two"):
        journal.append(text)
        journal.sync()
    assert entries_in(tmp_path) == ([b"one", b"two"], [])


def test_a_disk_that_takes_nothing_keeps_entries_waiting_within_a_bound(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4, max_waiting_bytes=100)
    (tmp_path / "journal").write_text("in the way")
    position = journal.append(b"a" * 40)
    with pytest.raises(TrailWriteError, match="cannot be written"):
        journal.sync()
    assert journal.durable < position
    assert journal.trouble
    lost = journal.append(b"b" * 90)
    assert journal.lost_through == lost
    assert journal.statistics().lost_entries == 1
    (tmp_path / "journal").unlink()
    journal.append(b"c")
    journal.sync()
    assert entries_in(tmp_path)[0] == [b"a" * 40, b"c"]
    assert journal.trouble == ""


def test_appending_goes_on_while_another_thread_syncs(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    done = threading.Event()

    def keep_syncing() -> None:
        while not done.is_set():
            journal.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    entries = [number.to_bytes(4, "big") for number in range(5_000)]
    for entry in entries:
        journal.append(entry)
    done.set()
    thread.join()
    assert journal.sync() == journal.position
    assert entries_in(tmp_path) == (entries, [])


def test_foreign_files_are_named_and_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    journal.append(b"one")
    journal.close()
    (journal_folder(tmp_path, 4) / "000000000000.journal").write_bytes(b"something else")
    found, warnings = entries_in(tmp_path)
    assert found == [b"one"]
    assert "not a segment" in warnings[0]


def test_a_replay_tells_where_entries_were_given_up_or_are_damaged(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4, max_waiting_bytes=100)
    for entry in (b"one", b"x" * 200, b"x" * 200, b"two"):
        journal.append(entry)
    journal.close()
    later = Journal(tmp_path, 4)
    later.append(b"three")
    later.append(b"four")
    later.close()
    last = Journal(tmp_path, 4)
    last.append(b"five")
    last.close()
    damaged = journal_folder(tmp_path, 4) / "000000000002.journal"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    told: list[bytes | None] = []
    for entry in replay(tmp_path, 4, [], lambda: told.append(None)):
        told.append(entry)  # noqa: PERF402 - the marks come in between
    assert told == [b"one", None, b"two", b"three", None, b"five"]
