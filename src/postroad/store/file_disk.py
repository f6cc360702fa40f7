"""A real disk for a store: one file for each segment, in one folder."""

from __future__ import annotations

import filecmp
import itertools
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.store.records import segment_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.store.records import Piece

__all__ = ["FileDisk"]

ENDING = ".segment"
# The suffix of segments that are kept for people because they are damaged.
DAMAGED = ".damaged"
# One call of writev takes at most so many pieces (IOV_MAX is 1,024 on Linux and macOS).
_MAX_PIECES = 512
_MODE = 0o600


class FileDisk:
    """Segments as files. For one thread at a time, except `read`, which any thread may call.

    Args:
        folder: where they are; made together with the first one.
        mode: of the files.
    """

    def __init__(self, folder: str | Path, mode: int = _MODE) -> None:
        self._folder = Path(folder)
        self._mode = mode
        self._files: dict[int, int] = {}

    def _path(self, segment: int) -> Path:
        return self._folder / segment_name(segment)

    def segments(self) -> dict[int, int]:
        """Return the existing segments, in order, with their sizes."""
        try:
            found = [path for path in self._folder.iterdir() if path.name.endswith(ENDING)]
        except FileNotFoundError:
            return {}
        named = [path for path in found if path.name.removesuffix(ENDING).isdecimal() and not path.is_symlink()]
        return {int(path.name.removesuffix(ENDING)): path.stat().st_size for path in sorted(named)}

    def create(self, segment: int) -> None:
        """Make an empty segment, and force its name to disk."""
        _make_folder(self._folder)
        self._close(segment)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        # Close earlier ones: each was synced before this one begins, or is given up.
        for earlier in list(self._files):
            self._close(earlier)
        self._files[segment] = os.open(self._path(segment), flags, self._mode)
        _sync_folder(self._folder)

    def append(self, segment: int, pieces: Sequence[Piece]) -> None:
        """Write at the end of a segment."""
        file = self._file(segment)
        for first in range(0, len(pieces), _MAX_PIECES):
            _write_all(file, [memoryview(piece) for piece in pieces[first : first + _MAX_PIECES]])

    def sync(self, segment: int) -> None:
        """Force a segment to disk."""
        with suppress(FileNotFoundError):
            os.fdatasync(self._file(segment))

    def remove(self, segment: int) -> None:
        """Delete a segment."""
        self._close(segment)
        with suppress(FileNotFoundError):
            self._path(segment).unlink()

    def preserve(self, segment: int) -> None:
        """Give a segment a second name that ends with `.damaged`, so that its bytes stay when it is deleted."""
        path = self._path(segment)
        for number in itertools.count(1):
            other = path.with_name(path.name + DAMAGED + (f"-{number}" if number > 1 else ""))
            with suppress(FileNotFoundError):
                if other.exists() and filecmp.cmp(path, other, shallow=False):
                    return
            if not other.exists():
                break
        with suppress(FileNotFoundError):
            try:
                os.link(path, other, follow_symlinks=False)
            except FileNotFoundError:
                raise
            except OSError:
                # Some file systems have no links.
                _copy(path, other, self._mode)
            _sync_folder(self._folder)

    def read(self, segment: int, start: int = 0, length: int = -1) -> bytes:
        """Bytes of a segment."""
        with self._path(segment).open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size - start if length < 0 else length
            pieces = []
            while size > 0 and (piece := os.pread(file.fileno(), size, start)):
                pieces.append(piece)
                start += len(piece)
                size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close all files."""
        for segment in list(self._files):
            self._close(segment)

    def _file(self, segment: int) -> int:
        file = self._files.get(segment)
        if file is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = self._files[segment] = os.open(self._path(segment), flags)
        return file

    def _close(self, segment: int) -> None:
        file = self._files.pop(segment, None)
        if file is not None:
            with suppress(OSError):
                os.close(file)


def _write_all(file: int, pieces: list[memoryview]) -> None:
    while pieces:
        done = os.writev(file, pieces)
        while pieces and done >= len(pieces[0]):
            done -= len(pieces.pop(0))
        if done:
            pieces[0] = pieces[0][done:]


def _copy(path: Path, other: Path, mode: int) -> None:
    """Copy a file; the copy has its name only when all of it is on disk."""
    temporary = other.with_name(other.name + ".tmp")
    with path.open("rb") as source, temporary.open("wb") as target:
        os.fchmod(target.fileno(), mode)
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(other)


def _make_folder(folder: Path) -> None:
    """Make a folder that survives a crash: its name is forced to disk, with those of folders made for it."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
