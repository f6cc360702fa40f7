"""What a connection has to write beyond what its transport holds.

A transport keeps what a socket does not take at once: a copy of it, or, with uvloop and from Python 3.12 on, the very
array that it was given a part of. So it gets large frames in pieces, the next one when it has room again, and a message
of 16 MiB for a hundred slow subscribers is in memory once. An array counts as a whole until the socket has taken the
last of it: a view of its last byte keeps all of it in memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from postroad.sessions import SharedBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PIECE_BYTES", "WriteBacklog"]

# What a transport gets at once. With less, a fast subscriber takes more turns of the loop; with more, a stalled one
# holds more memory.
PIECE_BYTES = 1024 * 1024


class WriteBacklog:
    """First in, first out.

    Attributes:
        parts: how many parts wait.
        given: how many bytes the transport was given in all; the connection adds those that did not wait.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[memoryview, SharedBytes]] = deque()
        # Buffers of which the transport may still hold a part, each with `given` at the end of that.
        self._lent: deque[tuple[int, SharedBytes]] = deque()
        self.parts = self.given = 0

    def append(self, data: memoryview, shared: SharedBytes | None) -> int:
        """Add bytes; return how many bytes are held more."""
        buffer = SharedBytes(len(data)) if shared is None else shared
        self._waiting.append((data, buffer))
        self.parts += 1
        return buffer.hold()

    def take(self) -> memoryview:
        """Take the next piece for the transport."""
        data, buffer = self._waiting.popleft()
        piece, rest = data[:PIECE_BYTES], data[PIECE_BYTES:]
        self.given += len(piece)
        if rest:
            self._waiting.appendleft((rest, buffer))
        else:
            self.parts -= 1
            self._lent.append((self.given, buffer))
        return piece

    @property
    def is_lent(self) -> bool:
        """Return whether the transport may hold a part of a buffer of which nothing waits."""
        return bool(self._lent)

    def let_go(self, unsent: int) -> int:
        """Forget buffers of which the socket has taken all; return how many bytes are held less.

        Args:
            unsent: bytes that the transport holds. With TLS that is a little more than it was given.
        """
        freed, sent = 0, self.given - unsent
        while self._lent and (self._lent[0][0] <= sent or not unsent):
            freed += self._lent.popleft()[1].release()
        return freed

    def clear(self) -> int:
        """Forget everything; return how many bytes are held less."""
        freed = sum(buffer.release() for buffer in self._buffers())
        self._waiting.clear()
        self._lent.clear()
        self.parts = 0
        return freed

    @property
    def share(self) -> int:
        """Return what is held of buffers for this connection."""
        return sum(buffer.share for buffer in self._buffers())

    def _buffers(self) -> Iterator[SharedBytes]:
        for _, buffer in (*self._waiting, *self._lent):
            yield buffer
