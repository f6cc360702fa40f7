"""The record that still takes rows: everything appended since the last one was sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.store.payloads import EncodedRows, Match, batch_payload
from postroad.store.row_sets import MAX_RECORD_ROWS

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store.cursors import Cursor

    Rows = NDArray[np.int64]

__all__ = ["RECORD_BYTES", "MatchedRows", "OpenRecord"]

# A record is sealed at this size: it is read and checked as a whole, and a reader that wants one row waits for it.
RECORD_BYTES = 1024 * 1024


class MatchedRows:
    """The rows of a batch that cursors matched, encoded.

    Args:
        batch: where the rows are; nothing of it is kept.
        matches: the rows of each cursor, in order, without repeats.
    """

    __slots__ = ("encoded", "matches")

    def __init__(self, batch: Batch, matches: Sequence[tuple[Cursor, Rows]]) -> None:
        wanted = _union(matches, len(batch))
        self.encoded = EncodedRows(batch if wanted is None else batch.take(wanted))
        if wanted is None:
            self.matches = matches
        else:
            self.matches = [(cursor, np.searchsorted(wanted, rows)) for cursor, rows in matches]


class OpenRecord:
    """Encoded rows and the cursors they matched, in the order of appending.

    Rows are numbered within the record: those of the n-th batch follow those of all batches before it.

    Attributes:
        rows: how many there are.
        bytes: how many they take, about.
        stored: when the first of them came, in ms.
        durable: whether a durable cursor matched one of them.
    """

    __slots__ = ("_matches", "_parts", "bytes", "durable", "rows", "stored")

    def __init__(self) -> None:
        self._parts: list[EncodedRows] = []
        self._matches: dict[int, list[Rows]] = {}
        self.rows = self.bytes = self.stored = 0
        self.durable = False

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has_room(self, encoded: EncodedRows) -> bool:
        """Return whether rows may join it. An empty record takes any number."""
        return not self._parts or (
            self.rows + encoded.count <= MAX_RECORD_ROWS and self.bytes + encoded.size <= RECORD_BYTES
        )

    def add(self, rows: MatchedRows, now: int) -> None:
        """Append rows at a time in ms."""
        if not self._parts:
            self.stored = now
        for cursor, matched in rows.matches:
            self._matches.setdefault(cursor.number, []).append(matched + self.rows)
            self.durable |= cursor.durable
        self._parts.append(rows.encoded)
        self.rows += rows.encoded.count
        self.bytes += rows.encoded.size

    def has_rows_of(self, cursor: int) -> bool:
        """Return whether a cursor matched any of its rows."""
        return cursor in self._matches

    def count_of(self, cursor: int) -> int:
        """Return how many of its rows a cursor matched."""
        return sum(map(len, self._matches.get(cursor, ())))

    def last_of(self, cursor: int) -> Rows:
        """The rows that a cursor matched of the last batch it matched any of."""
        return self._matches[cursor][-1]

    def matches(self) -> list[Match]:
        """Return the cursors and the rows that each of them matched."""
        return [
            Match(number, rows[0] if len(rows) == 1 else np.concatenate(rows)) for number, rows in self._matches.items()
        ]

    def payload(self, matches: Sequence[Match], durable: Container[int]) -> bytes:
        """Return the bytes of the record, with only the matches of durable cursors."""
        return batch_payload(self._parts, [match for match in matches if match.cursor in durable], self.stored)


def _union(matches: Sequence[tuple[Cursor, Rows]], count: int) -> Rows | None:
    """Return the rows that any cursor matched, in order; None if these are all."""
    if any(len(rows) == count for _, rows in matches):
        return None
    if len(matches) == 1:
        return matches[0][1]
    mask = np.zeros(count, np.bool_)
    for _, rows in matches:
        mask[rows] = True
    return np.flatnonzero(mask)
