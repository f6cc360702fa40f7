"""What a broker has shipped so far, kept beside its trail, so shipping continues where it stopped.

A file of lines, each a JSON array: what was put, what is to go there, what went, and what could not be put. A line that
a crash cut off is left out: what it said is looked up in the store again. Files that a shipped part of the manifest
names are not listed any more: the part is put after them, so that it stands for all of them. What the book has is that
of the last checkpoint and since, however large the trail is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.trail.access import append_to
from postroad.trail.durable_files import make_directory, replace_file
from postroad.trail.errors import TrailWriteError
from postroad.trail.paths import refuse_links
from postroad.trail.shipped_files import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["PutFile", "ShipBook", "ShipStatistics"]

# Lines beyond those that are needed, before the file is written again.
_SPARE_LINES = 10_000


class PutFile(NamedTuple):
    """A file that is in the store: its size, its CRC-32, and the last time that it covers (-1 for a manifest)."""

    size: int
    crc: int
    time_to: int


class ShipStatistics(NamedTuple):
    """What was shipped since the start.

    Attributes:
        files: put and read back, manifests included.
        bytes: of these.
        resumed: found in the store at the start, whole.
        deleted: in the store, because a manifest took them out.
        dropped: local copies that went.
        damaged: here, and therefore not shipped.
    """

    files: int = 0
    bytes: int = 0
    resumed: int = 0
    deleted: int = 0
    dropped: int = 0
    damaged: int = 0


class ShipBook:
    """The account of one broker's shipping. One thread uses it.

    Attributes:
        put: what is in the store, by path: manifests and their parts, and files that none of these parts names.
        lacking: files that a shipped part names and that are not in the store: missing here, or damaged.
        doomed: what no manifest there names any more, and since when; it is deleted there after the grace period.

    Raises:
        OSError: it cannot be read.
        TrailDamageError: it is a symbolic link.
    """

    def __init__(self, root: Path, broker: int) -> None:
        self._path = refuse_links(root, f"{FOLDER}/broker={broker}.log")
        self.put: dict[str, PutFile] = {}
        self.lacking: set[str] = set()
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
                self._apply(str(word), str(path), [int(number) for number in numbers])
            except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
                continue
        if data and not data.endswith(b"\n"):
            self._rewrite()

    def _apply(self, word: str, path: str, numbers: list[int]) -> None:
        self._lines += 1
        if word == "put":
            self.put[path] = PutFile(*numbers)
            self.lacking.discard(path)
        elif word == "lacking":
            self.lacking.add(path)
        elif word == "doomed":
            self.doomed[path] = numbers[0]
            self.lacking.discard(path)
        elif word == "deleted":
            for known in (self.put, self.doomed):
                known.pop(path, None)
        # Earlier versions also noted which local copies were dropped; whether one is there is seen where it was.

    def has_put(self, path: str, put: PutFile) -> None:
        """A file is in the store, whole."""
        self._note("put", path, *put)

    def lacks(self, path: str) -> None:
        """A file that a manifest names cannot be put: it is missing here, or damaged."""
        if path not in self.lacking and path not in self.put:
            self._note("lacking", path)

    def dooms(self, path: str, at: int) -> None:
        """No manifest in the store names a file any more."""
        if path not in self.doomed:
            self._note("doomed", path, at)

    def deleted(self, path: str) -> None:
        """A file is no longer in the store."""
        self._note("deleted", path)

    def sums_up(self, paths: Iterable[str]) -> None:
        """A part of the manifest that names these files is in the store, and stands for them from now on."""
        named = [path for path in paths if path in self.put]
        for path in named:
            del self.put[path]
        if named:
            self._rewrite()

    def begin_with(self, put: dict[str, PutFile]) -> None:
        """Begin with what is known to be in the store."""
        self.put.update(put)
        self._rewrite()

    def forget(self) -> None:
        """Begin again: it was about another place."""
        self.put, self.doomed, self.lacking = {}, {}, set()
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
        if self._lines > _SPARE_LINES + len(self.put) + len(self.lacking) + len(self.doomed):
            self._rewrite()

    def _rewrite(self) -> None:
        lines: list[list[str | int]] = [["put", path, *put] for path, put in self.put.items()]
        lines += [["lacking", path] for path in sorted(self.lacking)]
        lines += [["doomed", path, at] for path, at in self.doomed.items()]
        replace_file(self._path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        self._lines = len(lines)
