"""A disk that is soon full, under a broker that runs; and limits of the store that fit it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from postroad.broker import stored_queues
from postroad.store import StoreSettings, room

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from postroad.server import Service

SEGMENT = 65_536
SMALL = StoreSettings(segment_bytes=SEGMENT)


def scale_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers are paused with two segments left and refused with one; others put until half a segment is left."""
    monkeypatch.setattr(stored_queues, "RESERVE_BYTES", 2 * SEGMENT)
    monkeypatch.setattr(stored_queues, "PUT_RESERVE_BYTES", SEGMENT // 2)
    monkeypatch.setattr(room, "TIGHT_BYTES", 2 * SEGMENT)
    monkeypatch.setattr(room, "TIGHT_SEGMENT_BYTES", SEGMENT // 8)


class SmallDisk:
    """Has room for some bytes, the reserve of the store among them.

    Attributes:
        taken: bytes of other programs.
    """

    def __init__(self, broker: Service, capacity: int) -> None:
        self.disk: Any = broker.storage.disk
        self.taken = 0
        self._reserve = broker.storage.reserve
        self._capacity = capacity
        broker.storage.disk = self
        broker.storage.reserve.free_bytes = self.free_bytes  # type: ignore[method-assign]

    def free_bytes(self) -> int:
        kept = self._reserve.size if self._reserve.is_made else 0
        used: int = sum(self.disk.segments().values())
        return max(0, self._capacity - kept - used - self.taken)

    def append(self, segment: int, pieces: Sequence[Any]) -> None:
        if sum(map(len, pieces)) > self.free_bytes():
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk.append(segment, pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)
