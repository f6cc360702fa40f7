"""Many manifests changed as if they were one: first a note of all changes, then each of them, then the note goes.

Each broker has a manifest of its own, and no file system changes several files in one step. The note is the commit: a
compaction that dies before it is written has changed nothing, one that dies after it is finished by the next, which
makes those changes of the note that are not made yet. Journeys go in before passages go out: whoever reads in between
sees both, which says the same twice.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from postroad.pipeline.errors import PipelineError
from postroad.trail import FileEntry, Ledger, TrailConflictError
from postroad.trail.durable import make_directory, replace_file, sync_directory
from postroad.trail.paths import file_fault, refuse_links

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.trail import Pinned

__all__ = ["Note", "commit", "finish_commits", "sole_compaction"]

FOLDER = "compactions"
_LOCK = "lock"
_NOTE = ".json"
# Retention may take out one of the files just then. It does so about once an hour.
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
        """Whose manifests change."""
        return sorted({*self.removed, *self.added})


@contextmanager
def sole_compaction(root: Path) -> Iterator[bool]:
    """Keep all others from changing the files of a trail; brokers go on writing, and retention goes on taking out.

    The lock ends with the process, however that ends. Answers whether others are surely kept out.

    Raises:
        PipelineError: another compaction is at work.
        TrailDamageError: the folder or the lock is a symbolic link.
    """
    # Opening a link to write would empty what it leads to.
    folder = refuse_links(root, f"{FOLDER}/{_LOCK}").parent
    make_directory(folder)
    with (folder / _LOCK).open("a") as file:
        is_sole = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"{root}: another compaction is at work here; wait until it is done") from None
        except OSError:
            # A file system without locks: `commit` still refuses files that somebody else took out.
            is_sole = False
        yield is_sole


def commit(root: Path, name: str, note: Note) -> None:
    """Make the next manifest of every broker concerned.

    Args:
        root: the trail.
        name: of the run.
        note: what to change.

    Raises:
        TrailConflictError: somebody else took one of the files out meanwhile; nothing changed.
        TrailWriteError: the disk does not take it; the next compaction goes on from there, if this one began.
    """
    for broker, entries in note.removed.items():
        state = Ledger(root, broker).pin()
        live = _live(state)
        for entry in entries:
            # What retention took out meanwhile is out, and answered so whatever else is in the trail.
            if entry.path not in live and entry.time_to >= state.retained_since:
                raise TrailConflictError(f"{entry.path} is not in the manifest any more; compact again")
    path = root / FOLDER / f"{name}{_NOTE}"
    replace_file(path, msgspec.json.encode(note))
    _finish(root, path, note)


def finish_commits(root: Path) -> int:
    """Make all changes that compactions noted and did not get to make; returns how many compactions those were.

    Raises:
        PipelineError: a note cannot be read.
        TrailWriteError: the disk does not take it.
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
    """A note names files to take out, which are deleted later, and files to put in: both below its brokers' tables.

    Raises:
        ValueError: it names something else.
    """
    for named in (note.removed, note.added):
        for broker, entries in named.items():
            for entry in entries:
                fault = file_fault(entry.path, broker, entry.table)
                if fault:
                    raise ValueError(f"it {fault}")


def _finish(root: Path, path: Path, note: Note) -> None:
    for broker in note.brokers:
        journeys = [entry for entry in note.added.get(broker, ()) if entry.table == "journeys"]
        missing = _missing(root, Ledger(root, broker).pin(), journeys)
        if missing:
            Ledger(root, broker).append(note.at, missing)
    for broker in note.brokers:
        _replace(root, broker, note)
    path.unlink()
    sync_directory(path.parent)


def _replace(root: Path, broker: int, note: Note) -> None:
    """Take the old files of a broker out and put the new ones in; what is done already stays."""
    ledger = Ledger(root, broker)
    for attempt in range(MAX_ATTEMPTS):
        state = ledger.pin()
        live = _live(state)
        gone = [entry.path for entry in note.removed.get(broker, ()) if entry.path in live]
        others = [entry for entry in note.added.get(broker, ()) if entry.table != "journeys"]
        missing = _missing(root, state, others)
        if not gone and not missing:
            break
        try:
            ledger.replace(note.at, gone, missing)
            break
        except TrailConflictError:
            if attempt == MAX_ATTEMPTS - 1:
                raise
    if ledger.is_due():
        ledger.checkpoint(note.at)


def _live(state: Pinned) -> set[str]:
    return {entry.path for entry in state.all_entries()[0]}


def _missing(root: Path, state: Pinned, entries: list[FileEntry]) -> list[FileEntry]:
    """Those that are not in the manifest yet; not those that were, and that retention took out since.

    Raises:
        PipelineError: one of the files is not there. Without it nothing may be taken out.
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
