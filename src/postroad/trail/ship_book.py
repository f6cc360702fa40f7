"""What a broker has shipped so far, kept beside its trail, so that shipping goes on where it stopped.

A file of lines, each a JSON array: what was put, what is to go there, what went, and which local copies were dropped.
A line that a crash cut off is left out: what it said is looked up in the store again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.trail.access import append_to
from postroad.trail.durable import make_directory, replace_file
from postroad.trail.errors import TrailWriteError
from postroad.trail.paths import refuse_links
from postroad.trail.shipped import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PutFile", "ShipBook"]

# Lines beyond those that are needed, before the file is written anew.
_SPARE_LINES = 10_000


class PutFile(NamedTuple):
    """A file that is in the store: its size, its CRC-32, and the last time that it tells of (-1 of a manifest)."""

    size: int
    crc: int
    time_to: int


class ShipBook:
    """The account of one broker's shipping. One thread uses it.

    Attributes:
        put: what is in the store, by path.
        dropped: what of it is no longer here.
        doomed: what a manifest took out, and when; it is deleted in the store after the grace period.

    Raises:
        OSError: it cannot be read.
        TrailDamageError: it is a symbolic link.
    """

    def __init__(self, root: Path, broker: int) -> None:
        self._path = refuse_links(root, f"{FOLDER}/broker={broker}.log")
        self.put: dict[str, PutFile] = {}
        self.dropped: set[str] = set()
        self.doomed: dict[str, int] = {}
        self._lines = 0
        self._read()

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.split(b"\n")[:-1]:
            try:
                word, path, *numbers = msgspec.json.decode(line, type=list[str | int])
            except (msgspec.MsgspecError, ValueError):
                continue
            self._apply(str(word), str(path), [int(number) for number in numbers])
        if data and not data.endswith(b"\n"):
            self._rewrite()

    def _apply(self, word: str, path: str, numbers: list[int]) -> None:
        self._lines += 1
        if word == "put":
            self.put[path] = PutFile(*numbers)
        elif word == "dropped":
            self.dropped.add(path)
        elif word == "doomed":
            self.doomed[path] = numbers[0]
        else:
            for known in (self.put, self.doomed):
                known.pop(path, None)
            self.dropped.discard(path)

    def has_put(self, path: str, put: PutFile) -> None:
        """A file is in the store, whole."""
        self._note("put", path, *put)

    def drops(self, path: str) -> None:
        """The local copy of a file goes now."""
        self._note("dropped", path)

    def dooms(self, path: str, at: int) -> None:
        """A manifest took a file out."""
        if path in self.put and path not in self.doomed:
            self._note("doomed", path, at)

    def deleted(self, path: str) -> None:
        """A file is no longer in the store."""
        self._note("deleted", path)

    def forget(self) -> None:
        """Begin anew: it was about another place."""
        self.put, self.doomed = {}, {}
        self._rewrite()

    def _note(self, word: str, path: str, *numbers: int) -> None:
        """Raises TrailWriteError where the disk does not take it."""
        self._apply(word, path, list(numbers))
        line = msgspec.json.encode([word, path, *numbers]) + b"\n"
        try:
            make_directory(self._path.parent)
            descriptor = append_to(self._path)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise TrailWriteError(self._path, error.strerror or error) from error
        if self._lines > _SPARE_LINES + 2 * len(self.put) + len(self.doomed):
            self._rewrite()

    def _rewrite(self) -> None:
        lines: list[list[str | int]] = [["put", path, *put] for path, put in self.put.items()]
        lines += [["dropped", path] for path in sorted(self.dropped)]
        lines += [["doomed", path, at] for path, at in self.doomed.items()]
        replace_file(self._path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        self._lines = len(lines)
