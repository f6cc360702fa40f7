"""Publisher numbers on disk: a block is reserved before its first number is handed out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from postroad.broker.numbers import BLOCK
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Reservation", "ReservationError"]

_NAME = "publisher-numbers"


class ReservationError(PostroadError):
    """The data directory cannot keep publisher numbers."""


class Reservation:
    """The file that says which publisher numbers are taken. Written whole, flushed, then renamed into place."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._next = int(self._path.read_text("ascii")) if self._path.exists() else 1
        except (OSError, ValueError) as error:
            raise ReservationError(
                f"{self._path}: cannot read the next publisher number ({error}); name another data directory,"
                " or mend the file: it holds one whole number"
            ) from error

    def reserve(self) -> int:
        """Reserve a block; answers its first number."""
        first = self._next
        following = first + BLOCK
        scratch = self._path.with_suffix(".new")
        try:
            with scratch.open("w", encoding="ascii") as file:
                file.write(f"{following}\n")
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise ReservationError(
                f"{self._path}: cannot reserve publisher numbers ({error}); make the data directory writable"
            ) from error
        self._next = following
        return first
