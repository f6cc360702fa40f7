"""A trail leads nowhere outside itself, whatever its manifests, notes and folders say."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.messages import MessageId
from postroad.pipeline.commit_note import Note, finish_commits, sole_compaction
from postroad.pipeline.errors import PipelineError
from postroad.tracking import Verdict
from postroad.trail import (
    DAY_MS,
    FileEntry,
    Journal,
    Reads,
    Trail,
    TrailDamageError,
    TrailFile,
    TrailWriteError,
    TrailWriter,
    file_path,
    pin,
    replay,
    sweep,
    sweep_leftovers,
)
from postroad.trail.coverage import Run
from postroad.trail.durable_files import replace_file
from postroad.trail.file_checksums import footer_checksum
from postroad.trail.ledger import Ledger
from postroad.trail.manifest import (
    Change,
    Checkpoint,
    Doomed,
    Part,
    Removal,
    change_name,
    checkpoint_name,
    encoded,
)
from postroad.trail.paths import delete_below, file_fault, part_fault
from postroad.trail.retention import sweep_manifests
from tests.trail.samples import HOUR, NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

LATER = NOON + 30 * DAY_MS
GOOD = "passages/broker=1/date=2023-11-14/000000000001-000001.parquet"
STRANGE = [
    "../secret",
    "/etc/hostname",
    "passages/broker=1/date=2023-11-14/../../../../secret",
    "passages/broker=1/date=2023-11-14/../../../../secret.parquet",
    "passages/broker=1//secret.parquet",
    "passages/broker=1/date=2023-11-14/.hidden.parquet",
    "passages/broker=2/date=2023-11-14/a.parquet",
    "passages/broker=01/date=2023-11-14/a.parquet",
    "manifests/broker=1/000000000001.json",
    "journal/broker=1/000000000001.journal",
    "passages/broker=1/date=2023-11-14/a\x00.parquet",
    "passages/broker=1/date=2023-11-14/" + "a" * 300 + ".parquet",
    "",
]


def entry(path: str) -> FileEntry:
    return FileEntry(path, "passages", NOON // DAY_MS, 1, 1, 0, ())


@pytest.mark.parametrize("path", STRANGE)
def test_strange_paths_are_faults(path: str) -> None:
    assert file_fault(path, 1)
    assert file_fault(GOOD, 1) == file_fault(GOOD, 1, "passages") == ""
    assert file_fault(GOOD, 2)
    assert file_fault(GOOD, 1, "names")


@pytest.mark.parametrize("path", ["parts/../../x.parquet", "/parts/a.parquet", "parts//a.parquet", "a.parquet", ""])
def test_strange_parts_are_faults(path: str) -> None:
    assert part_fault(path)
    assert part_fault("parts/2023-11-14-000000000016.parquet") == part_fault("parts/wide-000000000016.parquet") == ""


def scene(tmp_path: Path) -> tuple[Path, Path]:
    """A trail with one message in it, and somebody's file beside the trail."""
    root, secret = tmp_path / "trail", tmp_path / "secret.parquet"
    writer = TrailWriter(root, 1, NOON - HOUR)
    writer.write([passages([(1, NOON, 7, 0)])], NOON + 10)
    secret.write_text("not Postroad's")
    return root, secret


