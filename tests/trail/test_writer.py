"""What a writer leaves on disk."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from postroad.messages import Batch, MessageId
from postroad.tracking import ExactRecorder, LinkChanges
from postroad.trail import (
    DAY_MS,
    SCHEMAS,
    STANDING,
    TABLES,
    Hole,
    Trail,
    TrailError,
    TrailWriteError,
    TrailWriter,
    describe_file,
    durable_files,
    pin,
    unpack,
)
from postroad.trail.columns import MAX_DATES
from tests.trail.samples import HOUR, NOON, a_filter, everything, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path


def test_every_segment_becomes_a_file_of_its_table_with_the_declared_schema(tmp_path: Path) -> None:
    files = TrailWriter(tmp_path, 4, NOON - HOUR).write(everything(), NOON + HOUR)
    assert {entry.table for entry in files} == set(TABLES) - {"journeys", "records"}
    for entry in files:
        file = pq.ParquetFile(tmp_path / entry.path)
        assert file.schema_arrow.names == SCHEMAS[entry.table].names
        assert [field.type for field in file.schema_arrow] == [field.type for field in SCHEMAS[entry.table]]
        meta = file.metadata.metadata
        assert (meta[b"postroad.version"], meta[b"postroad.broker"]) == (b"2", b"4")
        assert meta[b"postroad.table"] == entry.table.encode()
        assert entry.path.startswith(f"{entry.table}/broker=4/date=2023-11-14/")
        assert entry.size == (tmp_path / entry.path).stat().st_size


def test_packed_lists_are_big_endian_and_null_when_empty(tmp_path: Path) -> None:
    files = TrailWriter(tmp_path, 4, NOON).write(everything(), NOON)
    rows = pq.read_table(tmp_path / next(entry.path for entry in files if entry.table == "passages")).to_pylist()
    assert rows[0]["relayed_to"] == b"\0\0\0\2\0\0\0\3"
    assert rows[0]["delivered"] is None
    assert unpack(rows[1]["delivered"]) == (70_000,)


def test_rows_go_to_the_date_of_the_time_in_their_id(tmp_path: Path) -> None:
    late = passages([(1, NOON - DAY_MS, 7, 0), (1, NOON, 7, 0)])
    files = TrailWriter(tmp_path, 4, NOON).write([late], NOON)
    assert sorted(entry.path.split("/")[2] for entry in files) == ["date=2023-11-13", "date=2023-11-14"]


def test_ids_beyond_the_year_9999_are_written_too(tmp_path: Path) -> None:
    (file,) = TrailWriter(tmp_path, 4, NOON).write([passages([(1, 2**48 - 1, 7, 0)])], NOON)
    assert "date=10889-08-02" in file.path


def test_segments_of_one_commit_are_merged_in_order(tmp_path: Path) -> None:
    parts = [passages([(2, NOON, 7, 0), (2, NOON, 8, 0)]), passages([(1, NOON + 9, 7, 0)])]
    (file,) = TrailWriter(tmp_path, 4, NOON).write(parts, NOON)
    assert pq.read_table(tmp_path / file.path).column("origin").to_pylist() == [1, 2, 2]
    assert [(group.origin, group.time_from, group.time_to, group.rows) for group in file.groups] == [
        (1, NOON + 9, NOON + 9, 1),
        (2, NOON, NOON, 2),
    ]


def test_late_ids_of_a_filter_do_not_widen_the_range_of_its_file(tmp_path: Path) -> None:
    (file,) = TrailWriter(tmp_path, 4, NOON).write([a_filter(singles=[NOON - 3 * DAY_MS])], NOON)
    assert sorted((group.time_from, group.time_to) for group in file.groups) == [
        (NOON - 3 * DAY_MS, NOON - 3 * DAY_MS),
        (NOON, NOON + 10),
    ]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("together", [False, True], ids=["rows", "runs"])
def test_ids_with_wild_times_make_few_files_and_are_found_all_the_same(
    tmp_path: Path, together: bool, checkpoint: bool
) -> None:
    chance = np.random.default_rng(1)
    wild = np.sort(np.concatenate([chance.integers(0, 2**48 - 1, 60), np.arange(NOON, NOON + 20)]))
    if together:
        recorder = ExactRecorder(1, NOON - HOUR)
        batch = Batch.build([("t",)] * len(wild))
        batch.ids[:, 0] = 7 << 32 | 1
        batch.ids[:, 1] = wild.astype(np.uint64) << np.uint64(16)
        recorder.accepted(batch, NOON)
        (job,) = recorder.due(NOON + HOUR, force=True)
        segments = job.make()
    else:
        segments = [passages([(1, time, 7, 0) for time in wild.tolist()])]
    writer = TrailWriter(tmp_path, 1, NOON - HOUR)
    files = [entry for entry in writer.write(segments, NOON + HOUR) if entry.table == "passages"]
    assert 2 <= len(files) <= MAX_DATES
    assert sum(entry.rows for entry in files) == len(wild)
    usual = next(entry for entry in files if entry.day == NOON // DAY_MS)
    assert (usual.time_from, usual.time_to) == (NOON, NOON + 19)
    if checkpoint:
        writer.ledger.checkpoint(NOON + HOUR)
    trail = Trail(tmp_path)
    assert all(trail.findings(1, MessageId(7, 1, time, 0)).accepted for time in wild[::7].tolist())
    assert trail.findings(1, MessageId(7, 1, NOON + 20, 0)).accepted is None


@pytest.mark.parametrize(
    ("ones", "method", "codec"),
    [(0.5, "bloom", "UNCOMPRESSED"), (0.05, "bloom", "ZSTD"), (0, "ribbon", "UNCOMPRESSED")],
)
def test_large_filters_are_written_as_they_are_made_and_compressed_where_it_is_of_use(
    tmp_path: Path, ones: float, method: str, codec: str
) -> None:
    random, bits = np.random.default_rng(3), 1 << 20
    made = [
        a_filter(time_from=NOON + at, time_to=NOON + at + 5)._replace(
            data=np.packbits(random.random(bits) < (ones or 0.5)).tobytes(),
            method=method,
            bits=bits,
            ones=int(ones * bits),
        )
        for at in range(20)
    ]
    (entry,) = TrailWriter(tmp_path, 4, NOON).write(made, NOON + HOUR)
    assert sum(len(one.data) for one in made) > durable_files.LARGE_BYTES
    file = pq.ParquetFile(tmp_path / entry.path, page_checksum_verification=True)
    assert file.read().column("data").to_pylist() == [one.data for one in made]
    assert entry.size == (tmp_path / entry.path).stat().st_size
    assert entry == describe_file(tmp_path, entry.path, "filters", entry.day)
    column = file.schema_arrow.names.index("data")
    assert {file.metadata.row_group(at).column(column).compression for at in range(2)} == {codec}
    assert not list(tmp_path.rglob(f"*{durable_files.TEMPORARY}"))


def test_a_large_file_that_the_disk_does_not_take_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    large = a_filter()._replace(data=bytes(2 * durable_files.LARGE_BYTES))

    def fails(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable_files, "_force", fails)
    with pytest.raises(TrailWriteError, match="make room"):
        writer.write([large], NOON + 1)
    monkeypatch.undo()
    assert not list(tmp_path.rglob(f"*{durable_files.TEMPORARY}"))
    assert not list(tmp_path.glob("filters/**/*.parquet"))


def test_a_filter_of_late_ids_alone_belongs_to_the_date_of_the_first(tmp_path: Path) -> None:
    alone = a_filter(time_from=1, time_to=0, singles=[NOON - DAY_MS])
    (file,) = TrailWriter(tmp_path, 4, NOON).write([alone], NOON)
    assert file.day == NOON // DAY_MS - 1


def test_a_file_of_another_writer_is_described_as_our_own(tmp_path: Path) -> None:
    for entry in TrailWriter(tmp_path, 4, NOON).write(everything(), NOON):
        assert describe_file(tmp_path, entry.path, entry.table, entry.day) == entry


def test_a_commit_that_fails_counts_for_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    prepared = writer.prepare(everything(), NOON + 5)
    (tmp_path / "shed").write_text("in the way")
    with pytest.raises(TrailWriteError, match="shed"):
        writer.commit(prepared)
    assert pin(tmp_path, 4).all_entries()[0] == []
    assert list(tmp_path.glob("passages/**/*.parquet")) == []
    (tmp_path / "shed").unlink()
    writer.commit(prepared)
    assert len(pin(tmp_path, 4).all_entries()[0]) == 9
    assert pin(tmp_path, 4).runs[0].through == NOON + 5


def test_a_commit_that_is_not_surely_on_disk_names_no_files_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    prepared = writer.prepare(everything(), NOON + 5)
    force = durable_files.sync_directory

    def fails(directory: Path) -> None:
        if "manifests" in directory.parts:
            raise OSError(errno.EIO, "Input/output error")
        force(directory)

    monkeypatch.setattr(durable_files, "sync_directory", fails)
    with pytest.raises(TrailWriteError, match="Input/output"):
        writer.commit(prepared)
    monkeypatch.undo()
    assert pin(tmp_path, 4).all_entries()[0] == []
    writer.commit(prepared)
    entries = pin(tmp_path, 4).all_entries()[0]
    assert len(entries) == 9
    assert all((tmp_path / entry.path).exists() for entry in entries)


def test_rows_that_were_given_up_leave_a_hole(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.drop(writer.prepare(everything(), NOON + 5), "disk full")
    writer.write([], NOON + 9)
    assert pin(tmp_path, 4).holes == (Hole(NOON, NOON + 6, "disk full"),)


def test_what_is_given_up_one_after_the_other_leaves_one_hole_for_each_reason(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    for through in (NOON + 5, NOON + 9):
        writer.drop(writer.prepare([], through), "disk full")
    writer.lacks(NOON + 7, NOON + 8, "disk full")
    writer.lacks(NOON + 20, NOON + 30, "disk full")
    writer.lacks(NOON + 25, NOON + 40, "other")
    assert writer.holes == (
        Hole(NOON, NOON + 10, "disk full"),
        Hole(NOON + 20, NOON + 30, "disk full"),
        Hole(NOON + 25, NOON + 40, "other"),
    )


def test_the_record_cannot_go_back(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    with pytest.raises(TrailError, match="go back"):
        writer.write([], NOON - 1)


def test_the_first_commit_of_a_day_repeats_the_links_that_stand(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.write([LinkChanges(wide([2, 3]), wide([NOON, NOON]), short([1, 1]), short([1, 1]))], NOON)
    midnight = (NOON // DAY_MS + 1) * DAY_MS
    files = writer.write([LinkChanges(wide([2]), wide([midnight - 1]), short([0]), short([0]))], midnight + HOUR)
    (new,) = (entry for entry in files if entry.day == midnight // DAY_MS)
    assert pq.read_table(tmp_path / new.path).to_pylist() == [
        {"neighbour": 3, "at": midnight, "up": STANDING, "cost": 1}
    ]
