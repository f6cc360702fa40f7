"""Empties segments of which little is needed: copies what is left forward, so that the segment can be removed.

One segment at a time. Its records are read like any others; each is appended again as soon as it is in memory, under
the number that places use, with only the rows that some cursor still needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.store.payloads import EncodedRows, Match, batch_payload, place_of
from postroad.store.row_sets import NO_RUNS, ROW_BITS, intersect, runs_of, unite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroad.store.cache import RecordCache
    from postroad.store.catalog import Catalog, CatalogEntry
    from postroad.store.cursors import Cursor
    from postroad.store.payloads import StoredRows
    from postroad.store.record_reads import RecordReads

__all__ = ["SparseSegments"]

# A segment is emptied when less than this share of it is needed.
_SPARSE = 4


class SparseSegments:
    """The records that are being moved.

    Args:
        catalog: says where records are.
        cache: keeps a moved record until it is on disk.
        reads: fetches what is to be moved.
        cursors: say which rows are needed.
        append: writes a moved record: its payload, and the number that places use.

    Attributes:
        moved: how many records were moved so far.
    """

    def __init__(
        self,
        catalog: Catalog,
        cache: RecordCache,
        reads: RecordReads,
        cursors: Mapping[int, Cursor],
        append: Callable[[bytes, int], None],
    ) -> None:
        self._catalog = catalog
        self._cache = cache
        self._reads = reads
        self._cursors = cursors
        self._append = append
        self._moving: set[int] = set()
        self.moved = 0

    def begin(self, segments: Mapping[int, int], current: int | None) -> None:
        """Begin to empty the oldest sparse segment, unless one is being emptied.

        Args:
            segments: their sizes by number, oldest first.
            current: the segment that is being written.
        """
        if self._moving:
            return
        for segment, size in segments.items():
            if segment != current and size > _SPARSE * self._catalog.live_bytes(segment):
                numbers = self._catalog.entries(segment)[0].tolist()
                if not numbers or any(map(self._cache.is_pinned, numbers)):
                    # Empty, or closed just now: it may not be on disk yet.
                    continue
                self._moving = set(numbers)
                for number in numbers:
                    entry = self._catalog.find(number)
                    assert entry is not None
                    self._reads.want(entry)
                self.move_cached()
                return

    def move_cached(self) -> None:
        """Move what has come into memory, and forget what no cursor needs any more."""
        for number in list(self._moving):
            entry = self._catalog.find(number)
            stored = None if entry is None else self._cache.get(number)
            if entry is None:
                self._moving.discard(number)
            elif stored is not None:
                self._move(entry, stored)

    def forget(self, number: int) -> None:
        """Do not move a record, because it is damaged."""
        self._moving.discard(number)

    def _move(self, entry: CatalogEntry, stored: StoredRows) -> None:
        self._moving.discard(entry.number)
        whole = runs_of(place_of(entry.number, np.arange(entry.rows)))
        matches: list[Match] = []
        wanted = NO_RUNS
        for cursor in self._cursors.values():
            live = intersect(whole, unite(cursor.waiting.runs, cursor.in_flight.runs))
            wanted = unite(wanted, live)
            if cursor.durable and len(live.starts):
                matches.append(Match(cursor.number, live.places() - (entry.number << ROW_BITS)))
        rows = wanted.places() - (entry.number << ROW_BITS)
        if not len(rows):
            return
        matches = [Match(each.cursor, np.searchsorted(rows, each.rows)) for each in matches]
        batch = stored.batch.take(stored.rows_at(rows))
        payload = batch_payload([EncodedRows(batch)], matches, entry.stored, entry.number, rows)
        self._cache.forget(entry.number)
        self._cache.pin(entry.number, payload)
        self.moved += 1
        self._append(payload, entry.number)
