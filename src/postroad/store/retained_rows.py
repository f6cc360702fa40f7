"""Reads the rows that a cursor keeps in order, without taking them: the retained messages of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.store.row_sets import ROW_BITS, Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.store.cursors import Cursor

__all__ = ["HistoryRows", "next_rows"]


class HistoryRows(NamedTuple):
    """Rows of one record.

    Attributes:
        number: of the record.
        places: the rows.
        rows: which rows of the record they are.
    """

    number: int
    places: NDArray[np.int64]
    rows: NDArray[np.int64]


def next_rows(cursor: Cursor, start: int, end: int) -> HistoryRows | None:
    """Return the rows of a cursor in the next record with some from `start` on and below `end`; None without any."""
    starts, ends = cursor.waiting.runs
    first = int(np.searchsorted(ends, start, "right"))
    if first == len(starts) or starts[first] >= end:
        return None
    number = max(int(starts[first]), start) >> ROW_BITS
    # Runs do not span records, so those of this one end before the next record begins.
    last = int(np.searchsorted(starts, min((number + 1) << ROW_BITS, end)))
    places = Runs(np.maximum(starts[first:last], start), np.minimum(ends[first:last], end)).places()
    return HistoryRows(number, places, places - (number << ROW_BITS))
