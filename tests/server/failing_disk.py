"""A store whose disk fails as long as it is told to."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.server import Service


class FailingDisk:
    """Fails at appending; the rest is the real disk's."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk
        self.failing = False
        self.failed_reads = 0

    def read(self, segment: int, start: int = 0, length: int = -1) -> bytes:
        if self.failing:
            self.failed_reads += 1
            raise OSError(errno.EIO, "Input/output error")
        data: bytes = self.disk.read(segment, start, length)
        return data

    def append(self, segment: int, pieces: Sequence[Any]) -> None:
        if self.failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk.append(segment, pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


def fail(broker: Service) -> FailingDisk:
    """From now on the broker's store cannot be written to; the disk says when it can again."""
    disk = FailingDisk(broker.storage.disk)
    broker.storage.disk = disk
    disk.failing = True
    return disk
