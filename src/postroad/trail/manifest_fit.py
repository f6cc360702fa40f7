"""Checks that a manifest belongs to the files beside it.

A manifest that was restored from the backup of another trail is intact, and says for which times the record is
complete. It does not name the files that are here, so a message in them would be denied with certainty. Its own files
are elsewhere: those that it names are missing here, or different.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from postroad.trail.coverage import FOREVER, Hole, not_shipped
from postroad.trail.errors import TrailError
from postroad.trail.file_reader import Reads
from postroad.trail.locations import relative
from postroad.trail.manifest_chain import is_as_written
from postroad.trail.schemas import MESSAGE_TABLES
from postroad.trail.shipped_files import may_lag, shipped_to
from postroad.trail.snapshot import pin

if TYPE_CHECKING:
    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location
    from postroad.trail.snapshot import Pinned

__all__ = ["MISFIT", "pin_fitting"]

MISFIT = "the manifest is not of the files beside it"

# Looked at from either end of the record: one that fits is enough, and damage is seldom at both ends.
EACH_END = 2


def pin_fitting(root: Location, broker: int, reads: Reads | None = None) -> Pinned:
    """A broker's manifest for readers: with holes for what cannot be known from it.

    That is all times if none of the files it names is here; and of a copy, all that may not be shipped yet.
    """
    pinned = pin(root, broker, reads)
    problem = _misfit(root, pinned)
    if problem:
        # A broker that continues may have written a file and not named it yet: it has by now, if it lives.
        again = pin(root, broker, reads)
        if again.number != pinned.number:
            pinned, problem = again, _misfit(root, again)
    if may_lag(root, broker):
        pinned = pinned._replace(holes=(*pinned.holes, not_shipped(pinned.runs)))
    if not problem:
        return pinned
    return pinned._replace(
        holes=(*pinned.holes, Hole(0, FOREVER, MISFIT)),
        warnings=[*pinned.warnings, f"{pinned.folder}: {MISFIT}: {problem}"],
    )


def _misfit(root: Location, pinned: Pinned) -> str:
    """Why a manifest cannot belong to the files beside it; empty if it can."""
    sample = _at_both_ends(pinned)
    looked_at = _not_dropped(root, sample, pinned.broker)
    # The latest first: they are the likeliest to be in memory.
    if any(is_as_written(root, entry, pinned.broker) for entry in reversed(looked_at)):
        return ""
    if not looked_at and sample:
        return ""
    if len(looked_at) >= EACH_END:
        return f"none of {len(looked_at)} is as it was written, such as {looked_at[0].path}"
    # A single file that is not as it was written is damage like any other, and none is no traffic yet: unless others
    # are here.
    unnamed = _unnamed(root, pinned)
    return f"it does not name {unnamed}" if unnamed else ""


def _not_dropped(root: Location, entries: list[FileEntry], broker: int) -> list[FileEntry]:
    """Without files that were shipped and are not here any more: a store may take minutes to say how they are."""
    if not isinstance(root, Path):
        return entries
    try:
        ships = shipped_to(root, broker) is not None
    except (OSError, TrailError):
        ships = False
    return [entry for entry in entries if (root / entry.path).exists()] if ships else entries


def _at_both_ends(pinned: Pinned) -> list[FileEntry]:
    """Some of the latest files, and of the earliest that are summed up; what is read does not grow with the trail."""
    gone = pinned.removed()
    latest = [entry for change in pinned.changes for entry in change.added]
    parts = pinned.checkpoint.parts if pinned.checkpoint else ()
    with_messages = [part for part in parts if MESSAGE_TABLES & part.tables.keys()]
    earliest = pinned.from_parts(with_messages[:1], Reads())[0]
    if len(latest) < EACH_END:
        latest = [*pinned.from_parts(with_messages[-1:], Reads())[0], *latest]
    found = [
        [entry for entry in entries if entry.table in MESSAGE_TABLES and entry.path not in gone]
        for entries in (earliest, latest)
    ]
    return [*found[0][:EACH_END], *found[1][-EACH_END:]]


def _unnamed(root: Location, pinned: Pinned) -> str:
    """A file of messages that lies here and that the manifest does not name; empty if there is none."""
    entries, unread = pinned.all_entries()
    if unread:
        # It may be named there; that it cannot be read is a hole of its own.
        return ""
    named = {entry.path for entry in entries} | pinned.removed()
    named |= {one.path for one in (pinned.checkpoint.doomed if pinned.checkpoint else ())}
    folders = (root / table / f"broker={pinned.broker}" for table in sorted(MESSAGE_TABLES))
    files = (relative(path, root) for folder in folders for path in folder.glob("date=*/*.parquet"))
    return next((path for path in files if path not in named), "")
