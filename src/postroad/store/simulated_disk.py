"""A disk in memory that fails as disks do: it loses, tears and reorders what was not synced, fills up, and rots.

What was written since the last sync of a segment is kept as separate writes of sectors. A crash keeps some of the
sectors, in any combination, and cuts the file after the last one kept; lost sectors before it read as zeros.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from postroad.store.records import Piece

__all__ = ["PowerFailure", "SimulatedDisk"]

# Disks write whole sectors: a write can be torn between them, never inside one. Small, so that small tests tear much.
SECTOR = 64


class PowerFailure(BaseException):
    """The machine has failed in the middle of a step. Not an OSError: nobody is there to handle it."""


class SimulatedDisk:
    """Segments in memory.

    Args:
        capacity: bytes that fit on it; more is refused as a full disk refuses.

    Attributes:
        boundary: called before and after every write, sync, creation and removal, with the number of such calls so
            far; raises PowerFailure to fail there.
        failing: every write and sync fails with EIO, as of a disk that is broken.
        preserved: the bytes of segments that are kept for people.
    """

    def __init__(self, capacity: int = 2**40) -> None:
        self.capacity = capacity
        self.failing = False
        self.boundary: Callable[[int], None] = lambda _: None
        self.boundaries = 0
        self.preserved: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        self._written: dict[int, bytearray] = {}
        self._removed: dict[int, bytes] = {}

    def _pass(self) -> None:
        self.boundaries += 1
        self.boundary(self.boundaries)

    def segments(self) -> dict[int, int]:
        """Return the existing segments, in order, with their sizes."""
        return {segment: len(self._written[segment]) for segment in sorted(self._written)}

    def create(self, segment: int) -> None:
        """Make an empty segment."""
        self._pass()
        self._refuse(0)
        self._written[segment], self._synced[segment] = bytearray(), b""
        self._pass()

    def append(self, segment: int, pieces: Sequence[Piece]) -> None:
        """Write at the end of a segment; what does not fit is written in part."""
        self._pass()
        data = b"".join(bytes(piece) for piece in pieces)
        room = self.capacity - sum(map(len, self._written.values()))
        half = len(data) // 2
        self._written[segment] += data[:half] if room >= half else data[: max(0, room)]
        self._pass()
        self._refuse(len(data) - half)
        self._written[segment] += data[half:]
        self._pass()

    def _refuse(self, size: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        if sum(map(len, self._written.values())) + size > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self, segment: int) -> None:
        """Force a segment to disk."""
        self._pass()
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        if segment in self._written:
            self._synced[segment] = bytes(self._written[segment])
        self._pass()

    def remove(self, segment: int) -> None:
        """Delete a segment; a crash may bring it back as it was when last synced."""
        self._pass()
        if segment in self._written:
            self._removed[segment] = self._synced.pop(segment)
            del self._written[segment]
        self._pass()

    def preserve(self, segment: int) -> None:
        """Keep the bytes of a segment."""
        self._pass()
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        if segment in self._written:
            self.preserved[segment] = bytes(self._written[segment])
        self._pass()

    def read(self, segment: int, start: int = 0, length: int = -1) -> bytes:
        """Bytes of a segment."""
        try:
            data = self._written[segment]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, f"no segment {segment}") from None
        return bytes(data[start:] if length < 0 else data[start : start + length])

    def crash(self, random: random.Random, *, power: bool = True) -> SimulatedDisk:
        """Return the disk as the next process finds it.

        Args:
            random: chooses which unsynced sectors survive, and which removed segments come back.
            power: the machine has failed; otherwise only the process has, and all that was written is there.
        """
        after = SimulatedDisk(self.capacity)
        after.preserved = dict(self.preserved)
        for segment, data in self._written.items():
            kept = self._survivors(segment, data, random) if power else bytes(data)
            after._written[segment], after._synced[segment] = bytearray(kept), kept
        for segment, kept in self._removed.items():
            if power and segment not in after._written and random.random() < 0.5:
                after._written[segment], after._synced[segment] = bytearray(kept), kept
        return after

    def _survivors(self, segment: int, data: bytearray, random: random.Random) -> bytes:
        safe = self._synced[segment]
        # All, none, a beginning, or any combination of what was not synced.
        chance = random.choice([0.0, 1.0, 0.5, 0.9])
        kept = bytearray(safe)
        for start in range(len(safe), len(data), SECTOR):
            sector = data[start : start + SECTOR]
            if random.random() < chance:
                kept += bytes(start - len(kept)) + sector
        return bytes(kept)

    def rot(self, segment: int, at: int, flip: int = 1) -> None:
        """Flip a bit on the disk."""
        for held in (self._written,):
            held[segment][at] ^= flip
        self._synced[segment] = bytes(self._written[segment][: len(self._synced[segment])])
