"""Records in memory: those that may not be on disk yet (pinned), and the most recently used ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.store.payloads import StoredRows

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RecordCache"]


class RecordCache:
    """Records by number.

    Args:
        budget: bytes for records that are also on disk; pinned ones do not count.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._pinned: dict[int, bytes] = {}
        self._kept: dict[int, StoredRows] = {}
        self.bytes = 0
        self.pinned_bytes = 0

    def pin(self, number: int, payload: bytes) -> None:
        """Keep a record that may not be on disk yet."""
        self.pinned_bytes += len(payload) - len(self._pinned.get(number, b""))
        self._pinned[number] = payload

    def unpin(self, numbers: Iterable[int]) -> None:
        """Count records against the budget: they are on disk now."""
        for number in numbers:
            payload = self._pinned.pop(number, None)
            if payload is not None:
                self.pinned_bytes -= len(payload)
                if number not in self._kept:
                    self.put(number, StoredRows(payload))

    def put(self, number: int, stored: StoredRows) -> None:
        """Keep a record that was read or written; the least recently used ones make room."""
        self.forget(number)
        self._kept[number] = stored
        self.bytes += stored.nbytes
        while self.bytes > self._budget and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))

    def get(self, number: int) -> StoredRows | None:
        """Return a record, or None if it is not in memory."""
        found = self._kept.pop(number, None)
        if found is not None:
            self._kept[number] = found
            return found
        payload = self._pinned.get(number)
        if payload is None:
            return None
        stored = StoredRows(payload)
        self.put(number, stored)
        return stored

    def has(self, number: int) -> bool:
        """Return whether a record is in memory."""
        return number in self._kept or number in self._pinned

    def is_pinned(self, number: int) -> bool:
        """Return whether a record may not be on disk yet."""
        return number in self._pinned

    def forget(self, number: int) -> None:
        """Drop a record that is stale or not needed."""
        found = self._kept.pop(number, None)
        if found is not None:
            self.bytes -= found.nbytes
