"""Consignments: what a neighbour has entrusted to this broker, and how much of it is still open.

Under *custody* a broker settles a frame of a link only when all of its rows are handled. A frame is open as long as

- a part of it is under way over another link, or waits for a route (`hold`, `release`);
- a row of it waits in the queue of a local subscription (`queued`, `unqueued`), but not longer than `QUEUE_WAIT_MS`.

The second has a bound because some subscribers do not read. One row in such a queue would keep its frame open, and the
frames it arrived in at every broker on the way, until their links are full. A row that waits longer is only in this
broker's memory, like everything in its queues.

Only frames are counted, never messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QUEUE_WAIT_MS", "Consignment", "ConsignmentStatistics", "Consignments"]

# A subscriber that has not read for a second is slow; the others read within milliseconds.
QUEUE_WAIT_MS = 1_000


class Consignment:
    """One frame that arrived over a link.

    Attributes:
        link: the neighbour that sent it.
        epoch: the neighbour's process.
        number: of the frame.
        settled: this broker has handled it.
    """

    __slots__ = ("_book", "_holds", "_overdue", "_queued", "epoch", "link", "number", "settled")

    def __init__(self, book: Consignments | _Joint, link: int, epoch: int, number: int) -> None:
        self._book = book
        self.link = link
        self.epoch = epoch
        self.number = number
        self.settled = False
        self._holds = 1
        self._queued = 0
        self._overdue = False

    def hold(self, times: int = 1) -> None:
        """Add parts that are under way."""
        self._holds += times

    def release(self) -> None:
        """Mark one part as handled."""
        self._holds -= 1
        self._look()

    def queued(self, now: int) -> None:
        """Note that rows of it wait for one more subscription."""
        if not self._queued and not self._overdue:
            self._book.watch(self, now + QUEUE_WAIT_MS)
        self._queued += 1

    def unqueued(self) -> None:
        """Note that a subscription has got its rows, or never will."""
        self._queued -= 1
        self._look()

    def overdue(self) -> None:
        """Stop waiting for queues."""
        self._overdue = True
        self._look()

    def _look(self) -> None:
        if not self._holds and (self._overdue or not self._queued) and not self.settled:
            self.settled = True
            self._book.done(self)


class _Joint:
    """Stands in for the book: one consignment that represents several."""

    def __init__(self, book: Consignments, members: Sequence[Consignment]) -> None:
        self.watch = book.watch
        self._members = members

    def done(self, consignment: Consignment) -> None:
        for member in self._members:
            member.release()


class ConsignmentStatistics(NamedTuple):
    """Frames taken over since the start, those that waited too long in queues, and those open now."""

    taken: int
    overdue: int
    open_now: int


class Consignments:
    """The book of all consignments of one broker."""

    def __init__(self) -> None:
        self._watched: deque[tuple[int, Consignment]] = deque()
        self._settled: list[Consignment] = []
        self._taken = self._overdue = self._open = 0

    def take(self, link: int, epoch: int, number: int) -> Consignment:
        """Take a frame; it is open until its first hold and all others are released."""
        self._taken += 1
        self._open += 1
        return Consignment(self, link, epoch, number)

    def watch(self, consignment: Consignment, until: int) -> None:
        """Note until when rows of it may wait in a queue."""
        self._watched.append((until, consignment))

    def done(self, consignment: Consignment) -> None:
        """Note that it is settled."""
        self._open -= 1
        self._settled.append(consignment)

    def tick(self, now: int) -> None:
        """Stop waiting for queues whose time is up."""
        while self._watched and self._watched[0][0] <= now:
            _, consignment = self._watched.popleft()
            self._overdue += not consignment.settled
            consignment.overdue()

    def joined(self, members: Sequence[Consignment]) -> Consignment:
        """Return one that represents several whose rows wait together; it holds each until it is settled."""
        return Consignment(_Joint(self, members), 0, 0, 0)

    def take_settled(self) -> list[Consignment]:
        """Return those settled since the last call, so that the driver can tell their neighbours."""
        taken, self._settled = self._settled, []
        return taken

    def statistics(self) -> ConsignmentStatistics:
        """Counts."""
        return ConsignmentStatistics(self._taken, self._overdue, self._open)
