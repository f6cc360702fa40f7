"""Files that appear whole or not at all, even after a crash: write a temporary file, sync, rename, sync the
directory."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from postroad.trail.access import create, make_folder
from postroad.trail.errors import TrailWriteError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "LARGE_BYTES",
    "TEMPORARY",
    "create_once",
    "force_nothing",
    "make_directory",
    "replace_file",
    "replace_file_by",
    "sync_directory",
    "write_whole",
]

# Readers and retention know from this ending that a file is not finished.
TEMPORARY = ".tmp"

# The record is read seldom and late. A broker that writes tens of megabytes a second would in the end fill all memory
# of the machine with it, and memory that is used for the first time costs most: on a virtual machine, where the host
# has to provide it, ten times as much as memory that was in use before. Small files may stay.
LARGE_BYTES = 1 << 20

_sync: Callable[[int], None] = os.fsync


def force_nothing() -> None:
    """From now on this process forces no file to disk: what it writes may be lost if the machine crashes.

    For processes that do nothing else than write what can be made again.
    """
    global _sync
    _sync = _left_to_the_system


def _left_to_the_system(_: int) -> None:
    return


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file atomically; it replaces one of the same name.

    Raises:
        TrailWriteError: it could not be written; what was there before is unchanged.
    """
    _replace(path, lambda _, descriptor: write_whole(descriptor, data))


def replace_file_by(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a file atomically, with `fill` writing the empty temporary file; it replaces one of the same name.

    Raises:
        TrailWriteError: it could not be written; what was there before is unchanged.
    """
    _replace(path, lambda temporary, _: fill(temporary))


def _replace(path: Path, fill: Callable[[Path, int], None]) -> None:
    temporary = _written(path, fill)
    try:
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        _remove(temporary)
        raise TrailWriteError(path, error.strerror or error) from error


def create_once(path: Path, data: bytes) -> bool:
    """Write a file atomically if there is none of that name; returns whether this call did.

    Raises:
        TrailWriteError: it could not be written.
    """
    temporary = _written(path, lambda _, descriptor: write_whole(descriptor, data))
    try:
        # A link to an existing name fails, where a rename would replace it.
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise TrailWriteError(path, error.strerror or error) from error
    finally:
        _remove(temporary)
    try:
        sync_directory(path.parent)
    except OSError as error:
        # A caller that sees the failure removes what the file names: the file must go first.
        _remove(path)
        raise TrailWriteError(path, error.strerror or error) from error
    return True


def write_whole(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of the bytes: one call may write only a part of them, as on a disk that is nearly full."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _written(path: Path, fill: Callable[[Path, int], None]) -> Path:
    # Two writers that want the same name have temporary names of their own.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        make_directory(path.parent)
        # It is private before anything is written to it.
        try:
            descriptor = create(temporary, os.O_EXCL)
        except FileExistsError:
            # Of a process long gone, which had the same number.
            temporary.unlink()
            descriptor = create(temporary, os.O_EXCL)
        try:
            fill(temporary, descriptor)
            _force(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        _remove(temporary)
        raise TrailWriteError(path, error.strerror or error) from error
    return temporary


def _force(descriptor: int) -> None:
    """Force a file to disk; a large one is not kept in memory any longer."""
    _sync(descriptor)
    if os.fstat(descriptor).st_size >= LARGE_BYTES and hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def make_directory(directory: Path) -> None:
    """Make a directory and those above it that are missing, durably: each survives a crash only once its parent is
    forced to disk."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    made = []
    try:
        for each in reversed(missing):
            make_folder(each)
            made.append(each)
    finally:
        # Afterwards, since a file system with a journal then writes it once for all of them; and also when the disk has
        # taken only some: who tries again finds those there.
        for each in made:
            sync_directory(each.parent)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def sync_directory(directory: Path) -> None:
    """Force the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)
