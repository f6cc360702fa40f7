"""Checks the paths that a trail names: they lead to places below the trail, and nowhere else.

Whoever can write a manifest into a trail chooses the paths in it, and retention, sweeps and compactions delete and
write what manifests name. So a path is accepted only in the one form that writers use, without `..`, root or empty
parts. No directory below the trail may be a symbolic link, which could lead elsewhere. The directory of the trail
itself may be one: the user has named it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from postroad.trail.errors import TrailDamageError
from postroad.trail.locations import StoredPath

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail.locations import Location

__all__ = ["delete_below", "file_fault", "part_fault", "refuse_links"]

# `<table>/broker=<number>/date=<YYYY-MM-DD>/<name>.parquet`. Tables of a later Postroad have names of this form too.
_FILE = re.compile(
    r"([a-z][a-z_]*)/broker=(0|[1-9][0-9]*)/date=[0-9]+-[0-9]{2}-[0-9]{2}/[0-9A-Za-z][0-9A-Za-z_-]*\.parquet"
)
_PART = re.compile(r"parts/[0-9a-z][0-9a-z-]*\.parquet")
# The longest name that the usual file systems take; a writer's own are some 80 bytes.
MAX_PATH = 255
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def file_fault(path: str, broker: int, table: str | None = None) -> str:
    """What is wrong with the path of a file of a broker, and of a table if given; empty when nothing is."""
    found = _FILE.fullmatch(path) if len(path) <= MAX_PATH else None
    if found is None:
        return f"names {path[:MAX_PATH]!r}, which is not a path of a file of a trail"
    if int(found[2]) != broker:
        return f"names {path!r}, a file of another broker than {broker}"
    if table is not None and found[1] != table:
        return f"names {path!r} as a file of the table {table[:MAX_PATH]!r}"
    return ""


def part_fault(path: str) -> str:
    """What is wrong with the path of a part of a manifest; empty when nothing is."""
    if len(path) <= MAX_PATH and _PART.fullmatch(path):
        return ""
    return f"names {path[:MAX_PATH]!r}, which is not a path of a part"


@overload
def refuse_links(root: Path, path: str) -> Path: ...
@overload
def refuse_links(root: Location, path: str) -> Location: ...
def refuse_links(root: Location, path: str) -> Location:
    """The place of a path below a trail; it need not exist yet. Stores have no links.

    Raises:
        TrailDamageError: a directory on the way, or the file itself, is a symbolic link.
    """
    if isinstance(root, StoredPath):
        return root / path
    place = str(root)
    for part in path.split("/"):
        place = f"{place}/{part}"
        if os.path.islink(place):
            raise TrailDamageError(
                place, "is a symbolic link, and below a trail none is followed; put there what it leads to"
            )
    return root / path


def delete_below(root: Path, path: str) -> bool:
    """Delete a file below a trail; returns whether it was deleted. No symbolic link is followed, however late it is
    made."""
    *folders, name = path.split("/")
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for folder in folders:
            inner = os.open(folder, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.unlink(name, dir_fd=descriptor)
        os.close(descriptor)
        return True
    if descriptor >= 0:
        os.close(descriptor)
    return False
