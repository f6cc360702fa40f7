"""`SharedBytes`: what several connections write without a copy of their own, counted once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.messages.columns import Bytes

__all__ = ["SHARED_BATCH_BYTES", "SHARED_ROW_BYTES", "Piece", "SharedBytes", "is_shared"]

# Messages of a batch that is larger than two reads, and whose messages have so many bytes on average, are not copied
# for each subscriber. Two writes cost some microseconds more than one; copying so much costs as many.
SHARED_BATCH_BYTES = 512 * 1024
SHARED_ROW_BYTES = 64 * 1024


def is_shared(batch: Batch) -> bool:
    """Return whether the messages of a batch are large enough to be shared."""
    size = batch.buffer.nbytes
    return size >= SHARED_BATCH_BYTES and size >= SHARED_ROW_BYTES * len(batch)


class SharedBytes:
    """A buffer that connections hold until their sockets have taken what they get of it.

    Attributes:
        size: of the buffer, in bytes.
    """

    __slots__ = ("_holders", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders = 0

    def hold(self) -> int:
        """Note that one more part of it waits for a socket; return how many bytes are held more because of that."""
        self._holders += 1
        return self.size if self._holders == 1 else 0

    def release(self) -> int:
        """Note that a part of it waits no longer; return how many bytes are held less because of that."""
        self._holders -= 1
        return self.size if self._holders == 0 else 0

    @property
    def share(self) -> int:
        """Return what is held for each part that waits."""
        return self.size // max(1, self._holders)


class Piece(NamedTuple):
    """Bytes to write.

    Attributes:
        data: the bytes.
        shared: the buffer that they are a part of; None if they are for one connection alone.
    """

    data: Bytes
    shared: SharedBytes | None = None
