"""Manifests: which files count. Numbered changes, and now and then a checkpoint that sums up all before it.

A change (`<number>.json`) says what one commit added and removed, so that a commit costs what it changes. A checkpoint
(`<number>.checkpoint.json`) says the coverage and names one *part* for each day: a Parquet file with the entries of all
files that have something of that day. A reader of one id reads the checkpoint, the parts of a day or two, and the
changes since: as much for a trail of years as for one of days.

Both kinds begin with a line that has the format's version and a checksum of the rest.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from postroad.trail.coverage import Hole, Run  # noqa: TC001 (msgspec reads the types of fields)
from postroad.trail.errors import TrailDamageError, TrailVersionError
from postroad.trail.files import FileEntry  # noqa: TC001
from postroad.trail.locations import StoredPath, store_away
from postroad.trail.paths import file_fault, part_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from postroad.trail.locations import Location

__all__ = [
    "CHANGE",
    "CHECKPOINT",
    "Change",
    "Checkpoint",
    "Doomed",
    "Need",
    "Part",
    "Removal",
    "change_name",
    "checkpoint_name",
    "decoded",
    "encoded",
    "manifest_brokers",
    "manifest_folder",
    "numbers",
]

MANIFEST_VERSION = 2
CHANGE = ".json"
CHECKPOINT = ".checkpoint.json"
_DIGITS = 12
_MAGIC = b"postroad-manifest"
# Of a version; more are damage, and beyond some thousand Python would not convert them.
_MOST_DIGITS = 9


class Removal(msgspec.Struct, array_like=True, frozen=True):
    """A file that no longer counts, and the days under which parts name it."""

    path: str
    days: tuple[int, ...]


class Need(msgspec.Struct, array_like=True, frozen=True, order=True):
    """What a change rests on in another manifest (`manifest_needs.py`).

    Attributes:
        broker: whose manifest.
        number: of the change there.
        since: the id times of what was taken out: from,
        until: to.
    """

    broker: int
    number: int
    since: int
    until: int

    @staticmethod
    def joined(needs: Iterable[Need]) -> tuple[Need, ...]:
        """One for each broker: the latest number, and all times."""
        found: dict[int, Need] = {}
        for need in needs:
            known = found.get(need.broker, need)
            since, until = min(known.since, need.since), max(known.until, need.until)
            found[need.broker] = Need(need.broker, max(known.number, need.number), since, until)
        return tuple(sorted(found.values()))


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one commit changed.

    Attributes:
        number: of the manifest it makes.
        at: when, in Unix ms.
        added: files that count from now on.
        removed: files that do not any more; they are deleted after a grace period.
        run: the new state of the run that wrote it.
        holes: times for which the record turned out not to be complete.
        retained_since: id times before this are deleted.
        previous: CRC-32 of the file of the change before; 0 if there is none.
        lost: the writer found the changes from this number up to its own gone, and says in `holes` what that means;
            0 if none were.
        reached: this change, or one before it, may have something that was observed after `run.through`, up to this
            time: of filters that were full while older ones were still open. 0 if none has.
        needs: what its removals rest on in the manifests of other brokers.
    """

    number: int
    at: int
    added: tuple[FileEntry, ...] = ()
    removed: tuple[Removal, ...] = ()
    run: Run | None = None
    holes: tuple[Hole, ...] = ()
    retained_since: int = 0
    previous: int = 0
    lost: int = 0
    reached: int = 0
    needs: tuple[Need, ...] = ()


class Part(msgspec.Struct, array_like=True, frozen=True):
    """A file of entries, under the folder of the manifests.

    Attributes:
        day: days since 1970; `WIDE` for entries that span many.
        path: from the folder of the manifests.
        tables: how many entries it has of each table.
        numbers: the range of numbers for each table that keeps one.
        sums: the CRC-32 of each row group; empty if it is not known.
    """

    day: int
    path: str
    tables: dict[str, int]
    size: int
    footer_crc: int
    numbers: dict[str, tuple[int, int]]
    sums: tuple[int, ...] = ()


