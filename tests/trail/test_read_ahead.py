"""Files of a store are read ahead, each with as few requests as there can be, and what is read is what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.lab.trails import Scale, write_trail
from postroad.trail import Reads, TrailDamageError, TrailFile, file_reader, locations, pin
from postroad.trail.locations import StoredPath
from postroad.trail.read_ahead import asked_together, opened_ahead
from tests.pipeline.trails import copied

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail import FileEntry
    from postroad.trail.locations import Location
    from tests.trail.stores import Store

SMALL = Scale(brokers=2, messages=400, seed=5, publishers=5, subscriptions=3, interests=30, seconds=240)


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    write_trail(tmp_path / "trail", SMALL)
    return tmp_path / "trail"


def passages(place: Location) -> list[tuple[int, FileEntry]]:
    return [(1, entry) for entry in pin(place, 1).all_entries("passages")[0]]


def asked_of(store: Store) -> list[str]:
    return [request.method for request in store.asked]


def test_small_files_of_a_store_are_fetched_whole_by_one_request_each(store: Store, trail: Path) -> None:
    place = store.place("whole")
    copied(trail, place)
    files = passages(place)
    assert len(files) > 2
    store.asked.clear()
    near, far = Reads(), Reads()
    columns = ["origin", "time", "publisher", "counter"]
    rows = [file.read(columns).to_pylist() for _, _, file in opened_ahead(place, files, far)]
    # pyarrow asks for the size of each.
    assert sorted(asked_of(store)) == ["GET"] * len(files) + ["HEAD"] * len(files)
    assert rows == [TrailFile(trail, entry, 1, near).read(columns).to_pylist() for _, entry in files]
    assert (far.files, far.bytes) == (near.files, near.bytes)


def test_row_groups_of_a_large_file_are_fetched_together(
    store: Store, trail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store.place("large")
    copied(trail, place)
    monkeypatch.setattr(file_reader, "WHOLE_BYTES", 0)
    monkeypatch.setattr(file_reader, "TAIL_BYTES", 8)
    files = passages(place)[:1]
    store.asked.clear()
    for _, entry, file in opened_ahead(place, files, Reads()):
        assert file.read(["time"]).num_rows == entry.rows
        file.read(["origin"])
    # Its size, its last bytes, its footer, its row groups.
    assert asked_of(store) == ["HEAD", "GET", "GET", "GET"]


def test_neighbouring_spans_are_one_request_and_far_ones_are_two(store: Store) -> None:
    place = store.place("spans")
    assert isinstance(place, StoredPath)
    data = bytes(range(256)) * 4_096
    locations.put_file(place / "file", memoryview(data))
    spans = locations.Spans((place / "file").open(), len(data), b"")
    store.asked.clear()
    wanted = [(0, 10), (20, 30), (len(data) - 10, len(data) - 5)]
    spans.fetch_ahead(wanted)
    assert asked_of(store) == ["GET", "GET"]
    assert [spans.fetch(*one) for one in wanted] == [data[start:end] for start, end in wanted]
    assert asked_of(store) == ["GET", "GET"]


def test_reader_is_told_which_file_of_many_is_gone(store: Store, trail: Path) -> None:
    place = store.place("gone")
    assert isinstance(place, StoredPath)
    copied(trail, place)
    files = passages(place)
    lost = files[1][1].path
    (place / lost).unlink()
    with pytest.raises(TrailDamageError, match=lost.rpartition("/")[2]):
        list(opened_ahead(place, files, Reads()))


def test_answers_come_in_the_order_of_the_questions(store: Store, tmp_path: Path) -> None:
    def ask(number: int, reads: Reads) -> int:
        reads.count(number)
        return -number

    for place in (store.place("order"), tmp_path):
        reads = Reads()
        assert asked_together(place, range(20), ask, reads) == [-number for number in range(20)]
        assert (reads.files, reads.bytes) == (20, sum(range(20)))
