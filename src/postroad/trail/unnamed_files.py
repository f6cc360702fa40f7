"""Files of a broker in a store that no manifest names: they were removed here while the store could not be told.

A broker that was away, whose list of shipped files is gone, or that ships to a copy of an earlier place cannot know of
them otherwise, and what was erased or has expired would stay readable there for ever.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from postroad.trail.checkpoint_parts import WIDE
from postroad.trail.columns import date_text
from postroad.trail.file_reader import Reads
from postroad.trail.locations import relative
from postroad.trail.manifest import change_name, checkpoint_name, manifest_folder, numbers
from postroad.trail.paths import file_fault
from postroad.trail.schemas import TABLES

if TYPE_CHECKING:
    from postroad.trail.locations import Location
    from postroad.trail.manifest import Part
    from postroad.trail.snapshot import Pinned

__all__ = ["number_in", "stored_manifests", "unnamed_files"]


def unnamed_files(place: Location, state: Pinned) -> list[str]:
    """The paths of such files, by the manifest as it is here; none if that cannot be read whole, or is older.

    Lists one folder of the store after the other, and holds the names of one day.

    Args:
        place: where the broker ships to.
        state: the manifest here, all of which is shipped.

    Raises:
        OSError: the store does not answer.
    """
    changes, checkpoints = numbers(manifest_folder(place, state.broker))
    if state.warnings or max([*changes, *checkpoints], default=0) > state.number:
        return []
    parts = state.checkpoint.parts if state.checkpoint else ()
    by_date = {date_text(part.day): part for part in parts if part.day != WIDE}
    gone = state.removed()
    recent = {entry.path for change in state.changes for entry in change.added} - gone
    found: set[str] = set()
    for date, folders in sorted(_folders(place, state.broker).items()):
        there = {relative(one, place) for folder in folders for one in folder.iterdir()}
        named = _named(state, [by_date[date]] if date in by_date else [])
        found |= {path for path in there - recent - (named - gone) if not file_fault(path, state.broker)}
    # A file may be named by the parts of other days than that of its folder.
    for part in parts if found else ():
        found -= _named(state, [part]) - gone
    return [] if state.warnings else sorted(found)


def _folders(place: Location, broker: int) -> dict[str, list[Location]]:
    """The folders with files of a broker, by date."""
    found: dict[str, list[Location]] = defaultdict(list)
    for table in TABLES:
        for folder in (place / table / f"broker={broker}").glob("date=*"):
            found[folder.name.removeprefix("date=")].append(folder)
    return found


def _named(state: Pinned, parts: list[Part]) -> set[str]:
    return {entry.path for entry in state.from_parts(parts, Reads())[0]}


def stored_manifests(place: Location, broker: int) -> list[str]:
    """The manifests of a broker in a store, and their parts, as names in their folder.

    Raises:
        OSError: the store does not answer.
    """
    folder = manifest_folder(place, broker)
    changes, checkpoints = numbers(folder)
    names = [change_name(number) for number in changes] + [checkpoint_name(number) for number in checkpoints]
    return names + sorted(relative(part, folder) for part in folder.glob("parts/*.parquet"))


def number_in(path: str) -> int:
    """The number of a manifest, or of the checkpoint that a part was made for."""
    digits = PurePosixPath(path).name.partition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 1 << 62
