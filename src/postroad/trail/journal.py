"""The journal: what was reported to a recorder, on disk within moments, until the trail has it.

Entries go into a buffer on the loop; a thread writes the buffer and forces it to disk, many entries at once. A receipt
waits until the durable position has passed its entry. After a crash the entries are replayed to a fresh recorder.

```
journal/broker=<number>/<number of the segment>.journal
segment: 8 bytes "PRjrnl01", then entries
entry:   length u32 LE, CRC-32 of the bytes u32 LE, the bytes
lapse:   FF FF FF FF, 00 00 00 00: entries that stood here were given up
```

The end of a segment may be torn by a crash: whatever follows the last whole entry was never durable. What is forced to
disk together ends with an entry that says so (`journaled_recorder.turn_entry`), between two turns of the event loop. A
segment begins with the time of the last entry before it (`segment_entry`): where the trail does not reach so far and no
segment before it does, one is missing.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postroad.tracking.journaled_recorder import segment_entry
from postroad.trail.access import create
from postroad.trail.durable_files import make_directory, sync_directory, write_whole
from postroad.trail.errors import TrailWriteError
from postroad.trail.paths import refuse_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "Journal",
    "JournalStatistics",
    "SegmentEntries",
    "has_at_most",
    "journal_folder",
    "read_segments",
    "replay",
]

MAGIC = b"PRjrnl01"
ENDING = ".journal"
_HEAD = struct.Struct("<II")
# Stands where entries were given up: a replay must not pass for complete.
_LAPSE = _HEAD.pack(2**32 - 1, 0)
# Entries that wait for the disk: some seconds of a busy broker. Beyond it new ones are lost, and counted.
MAX_WAITING_BYTES = 64 << 20
# No entry is near this; a larger length in a segment is damage.
MAX_ENTRY_BYTES = 256 << 20


class JournalStatistics(NamedTuple):
    """What the journal did, and how much waits for the disk."""

    position: int
    durable: int
    syncs: int
    failures: int
    lost_entries: int
    segments_now: int
    waiting_bytes_now: int


class _Segment(NamedTuple):
    path: Path
    since: int  # the position before its first entry
    through: int  # the position after its last


def journal_folder(root: str | Path, broker: int) -> Path:
    """Where the journal of a broker is."""
    return Path(root) / "journal" / f"broker={broker}"


def has_at_most(root: Path, broker: int, size: int) -> bool:
    """Whether there is a journal of a broker of at most so many bytes; no, while one that runs deletes from it."""
    try:
        return sum(path.stat().st_size for path in journal_folder(root, broker).iterdir()) <= size
    except OSError:
        return False


class Journal:
    """Appends on one thread, syncs on another. Positions are bytes appended since it was opened.

    Segments of earlier processes stay until `forget_earlier`: `replay` them first.

    Raises:
        TrailDamageError: the folder is a symbolic link.

    Attributes:
        durable: every entry whose position is at most this is on disk, unless it was lost.
        lost_through: the position of the last entry that was given up because the disk took nothing; 0 when none was.
        trouble: what is wrong with the disk; empty while all is well.
    """

    def __init__(self, root: str | Path, broker: int, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._folder = journal_folder(root, broker)
        self._earlier = _segments(Path(root), broker)
        self._next = 1 + max((int(path.name.removesuffix(ENDING)) for path in self._earlier), default=0)
        self._max_waiting_bytes = max_waiting_bytes
        self._lock = threading.Lock()  # guards the buffer alone, and is held for moments
        self._buffer = bytearray()
        self._lapsed = False  # the last entry was given up, and the next must say so
        # Bytes of the buffer, and the position after them, that the next sync takes: up to the end of a turn.
        self._turn: tuple[int, int, bytes] | None = None
        self._last = b""  # the last entry that was appended and does not end a turn
        self._last_durable = b""  # the last such one that is on disk
        self._unwritten = b""  # taken from the buffer by a sync that failed
        self._file = -1
        self._path = self._folder
        self._written = 0  # bytes of the open segment that are whole entries
        self._closed: list[_Segment] = []
        self._begun = 0  # the position before the first entry of the open segment
        self.position = 0
        self.durable = 0
        self.lost_through = 0
        self.trouble = ""
        self._syncs = self._failures = self._lost = 0

    def append(self, entry: bytes, *, ends_turn: bool = False) -> int:
        """Take an entry; returns the position that is durable when the entry is. Never blocks on the disk.

        After an entry that ends a turn, the next sync takes no more than that: others may be half a turn.
        """
        with self._lock:
            self.position += _HEAD.size + len(entry)
            if len(self._buffer) + len(self._unwritten) + len(entry) > self._max_waiting_bytes:
                self._lost += 1
                self.lost_through = self.position
                self._lapsed = True
            else:
                if self._lapsed:
                    self._buffer += _LAPSE
                    self._lapsed = False
                self._buffer += _HEAD.pack(len(entry), zlib.crc32(entry))
                self._buffer += entry
            if ends_turn:
                self._turn = len(self._buffer), self.position, self._last
            else:
                self._last = entry
            return self.position

    def sync(self) -> int:
        """Force all entries so far to disk, or those up to the end of a turn; returns the durable position.

        For one thread, off the loop.

        Raises:
            TrailWriteError: the disk does not take them; they wait, within a bound, for the next call.
        """
        with self._lock:
            size, reached, last = self._turn or (len(self._buffer), self.position, self._last)
            taken, self._buffer, self._turn = self._buffer[:size], self._buffer[size:], None
            self._unwritten += taken
        try:
            if self._unwritten:
                self._write(self._unwritten)
        except OSError as error:
            self._failures += 1
            self.trouble = str(error)
            self._abandon()
            raise TrailWriteError(self._path, error.strerror or error) from error
        self._unwritten = b""
        self.trouble = ""
        self._syncs += 1
        self.durable = reached
        self._last_durable = last
        return reached

    def _write(self, data: bytes) -> None:
        if self._file >= 0 and not self._is_in_place():
            # Moved or deleted with its trail: a receipt must not rest on it.
            self._finish()
        if self._file < 0:
            self._open()
        write_whole(self._file, data)
        os.fdatasync(self._file)
        self._written += len(data)

    def _is_in_place(self) -> bool:
        """Whether the open segment is where the next start looks for it."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        make_directory(self._folder)
        self._path = self._folder / f"{self._next:012d}{ENDING}"
        self._next += 1
        self._begun = self.durable
        # Until the first bytes are there: a segment that fails now is cut to nothing.
        self._written = 0
        self._file = create(self._path, os.O_EXCL)
        begin = segment_entry(self._last_durable)
        head = MAGIC + (_HEAD.pack(len(begin), zlib.crc32(begin)) + begin if begin else b"")
        write_whole(self._file, head)
        self._written = len(head)
        sync_directory(self._folder)

    def _abandon(self) -> None:
        """After a failed write: truncate the torn end, and continue in a new segment in any case."""
        if self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, self._written)
        self._finish()

    def _finish(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._closed.append(_Segment(self._path, self._begun, self.durable))
            self._file = -1

    def release(self, through: int, lost: Iterable[tuple[int, int]] = ()) -> int:
        """Delete the segments that the trail covers, which has everything up to a position; returns how many were
        deleted.

        The open segment is finished, so the next call can delete it. For the thread that syncs.

        Args:
            through: the position.
            lost: what the trail does not have anyway, from one position to another: it stays for the next start.
        """
        self._finish()
        gaps = tuple(lost)
        gone = [segment for segment in self._closed if segment.through <= through and not _overlaps(segment, gaps)]
        self._closed = [segment for segment in self._closed if segment not in gone]
        for segment in gone:
            with suppress(OSError):
                segment.path.unlink()
        return len(gone)

    def forget_earlier(self) -> None:
        """The trail has all that earlier processes left here: delete it."""
        for path in self._earlier:
            with suppress(OSError):
                path.unlink()
        self._earlier = []

    def close(self) -> None:
        """Force what waits to disk, and end. What the trail has not released stays for the next start.

        Raises:
            TrailWriteError: the disk does not take it.
        """
        try:
            self.sync()
        finally:
            self._finish()

    def statistics(self) -> JournalStatistics:
        """Counts for people and for metrics."""
        waiting = len(self._buffer) + len(self._unwritten)
        segments = len(self._closed) + len(self._earlier) + (self._file >= 0)
        return JournalStatistics(
            self.position, self.durable, self._syncs, self._failures, self._lost, segments, waiting
        )


def _overlaps(segment: _Segment, gaps: tuple[tuple[int, int], ...]) -> bool:
    return any(since < segment.through and until > segment.since for since, until in gaps)


class SegmentEntries(NamedTuple):
    """The entries of one segment.

    Attributes:
        entries: in order; None where others are missing, which were given up or are damaged.
        is_torn: it ends within an entry, as a crash leaves it.
    """

    entries: Iterator[bytes | None]
    is_torn: bool


def replay(
    root: str | Path, broker: int, warnings: list[str], missing: Callable[[], None] | None = None
) -> Iterator[bytes]:
    """The entries that earlier processes left, in order.

    Args:
        root: the trail.
        broker: whose.
        warnings: takes what is torn or damaged, and is left out.
        missing: called between two entries, or after the last, where others are missing.
    """
    for segment in read_segments(root, broker, warnings):
        for entry in segment.entries:
            if entry is not None:
                yield entry
            elif missing is not None:
                missing()
        if segment.is_torn and missing is not None:
            missing()


def read_segments(root: str | Path, broker: int, warnings: list[str]) -> Iterator[SegmentEntries]:
    """The segments that earlier processes left, in order; `warnings` takes what is torn or damaged, and is left out."""
    for path in _segments(Path(root), broker):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # Its broker lives, and has written all of this to the trail.
            continue
        except OSError as error:
            warnings.append(f"{path}: {error.strerror or error}")
            yield SegmentEntries(iter([None]), False)
            continue
        if data[: len(MAGIC)] != MAGIC:
            # A crash right after the segment was made leaves none of it.
            if not MAGIC.startswith(data):
                warnings.append(f"{path}: not a segment of a journal")
                yield SegmentEntries(iter([None]), False)
            continue
        places, end = _places(data)
        is_torn = end < len(data) and _is_cut_off(data, end)
        if end < len(data):
            warnings.append(f"{path}: torn or damaged after {end:,} of {len(data):,} bytes")
            places += [] if is_torn else [None]
        yield SegmentEntries(_at(data, places), is_torn)


def _at(data: bytes, places: list[tuple[int, int] | None]) -> Iterator[bytes | None]:
    return (None if place is None else data[place[0] : place[1]] for place in places)


def _places(data: bytes) -> tuple[list[tuple[int, int] | None], int]:
    """Where the entries of a segment begin and end, None for a lapse; and where the last that can be read ends."""
    found: list[tuple[int, int] | None] = []
    place = len(MAGIC)
    while place < len(data):
        if data.startswith(_LAPSE, place):
            found.append(None)
            place += len(_LAPSE)
            continue
        entry = _entry(data, place)
        if entry is None:
            break
        found.append(entry)
        place = entry[1]
    return found, place


def _is_cut_off(data: bytes, place: int) -> bool:
    """Whether an entry that cannot be read extends beyond the end of its segment."""
    if place + _HEAD.size > len(data):
        return True
    length, _ = _HEAD.unpack_from(data, place)
    return length <= MAX_ENTRY_BYTES and place + _HEAD.size + int(length) > len(data)


def _entry(data: bytes, place: int) -> tuple[int, int] | None:
    """Where an entry's bytes begin and end; None if they are not what was written."""
    if place + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, place)
    start = place + _HEAD.size
    if length > MAX_ENTRY_BYTES or start + length > len(data):
        return None
    return (start, start + length) if zlib.crc32(data[start : start + length]) == crc else None


def _segments(root: Path, broker: int) -> list[Path]:
    """The segments of a broker; they are deleted in the end, so no link may lead to others.

    Raises:
        TrailDamageError: a folder on the way is a symbolic link.
    """
    folder = journal_folder(root, broker)
    refuse_links(root, folder.relative_to(root).as_posix())
    try:
        found = [path for path in folder.iterdir() if path.name.removesuffix(ENDING).isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(path for path in found if path.name.endswith(ENDING))
