"""Which records have to be read from disk, and what happens to them afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.store.catalog import UNPLACED
from postroad.store.disk import Read
from postroad.store.errors import DamageError
from postroad.store.payloads import StoredRows
from postroad.store.records import payload_of
from postroad.store.row_sets import ROW_BITS, Runs, by_record, first_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from postroad.store.cache import RecordCache
    from postroad.store.catalog import Catalog, CatalogEntry
    from postroad.store.cursors import Cursor, Taken

__all__ = ["READ_AHEAD", "RecordReads"]

# How far ahead of a cursor records are read.
READ_AHEAD = 8
# The share of the memory for records that may be read ahead for one cursor.
_READ_AHEAD_SHARE = 4


class RecordReads:
    """The reading side of a log.

    Args:
        catalog: says where records are.
        cache: takes what was read.
        memory: the bytes that the cache may keep.
        wake: called when there is something to read.
    """

    def __init__(self, catalog: Catalog, cache: RecordCache, memory: int, wake: Callable[[], None]) -> None:
        self._catalog = catalog
        self._cache = cache
        self._memory = memory
        self._wake = wake
        self._wanted: set[int] = set()
        self._reading: set[int] = set()

    def record(self, number: int) -> StoredRows | None:
        """Return a record; None if it is not in memory, and is requested, or if no cursor needs it any more."""
        stored = self._cache.get(number)
        if stored is None and (entry := self._catalog.find(number)) is not None:
            self.want(entry)
        return stored

    def pull(self, cursor: Cursor, most: int, below: int) -> list[Taken]:
        """Take the next rows of a cursor, up to `most` and below a place, as far as they are in memory."""
        found = cursor.waiting.front(most, below)
        taken: list[Taken] = []
        done = 0
        for number, stored, runs in self._in_memory(found):
            taken.append(cursor.taken(number, stored, runs))
            done += len(runs.starts)
        if done:
            gone = Runs(found.starts[:done], found.ends[:done])
            cursor.waiting.drop_front(gone)
            cursor.in_flight.add(gone)
        if len(found.starts):
            self._read_ahead(cursor.waiting.runs.starts)
        return taken

    def peek(self, cursor: Cursor, among: Runs, most: int, below: int) -> list[Taken]:
        """Show the first of some rows that wait for a cursor, up to `most` and below a place, if they are in memory."""
        found = first_places(among, most, below)
        shown = [cursor.taken(number, stored, runs) for number, stored, runs in self._in_memory(found)]
        if len(found.starts):
            # The first one that is missing, or what comes next.
            seen = int(shown[-1].places[-1]) if shown else -1
            at = int(np.searchsorted(among.starts, seen, "right"))
            self._read_ahead(among.starts[at:])
        return shown

    def _in_memory(self, runs: Runs) -> Iterator[tuple[int, StoredRows, Runs]]:
        """Yield runs by the record they are in, up to the first record that is not in memory."""
        for number, part in by_record(runs):
            stored = self._cache.get(number)
            if stored is None:
                return
            yield number, stored, part

    def _read_ahead(self, starts: NDArray[np.int64]) -> None:
        """Request what comes next: one record in any case, more as long as they leave room in memory for others."""
        room = self._memory // _READ_AHEAD_SHARE
        for at, number in enumerate(dict.fromkeys((starts[:READ_AHEAD] >> ROW_BITS).tolist())):
            entry = self._catalog.find(number)
            if entry is None or (at and entry.length > room):
                break
            room -= entry.length
            self.want(entry)

    def want(self, entry: CatalogEntry) -> None:
        """Request a record unless it is in memory or already requested."""
        number = entry.number
        known = number in self._wanted or number in self._reading or self._cache.has(number)
        if not known and entry.segment != UNPLACED:
            self._wanted.add(number)
            self._wake()

    def take(self) -> list[Read]:
        """Return the records to read now; `loaded` is to be called for each of them."""
        entries = [self._catalog.find(number) for number in self._wanted]
        self._wanted = set()
        # The others have come into memory since, or the cursor that waited for them has ended.
        needed = [entry for entry in entries if entry is not None and not self._cache.has(entry.number)]
        self._reading.update(entry.number for entry in needed)
        return [Read(entry.number, entry.segment, entry.start, entry.length) for entry in needed]

    def loaded(self, read: Read, data: bytes | None) -> CatalogEntry | None:
        """Take what was read; return the record if it is damaged.

        None for `data` means that it could not be read now; those who wait for it ask again.
        """
        self._reading.discard(read.number)
        entry = self._catalog.find(read.number)
        if entry is None or data is None or self._cache.has(read.number):
            return None
        if (entry.segment, entry.start) != (read.segment, read.start):
            # It was moved meanwhile.
            self.want(entry)
            return None
        payload = payload_of(data, read.segment, entry.header)
        stored = None if payload is None else _checked(payload)
        if stored is None:
            return entry
        self._cache.put(read.number, stored)
        return None


def _checked(payload: memoryview) -> StoredRows | None:
    try:
        stored = StoredRows(payload)
        assert stored.batch is not None
    except DamageError:
        return None
    return stored
