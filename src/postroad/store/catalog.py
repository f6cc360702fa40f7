"""Where the records with rows are, and how many cursors still need rows of them.

Layout: one int64 table, a column per record, sorted by record number. `refs` counts pairs of a row and a cursor that
waits for it or has it in flight. Invariants: a record with `refs` 0 is dead, and `live` counts the other records per
segment; a segment that is not in `live` can be removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.store.row_sets import ROW_BITS, Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

__all__ = ["UNPLACED", "Catalog", "CatalogEntry"]

# The segment of a record that is only in memory.
UNPLACED = -1
_NUMBER, _HEADER, _SEGMENT, _START, _LENGTH, _ROWS, _STORED, _LATEST, _REFS = range(9)
_COLUMNS = 9
# The table is at least this large: dropping dead entries of a small one is not worth the copying.
_SPARED = 1024
# How many records are examined at a time for ids of some time: most searches end in the first piece.
_EXAMINED = 4_096


class CatalogEntry(NamedTuple):
    """Where a record is.

    Attributes:
        number: the one that places contain.
        header: the number in its header; a different one if it was moved.
        segment: UNPLACED while it is only in memory.
        start: where its header begins in the segment.
        length: of header and payload.
        rows: how many rows places can name in it.
        stored: when it was stored, in ms.
        latest: no id in it has a later time (ms). Clocks differ, so it may lie far from `stored`, on either side.
    """

    number: int
    header: int
    segment: int
    start: int
    length: int
    rows: int
    stored: int
    latest: int

    @property
    def described(self) -> str:
        """Return the record in words, for a log."""
        return f"segment {self.segment}: the record {self.header} of {self.rows:,} rows at {self.start:,}"


class Catalog:
    """The records that have rows."""

    def __init__(self) -> None:
        self._table = np.empty((_COLUMNS, 64), np.int64)
        self._count = 0
        self._dead = 0
        # The number of live records of each segment that has some, UNPLACED included.
        self.live: dict[int, int] = {}

    def __len__(self) -> int:
        return self._count - self._dead

    def add(self, entry: CatalogEntry) -> None:
        """Add a record after all others. It is dead until a cursor wants rows of it."""
        if self._count == self._table.shape[1]:
            self._make_room()
        self._table[:, self._count] = (*entry, 0)
        self._count += 1
        self._dead += 1

    def load(self, columns: Column) -> None:
        """Add the records that recovery found, sorted by number, in the form of `entries`; dead until wanted."""
        self._count = self._dead = columns.shape[1]
        self._table = np.zeros((_COLUMNS, 2 * self._count + 64), np.int64)
        self._table[:_REFS, : self._count] = columns

    def _make_room(self) -> None:
        kept = self._table[:, : self._count]
        if self._dead > self._count // 2:
            kept = kept[:, kept[_REFS] > 0]
            self._dead = 0
        table = np.empty((_COLUMNS, max(_SPARED, 2 * kept.shape[1])), np.int64)
        table[:, : kept.shape[1]] = kept
        self._table, self._count = table, kept.shape[1]

    def find(self, number: int) -> CatalogEntry | None:
        """Return where a record is; None if no cursor needs it."""
        at = self._at(number)
        return None if at is None or not self._table[_REFS, at] else CatalogEntry(*self._table[:_REFS, at].tolist())

    def _at(self, number: int) -> int | None:
        at = int(np.searchsorted(self._table[_NUMBER, : self._count], number))
        return at if at < self._count and self._table[_NUMBER, at] == number else None

    def place(self, number: int, header: int, segment: int, start: int, length: int) -> None:
        """Note where a record was written, for the first time or because it was moved."""
        at = self._at(number)
        if at is None:
            return
        before = int(self._table[_SEGMENT, at])
        self._table[_HEADER : _LENGTH + 1, at] = header, segment, start, length
        if self._table[_REFS, at]:
            self._count_live(before, -1)
            self._count_live(segment, 1)

    def count(self, runs: Runs, sign: int) -> int:
        """Count one more cursor (1) or one less (-1) for rows; return about how many bytes they take."""
        if not len(runs.starts):
            return 0
        table, used = self._table, self._count
        sizes = runs.ends - runs.starts
        at = np.searchsorted(table[_NUMBER, :used], runs.starts >> ROW_BITS)
        wanted = table[_REFS]
        touched = np.unique(at)
        before = wanted[touched] > 0
        np.add.at(wanted, at, sign * sizes)
        changed = before != (wanted[touched] > 0)
        if changed.any():
            segments, counts = np.unique(table[_SEGMENT, touched[changed]], return_counts=True)
            for segment, count in zip(segments.tolist(), counts.tolist(), strict=True):
                self._count_live(segment, sign * count)
                self._dead -= sign * count
        return int((table[_LENGTH, at] // np.maximum(table[_ROWS, at], 1) * sizes).sum())

    def count_all(self, number: int, rows: int) -> None:
        """Count so many rows of one record for all cursors that want some, at once: it does not matter which rows."""
        first = np.array([number << ROW_BITS])
        self.count(Runs(first, first + rows), 1)

    def _count_live(self, segment: int, change: int) -> None:
        count = self.live.get(segment, 0) + change
        if count:
            self.live[segment] = count
        else:
            self.live.pop(segment, None)

    def entries(self, segment: int | None = None, through: int | None = None) -> Column:
        """int64[8, n]: the live records that are on disk, as columns in the order of `CatalogEntry`."""
        table = self._table[:, : self._count]
        chosen = (table[_REFS] > 0) & (table[_SEGMENT] != UNPLACED)
        if segment is not None:
            chosen &= table[_SEGMENT] == segment
        if through is not None:
            chosen &= table[_NUMBER] <= through
        return table[:_REFS, chosen]

    def live_bytes(self, segment: int) -> int:
        """Return about how many bytes of a segment are wanted: a row counts once per cursor, a record once at most."""
        table = self._table[:, : self._count]
        table = table[:, (table[_SEGMENT] == segment) & (table[_REFS] > 0)]
        share = np.minimum(table[_REFS], table[_ROWS]) / np.maximum(table[_ROWS], 1)
        return int((table[_LENGTH] * share).sum())

    def stored_at(self, place: int) -> int | None:
        """Return when a row was stored, in ms; None if no cursor needs its record."""
        entry = self.find(place >> ROW_BITS)
        return None if entry is None else entry.stored

    def rows_before(self, runs: Runs, time: int) -> int:
        """Return how many of some rows were stored before a time."""
        number = self.first_stored_from(time)
        return int((runs.ends - runs.starts)[: int(np.searchsorted(runs.starts, number << ROW_BITS))].sum())

    def first_stored_from(self, time: int) -> int:
        """Return the first record that was stored at a time or later; a number beyond all others if there is none."""
        stored = np.maximum.accumulate(self._table[_STORED, : self._count])
        at = int(np.searchsorted(stored, time, "left"))
        return int(self._table[_NUMBER, at]) if at < self._count else 2**62 >> ROW_BITS

    def next_since(self, number: int, time: int) -> int:
        """Return the first record from a number on that may have ids of a time (ms) or later; beyond all if none."""
        at = int(np.searchsorted(self._table[_NUMBER, : self._count], number))
        while at < self._count:
            end = min(at + _EXAMINED, self._count)
            found = np.flatnonzero(self._table[_LATEST, at:end] >= time)
            if len(found):
                return int(self._table[_NUMBER, at + found[0]])
            at = end
        return 2**62 >> ROW_BITS
