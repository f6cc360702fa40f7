"""The list of what was shipped: as long as what is new, not as the trail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.tracking import Verdict
from postroad.trail import DAY_MS, pin
from postroad.trail.ledger import CHECKPOINT_EVERY
from postroad.trail.ship_book import PutFile, ShipBook
from postroad.trail.shipper import Shipper
from tests.trail.shipments import LATER, files_below, first_file, more, verdict, written

if TYPE_CHECKING:
    from pathlib import Path


def listed_files(root: Path) -> set[str]:
    """Files of tables that the list names."""
    lines = (root / "shipped" / "broker=1.log").read_bytes().splitlines()
    return {line[1] for line in map(msgspec.json.decode, lines) if line[1].startswith("passages/")}


def test_list_of_shipped_files_does_not_grow_with_the_trail(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    writer, shipper = written(root, 1), Shipper(root, 1, to)
    for commit in range(1, 5 * CHECKPOINT_EVERY):
        more(writer, commit)
        shipper.ship(LATER)
        assert len(listed_files(root)) <= CHECKPOINT_EVERY
    assert files_below(to) == files_below(root)
    again = Shipper(root, 1, to)
    again.ship(LATER)
    assert again.statistics()[:3] == (0, 0, 0), "what is there was sent or compared again"


def test_list_of_an_earlier_version_is_shortened_and_what_it_lacks_is_shipped(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    written(root, 2 * CHECKPOINT_EVERY)
    Shipper(root, 1, to).ship(LATER)
    first, book = first_file(root), ShipBook(root, 1)
    for entry in pin(root, 1).all_entries()[0]:
        if entry.path != first.path:
            book.has_put(entry.path, PutFile(entry.size, entry.crc, entry.time_to))
    with (root / "shipped" / "broker=1.log").open("ab") as file:
        file.write(msgspec.json.encode(["dropped", first.path]) + b"\n")
    (to / first.path).unlink()
    Shipper(root, 1, to).ship(LATER)
    assert files_below(to) == files_below(root)
    assert len(listed_files(root)) <= CHECKPOINT_EVERY


def test_local_copies_go_when_they_are_old_though_the_list_forgot_them(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    written(root, 2 * CHECKPOINT_EVERY + 1)
    shipper = Shipper(root, 1, to, keep_local_ms=DAY_MS)
    shipper.ship(LATER)
    assert shipper.statistics().dropped == 0
    paths = [entry.path for entry in pin(root, 1).all_entries()[0]]
    (to / paths[0]).unlink()
    shipper.ship(LATER + 2 * DAY_MS)
    # What the store has lost stays here, and is shipped again after the next start.
    assert [path for path in paths if (root / path).exists()] == [paths[0]]
    assert all(verdict(root, commit) == (Verdict.DELIVERED, 1.0) for commit in range(2 * CHECKPOINT_EVERY + 1))
    again = Shipper(root, 1, to, keep_local_ms=DAY_MS)
    again.ship(LATER + 2 * DAY_MS)
    assert [again.statistics().files, again.statistics().dropped] == [1, 1]
    assert (to / paths[0]).exists()


def test_lines_that_are_no_lines_are_passed_over(tmp_path: Path) -> None:
    book = ShipBook(tmp_path, 1)
    book.has_put("kept", PutFile(1, 2, 3))
    with (tmp_path / "shipped" / "broker=1.log").open("ab") as file:
        file.write(b'["put","short",1]\n["doomed","no time"]\n["put"]\n[]\n{"put"\n["put","cut off"')
    assert ShipBook(tmp_path, 1).put == {"kept": PutFile(1, 2, 3)}
