"""Passages written as runs are read as any others, by our reader and by others' of Parquet."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import Batch, MessageId
from postroad.tracking import ExactRecorder, Lists, PassageRuns, Shared
from postroad.trail import DAY_MS, SCHEMAS, Trail, TrailError, TrailWriter, by_date, describe_file, tabulate
from postroad.trail.packed_lists import unpack
from postroad.trail.run_files import render_runs
from postroad.trail.runs import RunTable

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.tracking import Segment

MIDNIGHT = 20_000 * DAY_MS
LISTS = ("relayed_to", "delivered", "acknowledged", "refused", "queued")


def shared(lists: list[list[int]], which: list[int]) -> Shared:
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    numbers = np.array([number for one in lists for number in one], np.int64)
    return Shared(np.array(which, np.int32), Lists(offsets, numbers))


def runs_of(rows: list[tuple[int, int, int, int, int, int]], lists: dict[str, Shared]) -> PassageRuns:
    return PassageRuns(*np.array(rows, np.int64).T.copy(), lists)  # type: ignore[call-arg]


def laid_out(runs: PassageRuns) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for index, count in enumerate(runs.counts.tolist()):
        fixed = {name: int(getattr(runs, name)[index]) for name in ("origin", "time", "publisher", "arrived_from")}
        numbers = {}
        for name in LISTS:
            one = runs.lists.get(name)
            place = -1 if one is None else int(one.which[index])
            numbers[name] = () if one is None else one.lists.numbers[slice(*one.lists.offsets[place : place + 2])]
        rows += [{**fixed, "counter": int(runs.counter[index]) + step, **numbers} for step in range(count)]
    return rows


columns = st.tuples(
    st.integers(1, 700),
    st.sampled_from([1, 2**32 - 1]),
    st.integers(0, 2**48 - 1),
    st.integers(1, 2**32 - 1),
    st.sampled_from([0, 1, 63, 3_000, 64_000]),
    st.sampled_from([-1, 0, 7, 2**32 - 1]),
)


@st.composite
def some_runs(draw: st.DrawFn) -> PassageRuns:
    rows = draw(st.lists(columns, min_size=1, max_size=30))
    lists = {}
    for name in draw(st.sets(st.sampled_from(LISTS))):
        known = draw(st.lists(st.lists(st.integers(1, 2**32 - 1), max_size=3, unique=True), min_size=1, max_size=300))
        which = draw(st.lists(st.integers(0, len(known) - 1), min_size=len(rows), max_size=len(rows)))
        lists[name] = shared([sorted(one) for one in known], which)
    return runs_of(rows, lists)


@given(some_runs())
def test_any_reader_of_parquet_finds_every_row_of_every_run(runs: PassageRuns) -> None:
    data, _ = render_runs(4, RunTable(runs))
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    assert file.schema_arrow.equals(SCHEMAS["passages"].remove_metadata())
    found = file.read()
    found.validate(full=True)
    rows = [
        {name: unpack(value) if name in LISTS else value for name, value in row.items()} for row in found.to_pylist()
    ]
    assert rows == [{name: tuple(value) if name in LISTS else value for name, value in row.items()}
                    for row in laid_out(runs)]  # fmt: skip
    for name in ("origin", "time"):
        statistics = file.metadata.row_group(0).column(file.schema_arrow.names.index(name)).statistics
        assert (statistics.min, statistics.max) == (getattr(runs, name).min(), getattr(runs, name).max())
        assert statistics.null_count == 0


def record(folder: Path, start: int) -> list[Segment]:
    """70,000 messages of one publisher, a thousand each ms; 3 gets all, 5 the latter half of every other thousand."""
    recorder, writer = ExactRecorder(4, start), TrailWriter(folder, 4, start - 1)
    for turn in range(70):
        batch = Batch.build([("t",)] * 1_000)
        first = MessageId(9, 4, start + turn, 0)
        batch.ids[:, 0] = first.head
        batch.ids[:, 1] = np.uint64(first.tail) + np.arange(1_000, dtype=np.uint64)
        recorder.accepted(batch, start + turn)
        recorder.delivered(batch, np.arange(1_000, dtype=np.int32), 3, start + turn)
        if turn % 2:
            recorder.delivered(batch, np.arange(500, 1_000, dtype=np.int32), 5, start + turn)
    (job,) = recorder.due(start + 1_000, force=True)
    segments = job.make()
    assert any(isinstance(segment, PassageRuns) for segment in segments)
    writer.write(segments, job.through)
    writer.close(start + 1_000)
    return segments


@pytest.mark.parametrize("start", [MIDNIGHT + 1_000, MIDNIGHT - 35])
def test_a_reader_finds_every_message_of_runs_on_either_side_of_midnight(tmp_path: Path, start: int) -> None:
    record(tmp_path, start)
    trail = Trail(tmp_path)
    for turn, counter, expected in ((0, 0, [3]), (1, 999, [3, 5]), (1, 499, [3]), (34, 7, [3]), (69, 500, [3, 5])):
        found = trail.answer(4, MessageId(9, 4, start + turn, counter)).findings
        assert found.accepted is not None
        assert [hit.number for hit in found.delivered] == expected
        assert not found.queued
        assert not found.relayed_to
    missing = trail.answer(4, MessageId(9, 4, start + 69, 1_000)).findings
    assert missing.accepted is None
    assert not missing.gaps


def test_the_manifest_says_of_runs_what_a_look_into_the_file_says(tmp_path: Path) -> None:
    record(tmp_path, MIDNIGHT + 1_000)
    trail = Trail(tmp_path)
    (path,) = (one.relative_to(tmp_path) for one in tmp_path.glob("passages/*/*/*.parquet"))
    described = describe_file(tmp_path, str(path), "passages", MIDNIGHT // DAY_MS)
    assert [group.rows for group in described.groups] == [65_536, 70_000 - 65_536]
    (entry,) = trail.pinned(4).all_entries("passages")[0]
    assert entry == described


def test_a_run_at_the_edge_of_a_row_group_goes_into_both(tmp_path: Path) -> None:
    runs = runs_of([(10, 4, 100, 9, 0, 0), (25, 4, 101, 9, 5, 0), (1, 4, 102, 9, 0, 0)], {})
    portions = list(RunTable(runs).portions(12))
    assert [(one.counts.tolist(), one.counter.tolist()) for one in portions] == [
        ([10, 2], [0, 5]),
        ([12], [7]),
        ([11, 1], [19, 0]),
    ]


def test_runs_are_cut_by_date_and_stand_alone() -> None:
    late = runs_of([(2, 4, MIDNIGHT - 1, 9, 0, 0), (3, 4, MIDNIGHT, 9, 0, 0)], {"queued": shared([[], [8]], [0, 1])})
    cut = by_date("passages", tabulate([late])["passages"])
    assert [(day, table.num_rows) for day, table in cut] == [(19_999, 2), (20_000, 3)]
    assert [row["queued"].tolist() for row in laid_out(cut[1][1].runs)] == [[8]] * 3
    with pytest.raises(TrailError, match="stand alone"):
        tabulate([late, late])


def test_runs_take_little_room() -> None:
    rows = [(3_000, 4, MIDNIGHT + ms, 9, 0, 0) for ms in range(100)]
    data, _ = render_runs(4, RunTable(runs_of(rows, {"delivered": shared([[3]], [0] * 100)})))
    assert 8 * len(data) < 0.5 * 300_000  # bits of a message
    assert pa.compute.sum(pq.read_table(io.BytesIO(data)).column("counter")).as_py() == 100 * sum(range(3_000))
