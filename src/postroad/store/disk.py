"""The operations that the log needs on a disk, and the contract of a disk."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from postroad.store.errors import StoreWriteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.store.records import Piece

__all__ = ["Create", "Disk", "DiskCommit", "Preserve", "Read", "Remove", "Step", "Sync", "Write", "carry_out"]


class Disk(Protocol):
    """Segments by number. All calls may block, and raise OSError."""

    def segments(self) -> dict[int, int]:
        """Return the existing segments, in order, with their sizes."""

    def create(self, segment: int) -> None:
        """Make an empty segment, in place of one of the same number; when this returns, its name survives a crash."""

    def append(self, segment: int, pieces: Sequence[Piece]) -> None:
        """Write at the end of a segment."""

    def sync(self, segment: int) -> None:
        """Force a segment to disk; when this returns, all that was written to it survives a crash of the machine."""

    def remove(self, segment: int) -> None:
        """Delete a segment; after a crash it may be there again. A missing segment is not an error."""

    def preserve(self, segment: int) -> None:
        """Keep the bytes of a segment for people, whatever happens to it; a missing segment is not an error."""

    def read(self, segment: int, start: int = 0, length: int = -1) -> bytes:
        """Return bytes of a segment, to its end with a negative length; fewer than requested at its end."""


class Create(NamedTuple):
    """Begin a segment."""

    segment: int


class Write(NamedTuple):
    """Append to a segment."""

    segment: int
    pieces: list[Piece]


class Sync(NamedTuple):
    """Force a segment to disk."""

    segment: int


class Remove(NamedTuple):
    """Delete a segment."""

    segment: int


class Preserve(NamedTuple):
    """Keep a damaged segment for people, before it may be deleted."""

    segment: int


Step = Create | Write | Sync | Remove | Preserve


class DiskCommit(NamedTuple):
    """One group commit: many batches and acknowledgements, written together.

    Attributes:
        steps: in this order; after a failure, none of the others.
        through: the number of the last record in it, or before it.
        syncs: all of it is on disk at its end.
        size: bytes that are written.
    """

    steps: list[Step]
    through: int
    syncs: bool
    size: int


class Read(NamedTuple):
    """A record that somebody waits for."""

    number: int
    segment: int
    start: int
    length: int


def carry_out(commit: DiskCommit, disk: Disk) -> None:
    """Do what a commit says.

    Raises:
        StoreWriteError: a step failed. Tell the log; it writes all of the commit again, elsewhere.
    """
    for step in commit.steps:
        try:
            if isinstance(step, Create):
                disk.create(step.segment)
            elif isinstance(step, Write):
                disk.append(step.segment, step.pieces)
            elif isinstance(step, Sync):
                disk.sync(step.segment)
            elif isinstance(step, Preserve):
                disk.preserve(step.segment)
            else:
                # All is written and safe by now. What cannot be deleted is found and deleted at the next start.
                with suppress(OSError):
                    disk.remove(step.segment)
        except OSError as error:
            doing = type(step).__name__.lower()
            raise StoreWriteError(
                f"the store cannot {doing} segment {step.segment}: {error.strerror or error}; "
                "make room, or mend the disk; what is stored stays readable"
            ) from error
