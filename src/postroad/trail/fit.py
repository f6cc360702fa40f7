"""Whether a manifest is of the files beside it.

A manifest that was restored from the backup of another trail is whole, and says for which times the record is complete.
It tells nothing of files that it does not name, so that a message in them would be denied with certainty. Its own files
are elsewhere: what it names is not here, or is something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.trail.coverage import FOREVER, Hole
from postroad.trail.errors import TrailDamageError
from postroad.trail.opened import Reads, TrailFile
from postroad.trail.pinned import pin

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail.files import FileEntry
    from postroad.trail.pinned import Pinned

__all__ = ["MISFIT", "pin_fitting"]

MISFIT = "the manifest is not of the files beside it"

# Tables whose files differ wherever the traffic does. Files of links or names may be the same in two trails.
_OF_MESSAGES = frozenset({"passages", "filters", "records", "journeys", "shed"})
# Looked at from either end of the record: one that fits is enough, and damage is seldom at both ends.
EACH_END = 2


def pin_fitting(root: Path, broker: int, reads: Reads | None = None) -> Pinned:
    """A broker's manifest for readers: with a hole over all times if none of the files it names is here."""
    pinned = pin(root, broker, reads)
    looked_at = _at_both_ends(pinned)
    # A single file that is not as it was written is damage like any other.
    if len(looked_at) < EACH_END or any(_fits(root, entry, broker) for entry in looked_at):
        return pinned
    warning = f"{pinned.folder}: {MISFIT}: none of {len(looked_at)} is as it was written, such as {looked_at[0].path}"
    return pinned._replace(
        holes=(*pinned.holes, Hole(0, FOREVER, MISFIT)),
        warnings=[*pinned.warnings, warning],
    )


def _at_both_ends(pinned: Pinned) -> list[FileEntry]:
    """Some of the latest files, and of the earliest that are summed up; what is read does not grow with the trail."""
    gone = pinned.removed()
    latest = [entry for change in pinned.changes for entry in change.added]
    parts = pinned.checkpoint.parts if pinned.checkpoint else ()
    with_messages = [part for part in parts if _OF_MESSAGES & part.tables.keys()]
    earliest = pinned.from_parts(with_messages[:1], Reads())[0]
    if len(latest) < EACH_END:
        latest = [*pinned.from_parts(with_messages[-1:], Reads())[0], *latest]
    found = [
        [entry for entry in entries if entry.table in _OF_MESSAGES and entry.path not in gone]
        for entries in (earliest, latest)
    ]
    return [*found[0][:EACH_END], *found[1][-EACH_END:]]


def _fits(root: Path, entry: FileEntry, broker: int) -> bool:
    try:
        TrailFile(root, entry, broker, Reads())
    except TrailDamageError:
        return False
    return True
