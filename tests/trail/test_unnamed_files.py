"""Files taken out of a trail while nobody told the store: they go there too, whatever became of the list of files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from postroad.tracking import Verdict
from postroad.trail import DAY_MS, pin
from postroad.trail.locations import put_file
from postroad.trail.retention import DEFAULT_GRACE_MS, sweep
from postroad.trail.shipper import Shipper
from postroad.trail.unnamed_files import unnamed_files
from tests.trail.shipments import LATER, files_below, first_file, idle, more, verdict, written

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail import TrailWriter
    from tests.trail.stores import Store

# The broker is away for so long that here nothing is left that tells of the file.
BACK = LATER + 4 * DAY_MS


def taken_out(writer: TrailWriter, root: Path) -> str:
    """Take the first file out and sweep all that says so, as jobs do while the broker is away; returns its path."""
    old = first_file(root).path
    writer.ledger.replace(LATER, [old])
    idle(writer, LATER + DAY_MS)
    idle(writer, LATER + 2 * DAY_MS)
    sweep(root, 1, BACK)
    assert not (root / old).exists()
    assert old not in pin(root, 1).removed()
    return old


def damage(root: Path, path: str) -> None:
    data = bytearray((root / path).read_bytes())
    data[20] ^= 1
    (root / path).write_bytes(data)


@pytest.mark.parametrize("happened", ["nothing", "list lost", "place copied", "another file damaged"])
def test_file_taken_out_while_the_broker_was_away_goes_in_the_store(tmp_path: Path, happened: str) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    writer = written(root, 3)
    if happened == "another file damaged":
        entries = sorted(pin(root, 1).all_entries("passages")[0], key=lambda one: one.time_from)
        damage(root, entries[2].path)
    Shipper(root, 1, to).ship(LATER)
    old = taken_out(writer, root)
    if happened == "list lost":
        (root / "shipped" / "broker=1.log").unlink()
    if happened == "place copied":
        shutil.copytree(to, tmp_path / "copy")
        to = tmp_path / "copy"
    back = Shipper(root, 1, to)
    back.ship(BACK)
    # Who pinned the manifest there a moment ago goes on reading.
    assert (to / old).exists()
    assert verdict(to, 1) == (Verdict.DELIVERED, 1.0)
    back.ship(BACK + DEFAULT_GRACE_MS)
    assert not (to / old).exists()
    assert verdict(to, 1) == (Verdict.DELIVERED, 1.0)
    if happened != "another file damaged":
        assert files_below(to) == files_below(root)


def test_upload_that_nobody_noted_goes_in_a_real_store(store: Store, tmp_path: Path) -> None:
    writer, to = written(tmp_path, 10), store.place("unnoted")
    Shipper(tmp_path, 1, to).ship(LATER)
    old = first_file(tmp_path).path
    left = old.replace(".parquet", "-left.parquet")
    (tmp_path / left).write_bytes(b"of a broker that died after it was put")
    put_file(to / left, memoryview((tmp_path / left).read_bytes()))
    (tmp_path / left).unlink()
    assert unnamed_files(to, pin(tmp_path, 1)) == [left]
    more(writer, 10)
    again = Shipper(tmp_path, 1, to)
    again.ship(LATER)
    again.ship(LATER + DEFAULT_GRACE_MS)
    assert not (to / left).exists()
    assert files_below(to) == files_below(tmp_path)


def test_nothing_is_taken_for_unnamed_where_the_manifest_is_damaged_or_older(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    writer = written(root, 10)
    shutil.copytree(root, tmp_path / "older")
    more(writer, 10)
    Shipper(root, 1, to).ship(LATER)
    assert unnamed_files(to, pin(root, 1)) == []
    assert unnamed_files(to, pin(tmp_path / "older", 1)) == []
    min((root / "manifests" / "broker=1" / "parts").iterdir()).unlink()
    assert unnamed_files(to, pin(root, 1)) == []
