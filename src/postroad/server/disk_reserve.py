"""Room on the disk of a store that is kept free for acknowledgements.

What is stored is delivered only after a record says that it may have been, and room is made only by records of what
was settled. A disk that is full to the last byte takes neither: nobody could empty it any more. So a file of some size
lies beside the segments. When the disk is full it goes, and it is made again when there is room for two of it: one
alone would leave a disk that is full again at once.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from postroad.store import UNLIMITED

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_RESERVE_BYTES", "DiskReserve", "is_full"]

# Records of settled rows have some 50 bytes, a checkpoint of a thousand queues a few hundred thousand: enough for hours
# of acknowledgements, and little beside any disk.
MAX_RESERVE_BYTES = 16 * 1024 * 1024
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MODE = 0o600


class DiskReserve:
    """The reserve of one store. All calls may block; one thread at a time.

    Args:
        folder: where the segments are.
        size: of the reserve.

    Attributes:
        is_made: it is there, or this file system cannot keep room free.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._path = folder / "reserve"
        self.size = size
        self.is_made = False
        self._was_released = False

    def free_bytes(self) -> int:
        """Return how many bytes the disk has left; `UNLIMITED` if it does not say."""
        try:
            found = os.statvfs(self._path.parent)
        except OSError:
            return UNLIMITED
        return found.f_bavail * found.f_frsize if found.f_blocks else UNLIMITED

    def make(self) -> None:
        """Keep room free again, if there is enough for it."""
        if self.is_made:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Asked first: an attempt that fails would take what is left from others for a moment.
            wanted = 2 * self.size if self._was_released else self.size
            if self._present() < self.size and self.free_bytes() < wanted:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            try:
                os.posix_fallocate(descriptor, 0, self.size)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _FULL:
                self.release()
                return
        # Without it, a store on a file system that cannot do this is as it would be without a reserve.
        self.is_made, self._was_released = True, False

    def _present(self) -> int:
        try:
            return self._path.stat().st_blocks * 512
        except OSError:
            return 0

    def release(self) -> None:
        """Free the room for the next write."""
        self.is_made, self._was_released = False, True
        with suppress(OSError):
            self._path.unlink()


def is_full(error: BaseException | None) -> bool:
    """Return whether something failed because the disk is full."""
    cause = None if error is None else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL
