"""What a connection has to write beyond what its transport holds.

A transport keeps its own copy of what a socket does not take at once, and encrypts it. So it gets large frames in
pieces, the next one when it has room again: a message of 16 MiB for a hundred slow subscribers is in memory once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.sessions import SharedBytes

__all__ = ["PIECE_BYTES", "WriteBacklog"]

# What a transport gets at once. With less, a fast subscriber takes more turns of the loop; with more, a stalled one
# holds more memory.
PIECE_BYTES = 1024 * 1024


class WriteBacklog:
    """First in, first out.

    Attributes:
        parts: how many parts wait.
        bytes: what waits of its own, without shared buffers.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[memoryview, SharedBytes | None]] = deque()
        self.parts = self.bytes = 0

    def append(self, data: memoryview, shared: SharedBytes | None) -> int:
        """Add bytes; return how many bytes are held more because of a shared buffer."""
        self._waiting.append((data, shared))
        self.parts += 1
        if shared is not None:
            return shared.hold()
        self.bytes += len(data)
        return 0

    def take(self) -> tuple[memoryview, int]:
        """Take the next piece; return it, and how many bytes are held less because of a shared buffer."""
        data, shared = self._waiting.popleft()
        piece, rest = data[:PIECE_BYTES], data[PIECE_BYTES:]
        if shared is None:
            self.bytes -= len(piece)
        if rest:
            self._waiting.appendleft((rest, shared))
            return piece, 0
        self.parts -= 1
        return piece, 0 if shared is None else shared.release()

    def clear(self) -> int:
        """Forget everything; return how many bytes are held less because of shared buffers."""
        freed = sum(shared.release() for _, shared in self._waiting if shared is not None)
        self._waiting.clear()
        self.parts = self.bytes = 0
        return freed

    @property
    def shares(self) -> int:
        """Return what is held of shared buffers for this connection."""
        return sum(shared.share for _, shared in self._waiting if shared is not None)
