"""Rows that came over links while the store was full: they wait in memory, and their frames with the neighbours.

Under custody a neighbour keeps a frame until this broker is done with it. So nothing is lost when this broker dies
meanwhile, and a neighbour that keeps as much as it may pauses the publishers whose messages go this way. That bounds
what waits here: it is a part of what neighbours keep.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.queues import copied_out
from postroad.store import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.sessions import Subscription
    from postroad.messages import Batch
    from postroad.store import Log

    Matches = Sequence[tuple[Subscription, NDArray[np.int64]]]

__all__ = ["BackloggedRows", "StoreBacklog"]


class BackloggedRows(NamedTuple):
    """Rows of one batch that are not stored.

    Attributes:
        batch: the rows, copied out of the read they came in.
        matches: the subscriptions that are to have them, with their rows.
        consignment: what they came in; it is held once for them.
    """

    batch: Batch
    matches: Matches
    consignment: Consignment


class StoreBacklog:
    """Rows that wait until the store has room, in the order in which they came.

    Attributes:
        messages: how many there are.
    """

    def __init__(self) -> None:
        self._waiting: deque[BackloggedRows] = deque()
        self.messages = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, batch: Batch, matches: Matches, consignment: Consignment) -> None:
        """Rows have to wait."""
        wanted = np.unique(np.concatenate([rows for _, rows in matches]))
        found = [(subscription, np.searchsorted(wanted, rows)) for subscription, rows in matches]
        consignment.hold()
        self._waiting.append(BackloggedRows(copied_out(batch, wanted), found, consignment))
        self.messages += len(wanted)

    def store(
        self, log: Log, now: int, has_ended: Callable[[Subscription], bool]
    ) -> Iterator[tuple[int, BackloggedRows, Matches]]:
        """Store what there is room for.

        Args:
            log: the store.
            now: the time in ms.
            has_ended: whether a subscription is over.

        Yields:
            the number that `Log.safe` reaches when the rows are safe, the rows, and those of subscriptions that have
            ended, which are not stored.
        """
        while self._waiting:
            first = self._waiting[0]
            gone = [each for each in first.matches if has_ended(each[0])]
            matches = [each for each in first.matches if not has_ended(each[0])]
            stored = [(each.cursor, rows) for each, rows in matches if each.cursor is not None]
            if stored and log.room.lack(stored_bytes(first.batch)):
                return
            position = log.append(first.batch, stored, now) if stored else 0
            self._waiting.popleft()
            self.messages -= len(first.batch)
            yield position, first._replace(matches=matches), gone
