"""Messages of queues that expire while nobody consumes them: a periodic sweep finds them, a bounded part at a time.

For each record of the store the queue knows when its first message in it expires; nothing is read before that. Records
of an earlier process are looked through once, little by little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages.columns import EXPIRY
from postroad.store import ROW_BITS, Runs, intersect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.deliveries import Deliveries
    from postroad.broker.named_queues import NamedQueue
    from postroad.store import Log, Taken

__all__ = ["SWEPT_ROWS", "Expiries"]

# Messages that one sweep looks at, in whole records, of all queues together: a few milliseconds.
SWEPT_ROWS = 5_000


class Expiries:
    """When the messages of one queue expire.

    Args:
        log: the store.
        queue: the queue.

    Attributes:
        unseen_from: rows from this place on, and below `unseen_below`, are from an earlier process and not yet
            examined.
    """

    def __init__(self, log: Log, queue: NamedQueue) -> None:
        self._log = log
        self._queue = queue
        # By the number of the record: when the first of its rows expires, in ms.
        self._first: dict[int, int] = {}
        self.unseen_from = 0
        self.unseen_below = log.boundary() if queue.cursor.waiting.count else 0

    def stored(self, record: int, expiry: NDArray[np.int64]) -> None:
        """Note rows that are stored in a record; some of them may expire."""
        times = expiry[expiry != 0]
        if len(times):
            self._first[record] = min(int(times.min()), self._first.get(record, 2**62))

    def sweep(self, deliveries: Deliveries, most: int, now: int) -> int:
        """Give up what has expired; return how many rows were examined."""
        seen = self._look_at_unseen(most)
        for record in [each for each, time in self._first.items() if time <= now]:
            if seen >= most:
                break
            seen += self._look_at(record, deliveries, now)
        return seen

    def _look_at_unseen(self, most: int) -> int:
        seen = 0
        if self.unseen_from < self.unseen_below:
            span = Runs(np.array([self.unseen_from]), np.array([self.unseen_below]))
            among = intersect(self._queue.cursor.waiting.runs, span)
            if not len(among.starts):
                self.unseen_from = self.unseen_below
            for taken in self._log.peek(self._queue.cursor, among, most):
                self._note(taken)
                self.unseen_from = int(taken.places[-1]) + 1
                seen += len(taken.places)
        return seen

    def _note(self, taken: Taken) -> None:
        self.stored(int(taken.places[0]) >> ROW_BITS, taken.batch.envelopes[taken.rows, EXPIRY])

    def _look_at(self, record: int, deliveries: Deliveries, now: int) -> int:
        """Give up what has expired in one record."""
        cursor = self._queue.cursor
        span = Runs(np.array([record << ROW_BITS]), np.array([(record + 1) << ROW_BITS]))
        among = intersect(cursor.waiting.runs, span)
        if not len(among.starts):
            # Rows in flight are examined when they are delivered again.
            del self._first[record]
            return 0
        shown = self._log.peek(cursor, among, among.size)
        if not shown:
            # The record is being read, or is not safe yet.
            return 1
        del self._first[record]
        seen = 0
        for taken in shown:
            expiry = taken.batch.envelopes[taken.rows, EXPIRY]
            late = (expiry != 0) & (expiry <= now)
            if late.any():
                self._log.take(cursor, taken.places[late])
                deliveries.unexpired(self._queue.holder, taken.batch, taken.rows[late], now)
                self._log.settle(cursor, taken.places[late])
            self.stored(record, expiry[~late])
            seen += len(late)
        self._queue.holder.waiting.stored = self._log.unread(cursor)
        return seen
