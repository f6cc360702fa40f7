"""Bytes as a series of choices, for targets that want structure rather than one blob.

The fuzzer brings a class of its own for this. Replaying the corpus must not need the fuzzer, and must read the bytes in
the same way: so both use this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Choices"]

Item = TypeVar("Item")


class Choices:
    """Reads numbers, items and blobs from the front of some bytes; zeros and nothing when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        found = self._data[self._at] if self else 0
        self._at += 1
        return found

    def number(self, size: int = 8) -> int:
        """An unsigned number of some bytes."""
        return int.from_bytes(self.blob(size), "little")

    def pick(self, items: Sequence[Item]) -> Item:
        """One of some items."""
        return items[self.byte() % len(items)]

    def blob(self, size: int) -> bytes:
        """So many bytes, or what is left."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def short_blob(self) -> bytes:
        """Up to 255 bytes, behind their number."""
        return self.blob(self.byte())

    def rest(self) -> bytes:
        """All that is left."""
        return self.blob(len(self._data))

    def pieces(self) -> list[bytes]:
        """All that is left, cut where the first byte says: as reads of a socket cut a stream."""
        step = self.byte()
        data = self.rest()
        if not step:
            return [data]
        return [data[at : at + step] for at in range(0, len(data), step)]
