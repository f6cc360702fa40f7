"""Manifests: no commit is lost, checkpoints change nothing, readers see one state."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.trail import (
    DAY_MS,
    FileEntry,
    Group,
    Hole,
    Ledger,
    Reads,
    Run,
    TrailConflictError,
    TrailError,
    TrailWriter,
    file_path,
    gaps_within,
    pin,
)
from postroad.trail.coverage import FOREVER, GapReason
from tests.trail.samples import NOON, passages

if TYPE_CHECKING:
    from pathlib import Path


def where(name: str) -> str:
    return file_path("passages", 4, 0, name)


def entry(name: str, groups: list[tuple[int, int, int]]) -> FileEntry:
    return FileEntry(
        where(name),
        "passages",
        groups[0][1] // DAY_MS,
        7,
        99,
        5,
        tuple(Group(index, origin, low, high, 1) for index, (origin, low, high) in enumerate(groups)),
    )


# Ranges within a day, across some days, and across more than a part per day is made for.
spans = st.tuples(
    st.integers(1, 3), st.integers(0, 5 * DAY_MS), st.sampled_from([0, 5, DAY_MS, 3 * DAY_MS, 30 * DAY_MS])
).map(lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2]))
commits = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.lists(spans, min_size=1, max_size=3), max_size=3)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.just("checkpoint"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=25)
@given(commits, spans)
def test_a_pinned_manifest_names_just_the_files_that_fit(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[str, Any]], asked: tuple[int, int, int]
) -> None:
    root = tmp_path_factory.mktemp("trail")
    ledger = Ledger(root, 4)
    live: dict[str, FileEntry] = {}
    for number, (what, detail) in enumerate(commits):
        if what == "add":
            added = [entry(f"{number}-{index}", groups) for index, groups in enumerate(detail)]
            ledger.append(NOON, added)
            live |= {one.path: one for one in added}
        elif what == "remove" and live:
            gone = sorted(live)[detail % len(live)]
            ledger.replace(NOON, [gone])
            del live[gone]
        elif what == "checkpoint":
            ledger.checkpoint(NOON)
    pinned = pin(root, 4)
    assert pinned.warnings == []
    assert {one.path: one for one in pinned.all_entries()[0]} == live
    origin, low, high = asked
    found, holes = pinned.entries("passages", origin, low, high, Reads())
    assert holes == []
    wanted = {
        path: {
            group for group in one.groups if group.origin == origin and group.time_from <= high and group.time_to >= low
        }
        for path, one in live.items()
    }
    assert {one.path: set(one.groups) for one in found} == {path: groups for path, groups in wanted.items() if groups}


def test_writers_that_compete_lose_no_commit(tmp_path: Path) -> None:
    def commit_some(name: str) -> None:
        ledger = Ledger(tmp_path, 4)
        for turn in range(12):
            ledger.append(NOON, [entry(f"{name}-{turn}", [(1, NOON, NOON)])])
            if turn % 5 == 0:
                ledger.checkpoint(NOON)

    threads = [threading.Thread(target=commit_some, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(one.path for one in pin(tmp_path, 4).all_entries()[0])
    assert counts == {where(f"{name}-{turn}"): 1 for name in "abc" for turn in range(12)}


def test_a_file_cannot_be_taken_out_twice(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 4)
    ledger.append(NOON, [entry("a", [(1, NOON, NOON)])])
    ledger.replace(NOON, [where("a")], [entry("b", [(1, NOON, NOON)])])
    with pytest.raises(TrailConflictError, match=r"a\.parquet is not in the manifest"):
        ledger.replace(NOON, [where("a")])
    assert [one.path for one in ledger.pin().all_entries()[0]] == [where("b")]


def test_a_pinned_reader_sees_no_later_commit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 4)
    ledger.append(NOON, [entry("a", [(1, NOON, NOON)])])
    pinned = pin(tmp_path, 4)
    ledger.replace(NOON, [where("a")])
    ledger.checkpoint(NOON)
    assert [one.path for one in pinned.all_entries()[0]] == [where("a")]


def test_what_a_reader_of_one_time_reads_does_not_grow_with_the_trail(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 4)
    costs = []
    for day in range(41):
        files = [entry(f"{day}-{index}", [(1, day * DAY_MS + index, day * DAY_MS + index)]) for index in range(20)]
        ledger.append(day * DAY_MS, files)
        ledger.checkpoint(day * DAY_MS)
        if day in (4, 40):
            reads = Reads()
            found, _ = pin(tmp_path, 4, reads).entries("passages", 1, 5, 5, reads)
            assert [one.path for one in found] == [where("0-5")]
            costs.append((reads.files, reads.bytes))
    assert costs[1][0] == costs[0][0]
    assert costs[1][1] < 3 * costs[0][1]


def test_a_commit_writes_no_more_when_the_trail_is_large(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 4)
    sizes = []
    for number in range(60):
        change = ledger.append(NOON, [entry(f"{number:04d}", [(1, NOON, NOON)])])
        sizes.append((ledger.folder / f"{change.number:012d}.json").stat().st_size)
    # The first has no predecessor to name.
    assert max(sizes[1:]) < min(sizes[1:]) + 20


def test_runs_have_numbers_of_their_own(tmp_path: Path) -> None:
    runs = [TrailWriter(tmp_path, 4, NOON).run.number for _ in range(3)]
    assert len(set(runs)) == 3


@pytest.mark.parametrize("version", [1, 9])
def test_a_manifest_of_another_version_is_not_written_over(tmp_path: Path, version: int) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    path = writer.ledger.folder / "000000000002.json"
    path.write_bytes(b"postroad-manifest %d 00000000\n{}\n" % version)
    with pytest.raises(TrailError, match="another format"):
        TrailWriter(tmp_path, 4, NOON)
    with pytest.raises(TrailError, match="another format"):
        TrailWriter.resume(tmp_path, 4, writer.run)
    assert f"of version {version}" in pin(tmp_path, 4).warnings[0]
    assert pin(tmp_path, 4).holes


@pytest.mark.parametrize("lost", ["damaged", "missing"])
def test_a_lost_change_leaves_a_hole_as_long_as_what_it_covered(tmp_path: Path, lost: str) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    for turn in range(1, 4):
        writer.write([passages([(1, NOON + turn, 7, 0)])], NOON + 10 * turn)
    path = writer.ledger.folder / "000000000003.json"
    if lost == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    pinned = pin(tmp_path, 4)
    assert [(hole.since, hole.until) for hole in pinned.holes] == [(NOON + 10, NOON + 30)]
    assert "000000000003.json" in pinned.warnings[0]
    assert len(pinned.all_entries()[0]) == 2


def test_a_damaged_checkpoint_is_made_up_for_by_the_changes(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.write([passages([(1, NOON, 7, 0)])], NOON + 10)
    writer.ledger.checkpoint(NOON)
    path = writer.ledger.folder / "000000000002.checkpoint.json"
    path.write_bytes(os.urandom(50))
    pinned = pin(tmp_path, 4)
    assert len(pinned.all_entries()[0]) == 1
    assert pinned.holes == ()
    assert "checkpoint" in pinned.warnings[0]


def test_a_damaged_part_is_a_hole_of_its_day_and_stays_one_after_the_next_checkpoint(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.write([passages([(1, NOON, 7, 0)])], NOON + 10)
    writer.ledger.checkpoint(NOON)
    (part,) = (writer.ledger.folder / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    day = NOON // DAY_MS * DAY_MS
    found, holes = pin(tmp_path, 4).entries("passages", 1, NOON, NOON, Reads())
    assert found == []
    assert [(hole.since, hole.until) for hole in holes] == [(day, day + DAY_MS)]
    writer.write([passages([(1, NOON + 1, 7, 0)])], NOON + 20)
    writer.ledger.checkpoint(NOON)
    assert [(hole.since, hole.until) for hole in pin(tmp_path, 4).holes] == [(day, day + DAY_MS)]


CLOSED, OPEN = Run(1, 100, 200, True), Run(2, 300, 400)


@pytest.mark.parametrize(
    ("runs", "at", "reasons"),
    [
        ([], 5, [GapReason.NEVER_BEGUN]),
        ([CLOSED], 50, [GapReason.BEFORE_FIRST]),
        ([CLOSED], 150, []),
        ([CLOSED], 195, []),  # what it saw before it was stopped is written
        ([CLOSED], 205, [GapReason.STOPPED]),
        ([CLOSED, OPEN], 250, [GapReason.STOPPED]),
        ([CLOSED, OPEN], 299, [GapReason.STOPPED]),
        ([CLOSED, OPEN], 301, []),
        ([OPEN], 350, []),
        ([OPEN], 395, [GapReason.NOT_YET_WRITTEN]),  # it may have been seen a moment later
        ([OPEN, Run(3, 450, 500)], 395, [GapReason.CRASHED]),
        ([OPEN, Run(3, 450, 500)], 455, [GapReason.CRASHED]),  # clocks may differ
    ],
)
def test_gaps_around_a_time(runs: list[Run], at: int, reasons: list[str]) -> None:
    assert [gap.reason for gap in gaps_within(runs, [], at, at - 8, at + 18)] == reasons


def test_a_hole_inside_a_run_is_a_gap() -> None:
    holes = [Hole(320, 330, "disk full")]
    assert [gap.reason for gap in gaps_within([OPEN], holes, 335, 327, 353)] == ["disk full"]
    assert gaps_within([OPEN], holes, 345, 337, 363) == ()
    assert gaps_within([OPEN], [], 10**6, 10**6, 10**6 + 9)[0].until == FOREVER
