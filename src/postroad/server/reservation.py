"""Numbers on disk: a block is reserved before its first number is given out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from postroad.broker.numbers import NumbersError
from postroad.trail.access import create, make_folders

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Reservation", "ReservationError"]


class ReservationError(NumbersError):
    """The data directory cannot keep the numbers that are taken."""


class Reservation:
    """A file that says which numbers of a kind are taken. Written whole, flushed, then renamed into place.

    Args:
        directory: where it is; made if missing.
        kind: what the numbers are for, such as "publisher"; names the file.
        block: how many numbers are reserved at once.

    Raises:
        ReservationError: it cannot be read.
    """

    def __init__(self, directory: Path, kind: str, block: int) -> None:
        self._kind = kind
        self._block = block
        self._path = directory / f"{kind}-numbers"
        self._next = 1
        try:
            make_folders(directory)
        except OSError as error:
            raise ReservationError(
                f"data directory {directory} cannot be made ({error.strerror});"
                " name another one (--data DIR), or let this user write where it should be"
            ) from error
        self._read()

    def _unreadable(self, error: Exception) -> ReservationError:
        return ReservationError(
            f"{self._path}: cannot read the next {self._kind} number ({error}); name another data directory,"
            " or mend the file: it holds one whole number"
        )

    def _read(self) -> None:
        """Take note of what the file says: no number is given out twice, even if the file went back."""
        try:
            said = int(self._path.read_text("ascii")) if self._path.exists() else 1
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        self._next = max(self._next, said)

    def reserve(self) -> int:
        """Reserve a block; returns its first number.

        Raises:
            ReservationError: it cannot be read or written.
        """
        # Who had the directory before this process locked it may have gone on.
        self._read()
        first = self._next
        following = first + self._block
        scratch = self._path.with_suffix(".new")
        try:
            with os.fdopen(create(scratch, os.O_TRUNC), "w", encoding="ascii") as file:
                file.write(f"{following}\n")
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
            _flush_directory(self._path.parent)
        except OSError as error:
            raise ReservationError(
                f"{self._path}: cannot reserve {self._kind} numbers ({error}); make the data directory writable"
            ) from error
        self._next = following
        return first


def _flush_directory(directory: Path) -> None:
    """A power cut could undo the renaming otherwise, and a number would be given out again."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
