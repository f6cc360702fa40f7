"""What is left of batches that were too much work for one turn of the loop.

A match stops when it has used up its budget (`SubscriptionIndex.match`), and rows that matched are not given to more
sessions when they have taken enough together. The remaining rows wait here, copied out of their read, until the driver
calls the broker again, after all other connections had a turn. Later batches of the same source wait after them, so the
order of a publisher's messages is kept; sources take turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.queues import copied_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.sessions import Session, Subscription
    from postroad.messages import Batch

__all__ = ["MAX_TURN_BYTES", "MAX_UNFINISHED_BYTES", "MAX_WRITTEN_BYTES", "Deferred", "Turns", "Work"]

# What arrived and waits for its turn. Sessions are paused when something of theirs waits, so they leave one read each,
# which may be one message of 16 MiB; links are always read. Beyond this limit turns follow each other at once, and all
# others wait as long as it takes.
MAX_UNFINISHED_BYTES = 64 * 1024 * 1024

# What one turn writes to one session at most, up to one delivery more; the rest goes through its queues. Otherwise a
# session with thousands of subscriptions that all want one large message would be written gigabytes at once. A few
# times what a connection's own buffer takes before it is full.
MAX_WRITTEN_BYTES = 4 * 1024 * 1024

# What one turn gives to all sessions together, up to one delivery more; the rest waits once for all of them. Otherwise
# one message of 16 MiB for a thousand sessions would be written a thousand times before any of them could be closed for
# what it does not read. Writing so much takes some 30 ms; a read of small messages is 256 KiB, for 128 sessions.
MAX_TURN_BYTES = 32 * 1024 * 1024


class Deferred(NamedTuple):
    """Rows that matched, and whom they still go to.

    Attributes:
        batch: where the rows are.
        groups: subscriptions, each with its rows.
    """

    batch: Batch
    groups: Sequence[tuple[Subscription, NDArray[np.int64]]]

    def rows(self) -> NDArray[np.int64]:
        """Return the rows that anybody still gets."""
        wanted = np.zeros(len(self.batch), np.bool_)
        wanted[np.concatenate([rows for _, rows in self.groups])] = True
        return np.flatnonzero(wanted)

    def copied_out(self) -> Deferred:
        """Return the same over a buffer that holds only what anybody still gets."""
        rows = self.rows()
        place = np.empty(len(self.batch), np.int64)
        place[rows] = np.arange(len(rows))
        return Deferred(copied_out(self.batch, rows), [(each, place[chosen]) for each, chosen in self.groups])


class Work(NamedTuple):
    """Rows to match and to pass on.

    Attributes:
        batch: the rows.
        source: the session that published them; None for rows from a link.
        link: the neighbour they came from; 0 for what a session published.
        consignment: the one they arrived in, under custody; it is held once for this while it waits.
        doubtful: which rows may have been delivered before; None for none.
        late: which rows come after later ones of their publisher; None for none.
        deferred: whom the rows still go to, if they have been matched; None if they have not.
    """

    batch: Batch
    source: Session | None
    link: int = 0
    consignment: Consignment | None = None
    doubtful: NDArray[np.bool_] | None = None
    late: NDArray[np.bool_] | None = None
    deferred: Deferred | None = None

    def part(self, first: int, last: int) -> Work:
        """Some of the rows, over the same buffer."""
        if first == 0 and last == len(self.batch):
            return self
        doubtful = None if self.doubtful is None else self.doubtful[first:last]
        late = None if self.late is None else self.late[first:last]
        return self._replace(batch=self.batch.take(np.arange(first, last)), doubtful=doubtful, late=late)

    @property
    def origin(self) -> int:
        """Return what identifies the source: the number of a session, or that of a link below zero."""
        return -self.link if self.source is None else self.source.number


class Turns:
    """Unfinished work by source, and the sessions that are owed what waits in their queues.

    Attributes:
        leaving: subscriptions of sessions that are gone, still in the index.
        abandoned: subscriptions that have ended with something in their queues, and why they have.
    """

    def __init__(self) -> None:
        self._sources: dict[int, deque[Work]] = {}
        self._owed: dict[int, Session] = {}
        self.leaving: deque[Subscription] = deque()
        self.abandoned: deque[tuple[Subscription, str]] = deque()
        self.bytes = 0
        self.messages = 0

    def __bool__(self) -> bool:
        return bool(self._sources or self._owed or self.leaving or self.abandoned)

    def has(self, origin: int) -> bool:
        """Return whether work of this source waits, so that its next batch has to wait too."""
        return origin in self._sources

    def push(self, work: Work, done: int, *, first: bool = False) -> None:
        """Let rows from `done` on wait; with `first`, before all others of their source."""
        left = work.part(done, len(work.batch))
        batch = copied_out(left.batch, np.arange(len(left.batch)))
        if work.consignment is not None and not first:
            work.consignment.hold()
        self._push(left._replace(batch=batch), first)

    def defer(self, work: Work, deferred: Deferred) -> None:
        """Let rows of a work that matched wait for those who get them later, before all others of their source."""
        if work.deferred is None:
            deferred = deferred.copied_out()
            if work.consignment is not None:
                work.consignment.hold()
        self._push(Work(deferred.batch, work.source, work.link, work.consignment, deferred=deferred), first=True)

    def _push(self, work: Work, first: bool) -> None:
        waiting = self._sources.setdefault(work.origin, deque())
        (waiting.appendleft if first else waiting.append)(work)
        self.bytes += work.batch.buffer.nbytes
        self.messages += len(work.batch)

    def pull(self) -> Work | None:
        """Return the next work, of the source whose turn it is; None if there is none."""
        if not self._sources:
            return None
        origin = next(iter(self._sources))
        # To the end of the line: a dictionary keeps insertion order.
        waiting = self._sources.pop(origin)
        work = waiting.popleft()
        if waiting:
            self._sources[origin] = waiting
        self.bytes -= work.batch.buffer.nbytes
        self.messages -= len(work.batch)
        return work

    def owe(self, session: Session) -> None:
        """Note that more matched for a session than one turn may write: later turns deliver the rest."""
        self._owed[session.number] = session

    def owe_first(self, sessions: Iterable[Session]) -> None:
        """Note that these sessions are owed something, and come before the others."""
        self._owed = {each.number: each for each in sessions} | self._owed

    def take_owed(self) -> list[Session]:
        """Return the sessions that are owed something."""
        owed, self._owed = self._owed, {}
        return list(owed.values())