def test_manifest_that_is_no_text_is_damaged(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    body = b'{"number":3,"at":1,"added":[["passages/broker\x8c1","passages",1,1,1,1,[]]]}'
    path = Ledger(root, 1).folder / change_name(3)
    path.write_bytes(b"postroad-manifest 2 %08x\n%s\n" % (zlib.crc32(body), body))
    assert "not a manifest" in pin(root, 1).warnings[0]


def test_file_without_the_columns_of_its_table_is_damaged(tmp_path: Path) -> None:
    path = "passages/broker=1/date=2023-11-14/a.parquet"
    (tmp_path / path).parent.mkdir(parents=True)
    pq.write_table(pa.table({"number": [1]}), tmp_path / path)
    data = (tmp_path / path).read_bytes()
    found = FileEntry(path, "passages", NOON // DAY_MS, 1, len(data), footer_checksum(data, path), ())
    with pytest.raises(TrailDamageError, match="relayed_to"):
        TrailFile(tmp_path, found, 1, Reads())


def put_change(root: Path, change: Change) -> None:
    folder = Ledger(root, 1).folder
    replace_file(folder / change_name(change.number), encoded(change))


@pytest.mark.parametrize("how", ["relative", "absolute"])
def test_crafted_change_deletes_nothing_outside_the_trail(tmp_path: Path, how: str) -> None:
    root, secret = scene(tmp_path)
    path = str(secret) if how == "absolute" else "passages/broker=1/date=2023-11-14/../../../../secret.parquet"
    put_change(root, Change(Ledger(root, 1).head() + 1, NOON, removed=(Removal(path, ()),)))
    assert sweep(root, 1, LATER, grace_ms=0) == 0
    assert secret.exists()
    assert "not a path of a file" in pin(root, 1).warnings[0]


def test_crafted_checkpoint_deletes_nothing_outside_the_trail(tmp_path: Path) -> None:
    root, secret = scene(tmp_path)
    head = Ledger(root, 1).head()
    crafted = Checkpoint(head, NOON, runs=(Run(1, NOON, NOON),), doomed=(Doomed(str(secret), NOON),))
    replace_file(Ledger(root, 1).folder / checkpoint_name(head), encoded(crafted))
    assert sweep(root, 1, LATER, grace_ms=0) == 0
    assert secret.exists()


@pytest.mark.parametrize("path", STRANGE)
def test_crafted_change_adds_nothing_outside_the_trail(tmp_path: Path, path: str) -> None:
    root, _ = scene(tmp_path)
    put_change(root, Change(Ledger(root, 1).head() + 1, NOON, added=(entry(path),)))
    pinned = pin(root, 1)
    assert len(pinned.all_entries()[0]) == 1
    assert len(pinned.warnings) == 1


def test_crafted_part_names_nothing_outside_the_trail(tmp_path: Path) -> None:
    root, secret = scene(tmp_path)
    ledger = Ledger(root, 1)
    found = ledger.checkpoint(NOON)
    (part,) = found.parts
    place = ledger.folder / part.path
    rows = pq.read_table(place)
    rows = rows.set_column(rows.column_names.index("path"), "path", [[str(secret)]])
    pq.write_table(rows, place)
    data = place.read_bytes()
    bad = Part(part.day, part.path, part.tables, len(data), footer_checksum(data, place), part.numbers)
    place = ledger.folder / checkpoint_name(found.number)
    place.write_bytes(encoded(msgspec.structs.replace(found, parts=(bad,))))
    pinned = pin(root, 1)
    entries, holes = pinned.all_entries()
    assert (entries, len(holes)) == ([], 1)
    assert "not a path of a file" in pinned.warnings[0]


def test_part_outside_the_folder_of_manifests_is_not_read(tmp_path: Path) -> None:
    root, secret = scene(tmp_path)
    ledger = Ledger(root, 1)
    found = ledger.checkpoint(NOON)
    bad = tuple(msgspec.structs.replace(part, path=f"../../../{secret.name}") for part in found.parts)
    (ledger.folder / checkpoint_name(found.number)).write_bytes(encoded(msgspec.structs.replace(found, parts=bad)))
    assert "not a path of a part" in pin(root, 1).warnings[0]


def moved_aside(root: Path, folder: str, outside: Path) -> None:
    """Put a symbolic link in the place of a folder, and the folder elsewhere."""
    (root / folder).rename(outside)
    (root / folder).symlink_to(outside)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nothing_is_deleted_behind_a_symbolic_link(tmp_path: Path, depth: int) -> None:
    root, _ = scene(tmp_path)
    (found,) = pin(root, 1).all_entries()[0]
    Ledger(root, 1).replace(NOON, [found.path])
    moved_aside(root, "/".join(found.path.split("/")[:depth]), tmp_path / "outside")
    kept = [path for path in (tmp_path / "outside").rglob("*") if path.is_file()]
    assert len(kept) == 1
    assert sweep(root, 1, LATER, grace_ms=0) == 0
    assert kept[0].exists()
    assert not delete_below(root, found.path)


def test_leftovers_behind_a_symbolic_link_stay(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000000000000-000001.parquet").write_text("somebody's")
    (root / "passages" / "broker=1" / "date=2020-01-01").symlink_to(outside)
    TrailWriter(root, 1, NOON + HOUR)
    run = TrailWriter(root, 1, NOON + HOUR).run.number
    assert sweep_leftovers(root, 1, run) == 0
    assert len(list(outside.iterdir())) == 1


def test_parts_behind_a_symbolic_link_stay(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    ledger = Ledger(root, 1)
    for turn in range(4):
        TrailWriter(root, 1, NOON).write([passages([(1, NOON + turn, 7, 0)])], NOON + turn)
        ledger.checkpoint(NOON + turn)
    outside = tmp_path / "outside"
    moved_aside(root, "manifests/broker=1/parts", outside)
    before = len(list(outside.iterdir()))
    sweep_manifests(ledger, LATER)
    assert len(list(outside.iterdir())) == before


def test_file_behind_a_symbolic_link_is_neither_read_nor_written(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    writer = TrailWriter(root, 1, NOON + HOUR)
    moved_aside(root, "passages/broker=1", tmp_path / "outside")
    trail = Trail(root)
    assert trail.trace(MessageId(7, 1, NOON, 0)).journey.verdict is Verdict.NOT_RECORDED
    assert any("symbolic link" in warning for warning in trail.warnings)
    before = sorted((tmp_path / "outside").rglob("*"))
    with pytest.raises(TrailWriteError, match="symbolic link"):
        writer.write([passages([(1, NOON + HOUR, 7, 0)])], NOON + HOUR + 1)
    assert sorted((tmp_path / "outside").rglob("*")) == before


def test_manifests_behind_a_symbolic_link_are_neither_read_nor_written(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    moved_aside(root, "manifests/broker=1", tmp_path / "outside")
    assert "symbolic link" in pin(root, 1).warnings[0]
    with pytest.raises(TrailWriteError, match="symbolic link"):
        TrailWriter(root, 1, NOON + HOUR)


def test_trail_itself_may_be_a_symbolic_link(tmp_path: Path) -> None:
    root, _ = scene(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(root)
    TrailWriter(link, 1, NOON + HOUR).write([passages([(1, NOON + HOUR, 7, 0)])], NOON + HOUR + 1)
    assert len(pin(root, 1).all_entries()[0]) == 2


def test_journal_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000000000001.journal").write_bytes(b"PRjrnl01")
    (tmp_path / "trail" / "journal").mkdir(parents=True)
    (tmp_path / "trail" / "journal" / "broker=1").symlink_to(outside)
    with pytest.raises(TrailDamageError, match="symbolic link"):
        Journal(tmp_path / "trail", 1)
    with pytest.raises(TrailDamageError, match="symbolic link"):
        list(replay(tmp_path / "trail", 1, []))


@pytest.mark.parametrize("what", ["removed", "added"])
@pytest.mark.parametrize("path", [STRANGE[0], STRANGE[1], STRANGE[6]])
def test_note_of_a_compaction_changes_nothing_outside_its_brokers(tmp_path: Path, what: str, path: str) -> None:
    root, secret = scene(tmp_path)
    given: dict[str, dict[int, list[FileEntry]]] = {"removed": {}, "added": {}, what: {1: [entry(path)]}}
    (root / "compactions").mkdir()
    (root / "compactions" / "compact-1.json").write_bytes(msgspec.json.encode(Note(NOON, **given)))
    head = Ledger(root, 1).head()
    with pytest.raises(PipelineError, match=r"compact-1\.json: cannot be read"):
        finish_commits(root)
    assert secret.exists()
    assert Ledger(root, 1).head() == head


@pytest.mark.parametrize("link", ["compactions", "compactions/lock"])
def test_compaction_opens_no_lock_behind_a_symbolic_link(tmp_path: Path, link: str) -> None:
    root, secret = scene(tmp_path)
    (root / link).parent.mkdir(exist_ok=True)
    target = secret if link.endswith("lock") else tmp_path
    (root / link).symlink_to(target)
    with pytest.raises(TrailDamageError, match="symbolic link"), sole_compaction(root):
        pass
    assert secret.read_text() == "not Postroad's"
    assert not (tmp_path / "lock").exists()


def test_writers_give_paths_of_the_form_that_readers_take(tmp_path: Path) -> None:
    for day in (0, 19_675, 200_000):
        assert file_fault(file_path("passages", 4_294_967_295, day, "compact-0af-j0-1-0000"), 4_294_967_295) == ""
