"""What was given up in the store goes into the record once no crash can bring it back.

A crash may undo what the store has not written: then the rows wait again and are delivered after all. A record that had
called them lost would be wrong, and would say so with certainty.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.id_batches import ids_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store import Cursor, Log

    RecordRows = Callable[[Batch, NDArray[np.int64], int], None]

__all__ = ["MAX_UNRECORDED_ROWS", "GivenUp"]

# Rows that may wait for the disk to be recorded before no more are given up: their ids take 4 MB.
MAX_UNRECORDED_ROWS = 262_144


class GivenUp:
    """Rows that were given up and are not on record yet.

    Args:
        log: the store.

    Attributes:
        rows: how many.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        # The number that the store has to reach, the ids, and what records them.
        self._waiting: deque[tuple[int, NDArray[np.uint64], RecordRows]] = deque()
        self.rows = 0

    @property
    def is_crowded(self) -> bool:
        """Return whether so many rows wait to be recorded that no more should be given up."""
        return self.rows >= MAX_UNRECORDED_ROWS

    def note(self, cursor: Cursor, batch: Batch, rows: NDArray[np.int64], record: RecordRows, now: int) -> None:
        """Record rows that were settled or moved just now, when a crash cannot undo that any more.

        Args:
            cursor: whose they were; if it is not durable, they do not survive a crash anyway.
            batch: where they are.
            rows: which ones.
            record: records rows of a batch, at a time in ms.
            now: the time in ms.
        """
        if not cursor.durable:
            record(batch, rows, now)
            return
        self._waiting.append((self._log.position, batch.ids[rows], record))
        self.rows += len(rows)

    def proceed(self, now: int) -> None:
        """Record what is safe by now: the store has written something."""
        safe = 2**62 if self._log.position <= self._log.safe else self._log.safe
        while self._waiting and self._waiting[0][0] <= safe:
            _, ids, record = self._waiting.popleft()
            self.rows -= len(ids)
            record(ids_alone(ids), np.arange(len(ids)), now)
