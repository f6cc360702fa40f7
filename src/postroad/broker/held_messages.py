"""Messages that wait for a route to a broker that cannot be reached, bounded by time, number and bytes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.queues import copied_out
from postroad.tracking.reasons import Detour, Loss

if TYPE_CHECKING:
    from postroad.broker.consignments import Consignment
    from postroad.broker.core import Broker
    from postroad.messages import Batch
    from postroad.routing import Destinations, Parcel

__all__ = ["HELD_MS", "MAX_HELD", "MAX_HELD_BYTES", "HeldMessages", "HeldRows"]

# How long messages wait for a route to a broker that cannot be reached: a few heart-beats and new routes.
HELD_MS = 10_000
# Messages that wait for a route at once; beyond this the oldest are given up and counted. As many bytes as one link may
# hold, because all that waited for a dead neighbour may have to wait for a new route. Only a tenth of the messages that
# a link may hold, because each takes some 150 bytes besides its own.
MAX_HELD = 100_000
MAX_HELD_BYTES = 64 * 1024 * 1024


class HeldRows(NamedTuple):
    """Rows that wait together.

    Attributes:
        batch: the rows, in a buffer of their own.
        destinations: of each row.
        until: when they are given up, in ms.
        consignment: the one they arrived in, under custody; it is held while they wait.
        wait: the number of this wait, below 0. A message can wait more than once at a time, as when a link gives it
            back while it waits for another broker: the record tells the ends of these waits apart.
    """

    batch: Batch
    destinations: Destinations
    until: int
    consignment: Consignment | None
    wait: int


class HeldMessages:
    """The rows of one broker that wait for a route, oldest first.

    Args:
        core: the broker, whose recorder learns what is given up.

    Attributes:
        messages: how many wait.
        bytes: what they take.
        unreachable: how many were given up.
    """

    def __init__(self, core: Broker) -> None:
        self._core = core
        self._rows: deque[HeldRows] = deque()
        self.messages = self.bytes = self.unreachable = 0
        self._waits = 0

    def add(
        self, batch: Batch, parcel: Parcel, until: int, consignment: Consignment | None, now: int, wait: int = 0
    ) -> None:
        """Let the rows of a parcel wait; beyond the limits the oldest are given up.

        Without the number of an earlier `wait` one begins, which is recorded.
        """
        if not wait:
            wait = self._waits = self._waits - 1
            self._core.recorder.dropped(batch, parcel.rows, wait, Detour.HELD, now)
        # A copy: a waiting row must not keep the whole read alive that it arrived in.
        kept = copied_out(batch, parcel.rows)
        self._rows.append(HeldRows(kept, parcel.destinations, until, consignment, wait))
        self.messages += len(kept)
        self.bytes += kept.buffer.nbytes
        if consignment is not None:
            consignment.hold()
        while self.messages > MAX_HELD or self.bytes > MAX_HELD_BYTES:
            self._give_up_oldest(now)

    def take_all(self) -> deque[HeldRows]:
        """Return all rows that wait, because routes have changed; the caller releases their consignments."""
        taken, self._rows = self._rows, deque()
        self.messages = self.bytes = 0
        return taken

    def expire(self, now: int) -> None:
        """Give up rows that have waited too long."""
        while self._rows and self._rows[0].until <= now:
            self._give_up_oldest(now)

    def _give_up_oldest(self, now: int) -> None:
        gone = self._rows.popleft()
        self.messages -= len(gone.batch)
        self.bytes -= gone.batch.buffer.nbytes
        self.unreachable += len(gone.batch)
        rows = np.arange(len(gone.batch), dtype=np.int64)
        self._core.recorder.dropped(gone.batch, rows, 0, Loss.UNREACHABLE, now)
        if gone.consignment is not None:
            gone.consignment.release()
