"""The journal: what was durable before a crash is there after it, and nothing that was not written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.trail import Journal, TrailWriteError, journal_folder, replay
from tests.trail.samples import NOON

if TYPE_CHECKING:
    from pathlib import Path


def entries_in(root: Path) -> tuple[list[bytes], list[str]]:
    warnings: list[str] = []
    return list(replay(root, 4, warnings)), warnings


def test_synced_entries_are_replayed_in_order_and_others_are_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    positions = [journal.append(entry, NOON) for entry in (b"a", b"", b"c" * 1000)]
    assert journal.durable == 0
    assert journal.sync() == positions[-1] == journal.durable
    journal.append(b"not synced", NOON)
    assert entries_in(tmp_path) == ([b"a", b"", b"c" * 1000], [])
    assert journal.durable < journal.position


def test_a_position_is_durable_only_once_its_entry_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    first = journal.append(b"a", NOON)
    journal.sync()
    second = journal.append(b"b", NOON)
    assert first <= journal.durable < second


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_a_torn_or_damaged_end_costs_only_what_follows(
    tmp_path_factory: pytest.TempPathFactory, entries: list[bytes], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("trail")
    journal = Journal(root, 4)
    ends = [8, *(8 + journal.append(entry, NOON) for entry in entries)]
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
    first.append(b"one", NOON)
    first.close()
    second = Journal(tmp_path, 4)
    second.append(b"two", NOON)
    second.sync()
    assert entries_in(tmp_path)[0] == [b"one", b"two"]
    second.forget_earlier()
    assert entries_in(tmp_path)[0] == [b"two"]


def test_segments_go_when_the_trail_has_all_of_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    journal.append(b"one", NOON)
    journal.sync()
    assert journal.release(NOON - 1) == 0
    journal.append(b"two", NOON + 10)
    journal.sync()
    assert journal.release(NOON + 9) == 1
    assert entries_in(tmp_path)[0] == [b"two"]
    assert journal.release(NOON + 10) == 1
    assert entries_in(tmp_path)[0] == []


def test_a_disk_that_takes_nothing_keeps_entries_waiting_within_a_bound(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4, max_waiting_bytes=100)
    (tmp_path / "journal").write_text("in the way")
    position = journal.append(b"a" * 40, NOON)
    with pytest.raises(TrailWriteError, match="cannot be written"):
        journal.sync()
    assert journal.durable < position
    assert journal.trouble
    lost = journal.append(b"b" * 90, NOON)
    assert journal.lost_through == lost
    assert journal.statistics().lost_entries == 1
    (tmp_path / "journal").unlink()
    journal.append(b"c", NOON)
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
        journal.append(entry, NOON)
    done.set()
    thread.join()
    assert journal.sync() == journal.position
    assert entries_in(tmp_path) == (entries, [])


def test_foreign_files_are_named_and_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4)
    journal.append(b"one", NOON)
    journal.close()
    (journal_folder(tmp_path, 4) / "000000000000.journal").write_bytes(b"something else")
    found, warnings = entries_in(tmp_path)
    assert found == [b"one"]
    assert "not a segment" in warnings[0]


def test_a_replay_tells_where_entries_were_given_up_or_are_damaged(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4, max_waiting_bytes=100)
    for entry in (b"one", b"x" * 200, b"x" * 200, b"two"):
        journal.append(entry, NOON)
    journal.close()
    later = Journal(tmp_path, 4)
    later.append(b"three", NOON)
    later.append(b"four", NOON)
    later.close()
    last = Journal(tmp_path, 4)
    last.append(b"five", NOON)
    last.close()
    damaged = journal_folder(tmp_path, 4) / "000000000002.journal"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    told: list[bytes | None] = []
    for entry in replay(tmp_path, 4, [], lambda: told.append(None)):
        told.append(entry)  # noqa: PERF402 - the marks come in between
    assert told == [b"one", None, b"two", b"three", None, b"five"]
