"""Questions are divided so that each portion has every file that may have a record of its ids."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.pipeline import lookup, portions
from postroad.pipeline.portions import counted_spots, divided
from postroad.pipeline.sources import SourceFile
from postroad.trail import FileEntry
from postroad.trail.files import Group
from postroad.trail.spots import SPOT_MS

IDS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=60)
GROUPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=6
)


def ids_of(pairs: list[tuple[int, int]]) -> pa.Table:
    origin, minute = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return pa.table({"origin": origin, "time": minute * SPOT_MS + np.arange(len(pairs)) % SPOT_MS})


def file_of(place: int, groups: list[tuple[int, int, int, int]]) -> SourceFile:
    made = tuple(
        Group(index, origin, first * SPOT_MS, (first + wide) * SPOT_MS + 7, 100)
        for index, origin, first, wide in groups
    )
    return SourceFile(1, FileEntry(f"file-{place}", "passages", 0, 100 * len(groups), 10_000, 0, made))


@given(IDS, st.lists(GROUPS, max_size=8))
def test_every_portion_has_all_files_of_its_minutes(
    pairs: list[tuple[int, int]], files: list[list[tuple[int, int, int, int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PORTION_IDS", 4), ("MAX_IDS_TOGETHER", 6), ("PORTION_BYTES", 5_000)):
            patch.setattr(portions, name, value)
        asked = counted_spots(ids_of(pairs))
        assert asked is not None
        sources = [file_of(place, groups) for place, groups in enumerate(files)]
        division = divided(asked, sources)
    assert asked.total == len(pairs)
    read = {
        (portion, one.entry.path, group.index, group.origin, group.time_from)
        for portion, one in division.files
        for group in one.entry.groups
    }
    for spot in range(len(asked.ids)):
        further = range(int(division.more[spot]), int(division.more[spot] + division.salts[spot] - 1))
        for portion in (int(division.portion[spot]), *further):
            assert 0 <= portion < division.portions
            for one in sources:
                for group in one.entry.groups:
                    first, last = group.time_from // SPOT_MS, group.time_to // SPOT_MS
                    if group.origin == asked.origin[spot] and first <= asked.minute[spot] <= last:
                        assert (portion, one.entry.path, group.index, group.origin, group.time_from) in read
    spread = zip(division.more.tolist(), division.salts.tolist(), strict=True)
    ends = sorted((range(more, more + salts - 1) for more, salts in spread if salts > 1), key=lambda one: one.start)
    assert all(one.stop <= other.start for one, other in pairwise(ends))


def test_minutes_are_cut_where_files_are_of_minutes_and_origins_where_they_are_of_origins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portions, "PORTION_IDS", 40)
    asked = counted_spots(ids_of([(origin, minute) for origin in range(1, 5) for minute in range(40)]))
    assert asked is not None
    by_minute = [file_of(minute, [(0, origin, minute, 0) for origin in range(1, 5)]) for minute in range(40)]
    by_origin = [file_of(origin, [(0, origin, 0, 39)]) for origin in range(1, 5)]
    for files in (by_minute, by_origin):
        division = divided(asked, files)
        assert division.portions == 4
        assert len(division.files) == len(files), "a file is read more than once"


def test_ids_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    right = lookup.hashed_ids
    monkeypatch.setattr(
        lookup, "hashed_ids", lambda columns, seed: right(columns, seed) if seed > 1 else columns[1].view(np.uint64)
    )
    ids = pa.table({"origin": [1, 2, 1], "time": [5, 5, 5], "publisher": [7, 7, 7], "counter": [0, 0, 0]})
    asked = lookup.AskedIds(ids)
    assert asked.place_of_question.tolist() == [0, 1, 0]
    rows = pa.table({"origin": [2, 1, 1], "time": [5, 5, 5], "publisher": [7, 7, 8], "counter": [0, 0, 0]})
    assert asked.places(rows).tolist() == [1, 0, -1]