class Doomed(msgspec.Struct, array_like=True, frozen=True):
    """A file to delete once no reader can be using it."""

    path: str
    since: int


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sum of all changes up to a number; `previous` is the CRC-32 of the file of the last of them.

    `needs` are those of all of them, one for each broker.
    """

    number: int
    at: int
    runs: tuple[Run, ...] = ()
    holes: tuple[Hole, ...] = ()
    retained_since: int = 0
    parts: tuple[Part, ...] = ()
    doomed: tuple[Doomed, ...] = ()
    previous: int = 0
    needs: tuple[Need, ...] = ()


Kind = TypeVar("Kind", Change, Checkpoint)


@overload
def manifest_folder(root: Path, broker: int) -> Path: ...
@overload
def manifest_folder(root: Location, broker: int) -> Location: ...
def manifest_folder(root: Location, broker: int) -> Location:
    """Where the manifests of a broker are."""
    return root / "manifests" / f"broker={broker}"


def manifest_brokers(root: Location) -> list[int]:
    """The brokers that have manifests in a trail, ascending.

    A folder put aside under another name, such as broker=2.old, is not a broker of it.
    """
    try:
        names = [path.name.partition("=")[2] for path in (root / "manifests").glob("broker=*")]
    except OSError as error:
        raise store_away(root, error) from error
    return sorted(int(name) for name in names if name.isdecimal())


def change_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{CHANGE}"


def checkpoint_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{CHECKPOINT}"


def numbers(folder: Location) -> tuple[list[int], list[int]]:
    """The numbers of the changes and of the checkpoints in a folder, ascending; empty when there is no folder."""
    changes, checkpoints = [], []
    try:
        names = [one.name for one in folder.iterdir()] if isinstance(folder, StoredPath) else os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        if isinstance(folder, StoredPath):
            raise store_away(folder, error) from error
        raise
    for name in names:
        digits, dot, ending = name.partition(".")
        if len(digits) == _DIGITS and digits.isdecimal():
            if dot + ending == CHANGE:
                changes.append(int(digits))
            elif dot + ending == CHECKPOINT:
                checkpoints.append(int(digits))
    return sorted(changes), sorted(checkpoints)


def encoded(manifest: Change | Checkpoint) -> bytes:
    """The bytes of a manifest file."""
    body = msgspec.json.encode(manifest)
    return b"%s %d %08x\n%s\n" % (_MAGIC, MANIFEST_VERSION, zlib.crc32(body), body)


def decoded(data: bytes, kind: type[Kind], path: Location, broker: int) -> Kind:
    """Read a manifest file of a broker.

    Raises:
        TrailDamageError: it is damaged, of another version, or names what is not below the broker's own tables.
    """
    line, _, rest = data.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC or not (words[1].isdigit() and len(words[1]) <= _MOST_DIGITS):
        raise TrailDamageError(path, "not a manifest")
    if int(words[1]) != MANIFEST_VERSION:
        raise TrailVersionError(path, f"of version {int(words[1])}; this Postroad reads {MANIFEST_VERSION}")
    body = rest.removesuffix(b"\n")
    if b"%08x" % zlib.crc32(body) != words[2]:
        raise TrailDamageError(path, "the checksum is wrong: damaged or cut off")
    try:
        found = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TrailDamageError(path, f"not a manifest: {error}") from error
    fault = next(_faults(found, broker), "")
    if fault:
        raise TrailDamageError(path, fault)
    return found


def _faults(manifest: Change | Checkpoint, broker: int) -> Iterator[str]:
    """What is wrong with the paths in a manifest: they are written to, read and deleted as it says."""
    if isinstance(manifest, Change):
        yield from filter(None, (file_fault(entry.path, broker, entry.table) for entry in manifest.added))
        yield from filter(None, (file_fault(gone.path, broker) for gone in manifest.removed))
    else:
        yield from filter(None, (part_fault(part.path) for part in manifest.parts))
        yield from filter(None, (file_fault(one.path, broker) for one in manifest.doomed))
