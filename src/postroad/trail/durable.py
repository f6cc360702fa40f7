"""Files that are there whole or not at all, also after a crash: temporary name, force, final name, force again."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from postroad.trail.errors import TrailWriteError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TEMPORARY", "create_once", "make_directory", "replace_file", "sync_directory"]

# Readers and retention know from this ending that a file is not finished.
TEMPORARY = ".tmp"


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Put a file in place, whole; one of the same name goes.

    Raises:
        TrailWriteError: it could not be written; what was there before is unchanged.
    """
    temporary = _written(path, data)
    try:
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        _remove(temporary)
        raise TrailWriteError(path, error.strerror or error) from error


def create_once(path: Path, data: bytes) -> bool:
    """Put a file in place, whole, if there is none of that name; answers whether this call did.

    Raises:
        TrailWriteError: it could not be written.
    """
    temporary = _written(path, data)
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
        # Whoever is told that it failed takes back what the file names: the file must go first.
        _remove(path)
        raise TrailWriteError(path, error.strerror or error) from error
    return True


def _written(path: Path, data: bytes | memoryview) -> Path:
    # Two writers that want the same name have temporary names of their own.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        make_directory(path.parent)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        _remove(temporary)
        raise TrailWriteError(path, error.strerror or error) from error
    return temporary


def make_directory(directory: Path) -> None:
    """A directory survives a crash only once its parent is forced to disk."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    with suppress(FileExistsError):
        directory.mkdir()
    sync_directory(directory.parent)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def sync_directory(directory: Path) -> None:
    """Force the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
