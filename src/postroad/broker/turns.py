"""What is left of batches that were too much work for one turn of the loop.

A match stops when it has used up its budget (`SubscriptionIndex.match`). The remaining rows wait here, copied out of
their read, until the driver calls the broker again, after all other connections had a turn. Later batches of the same
source wait after them, so the order of a publisher's messages is kept; sources take turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.queues import copied_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.sessions import Session
    from postroad.messages import Batch

__all__ = ["MAX_UNFINISHED_BYTES", "MAX_WRITTEN_BYTES", "Turns", "Work"]

# What arrived over links and waits for its turn. Sessions are paused when something of theirs waits, so they leave one
# read each; links are always read. Beyond this limit the work is done at once, and all others wait as long as it takes.
MAX_UNFINISHED_BYTES = 64 * 1024 * 1024

# What one turn writes to one session at most, up to one delivery more; the rest goes through its queues. Otherwise a
# session with thousands of subscriptions that all want one large message would be written gigabytes at once. A few
# times what a connection's own buffer takes before it is full.
MAX_WRITTEN_BYTES = 4 * 1024 * 1024


class Work(NamedTuple):
    """Rows to match and to pass on.

    Attributes:
        batch: the rows.
        source: the session that published them; None for rows from a link.
        link: the neighbour they came from; 0 for what a session published.
        consignment: the one they arrived in, under custody; it is held once for this while it waits.
        doubtful: which rows may have been delivered before; None for none.
        late: which rows come after later ones of their publisher; None for none.
    """

    batch: Batch
    source: Session | None
    link: int = 0
    consignment: Consignment | None = None
    doubtful: NDArray[np.bool_] | None = None
    late: NDArray[np.bool_] | None = None

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
    """Unfinished work by source, and the sessions that are owed what waits in their queues."""

    def __init__(self) -> None:
        self._sources: dict[int, deque[Work]] = {}
        self._owed: dict[int, Session] = {}
        self.bytes = 0
        self.messages = 0

    def __bool__(self) -> bool:
        return bool(self._sources or self._owed)

    def has(self, origin: int) -> bool:
        """Return whether work of this source waits, so that its next batch has to wait too."""
        return origin in self._sources

    def push(self, work: Work, done: int, *, first: bool = False) -> None:
        """Let rows from `done` on wait; with `first`, before all others of their source."""
        left = work.part(done, len(work.batch))
        batch = copied_out(left.batch, np.arange(len(left.batch)))
        if work.consignment is not None and not first:
            work.consignment.hold()
        waiting = self._sources.setdefault(work.origin, deque())
        (waiting.appendleft if first else waiting.append)(left._replace(batch=batch))
        self.bytes += batch.buffer.nbytes
        self.messages += len(batch)

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
