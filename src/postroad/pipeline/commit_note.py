"""Changes many manifests as if they were one: write a note of all changes, make each change, delete the note.

Each broker has its own manifest, and no file system changes several files in one step. The note is the commit. A
compaction that dies before it writes the note has changed nothing. One that dies later is finished by the next
compaction, which makes the changes of the note that are still missing. Journeys are added before passages are removed:
a reader in between sees both, which say the same.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from postroad.pipeline.errors import PipelineError
from postroad.trail import FileEntry, Ledger, TrailConflictError
from postroad.trail.durable_files import make_directory, replace_file, sync_directory
from postroad.trail.manifest_needs import needs_of
from postroad.trail.paths import file_fault, refuse_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from postroad.trail import Pinned

__all__ = ["Note", "commit", "finish_commits", "sole_compaction"]

FOLDER = "compactions"
_LOCK = "lock"
_NOTE = ".json"
# Retention may remove one of the files at the same moment. It runs about once an hour.
MAX_ATTEMPTS = 10


class Note(msgspec.Struct, frozen=True):
    """What a compaction changes.

    Attributes:
        at: when, in Unix ms.
        removed: broker -> files that no longer count.
        added: broker -> files that count from now on.
    """

    at: int
    removed: dict[int, list[FileEntry]]
    added: dict[int, list[FileEntry]]

    @property
    def brokers(self) -> list[int]:
        """Return the brokers whose manifests change."""
        return sorted({*self.removed, *self.added})


@contextmanager
def sole_compaction(root: Path) -> Iterator[bool]:
    """Hold the lock against other compactions; brokers still write, and retention still removes files.

    The lock ends with the process, however that ends. Yields whether the file system really keeps others out.

    Raises:
        PipelineError: another compaction is running.
        TrailDamageError: the folder or the lock is a symbolic link.
    """
    # Opening a symbolic link for writing would empty its target.
    folder = refuse_links(root, f"{FOLDER}/{_LOCK}").parent
    make_directory(folder)
    with (folder / _LOCK).open("a") as file:
        is_sole = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"{root}: another compaction is at work here; wait until it is done") from None
        except OSError:
            # This file system has no locks. `commit` still refuses to remove files that somebody else removed.
            is_sole = False
        yield is_sole


def commit(root: Path, name: str, note: Note) -> None:
    """Write the next manifest of every broker concerned.

    Args:
        root: the trail.
        name: of the run.
        note: what to change.

    Raises:
        TrailConflictError: somebody else removed one of the files meanwhile; nothing changed.
        TrailWriteError: the disk refuses the write; if this commit began, the next compaction finishes it.
    """
    for broker, entries in note.removed.items():
        state = Ledger(root, broker).pin()
        live = _live(state)
        for entry in entries:
            # Files that retention removed meanwhile stay removed; readers report that range as deleted.
            if entry.path not in live and entry.time_to >= state.retained_since:
                raise TrailConflictError(f"{entry.path} is not in the manifest any more; compact again")
    path = root / FOLDER / f"{name}{_NOTE}"
    replace_file(path, msgspec.json.encode(note))
    _finish(root, path, note)


def finish_commits(root: Path) -> int:
    """Make all changes that earlier compactions noted but did not finish; return how many compactions those were.

    Raises:
        PipelineError: a note cannot be read.
        TrailWriteError: the disk refuses the write.
    """
    found = sorted((root / FOLDER).glob(f"*{_NOTE}"))
    for path in found:
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Note)
            _refuse_strangers(note)
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise PipelineError(
                f"{path}: cannot be read ({error}); without it a compaction stays half done: answers are right, "
                "but some are stored twice. Restore it, or delete it"
            ) from None
        _finish(root, path, note)
    return len(found)


def _refuse_strangers(note: Note) -> None:
    """Refuse a note with paths outside the tables of its brokers: it names files to delete and files to add.

    Raises:
        ValueError: the note names something else.
    """
    for named in (note.removed, note.added):
        for broker, entries in named.items():
            for entry in entries:
                fault = file_fault(entry.path, broker, entry.table)
                if fault:
                    raise ValueError(f"it {fault}")


def _finish(root: Path, path: Path, note: Note) -> None:
    added: dict[int, int] = {}
    for broker in note.brokers:
        journeys = [entry for entry in note.added.get(broker, ()) if entry.table == "journeys"]
        state = Ledger(root, broker).pin()
        missing = _missing(root, state, journeys)
        if missing:
            added[broker] = Ledger(root, broker).append(note.at, missing).number
        elif journeys:
            added[broker] = _number_of(state, journeys)
    for broker in note.brokers:
        _replace(root, broker, note, added)
    path.unlink()
    sync_directory(path.parent)


def _number_of(state: Pinned, entries: list[FileEntry]) -> int:
    """Return the number of the last change that added some files; of what is summed up, that of the checkpoint."""
    paths = {entry.path for entry in entries}
    found = [change.number for change in state.changes if any(entry.path in paths for entry in change.added)]
    return max(found) if found else state.checkpoint.number if state.checkpoint else 0


def _replace(root: Path, broker: int, note: Note, journeys: Mapping[int, int]) -> None:
    """Remove the old files of a broker and add the new ones; changes that are already made stay.

    `journeys` are the changes that added journeys, by broker.
    """
    ledger = Ledger(root, broker)
    for attempt in range(MAX_ATTEMPTS):
        state = ledger.pin()
        live = _live(state)
        going = [entry for entry in note.removed.get(broker, ()) if entry.path in live]
        others = [entry for entry in note.added.get(broker, ()) if entry.table != "journeys"]
        missing = _missing(root, state, others)
        if not going and not missing:
            break
        try:
            rests_on = needs_of(broker, going, journeys)
            ledger.replace(note.at, [entry.path for entry in going], missing, needs=rests_on)
            break
        except TrailConflictError:
            if attempt == MAX_ATTEMPTS - 1:
                raise
    if ledger.is_due():
        ledger.checkpoint(note.at)


def _live(state: Pinned) -> set[str]:
    return {entry.path for entry in state.all_entries()[0]}


def _missing(root: Path, state: Pinned, entries: list[FileEntry]) -> list[FileEntry]:
    """Return the entries that are not in the manifest yet, except those that retention removed since.

    Raises:
        PipelineError: one of the files is missing. Without it nothing may be removed.
    """
    out = state.removed() | {one.path for one in (state.checkpoint.doomed if state.checkpoint else ())}
    known = _live(state) | out
    found = []
    for entry in entries:
        if entry.path in known:
            continue
        if (root / entry.path).exists():
            found.append(entry)
        elif entry.time_to >= state.retained_since:
            raise PipelineError(f"{root / entry.path}: is gone, and a compaction that was not finished needs it")
    return found
