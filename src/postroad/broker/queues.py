"""The queue of one subscription: messages that wait because their subscriber does not read fast enough.

A queue holds segments: a batch and some of its rows. A waiting segment is copied out of its read, so that one row
does not keep a whole socket read alive.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.messages import Batch, decode_batch, encode_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment

__all__ = ["Load", "Segment", "WaitingQueue"]


class Segment(NamedTuple):
    """Some rows of a batch."""

    batch: Batch
    rows: NDArray[np.int64]


class Load:
    """What waits in several queues together.

    Args:
        part_of: the load that this one is a part of, if any.
    """

    __slots__ = ("bytes", "messages", "part_of")

    def __init__(self, part_of: Load | None = None) -> None:
        self.messages = 0
        self.bytes = 0
        self.part_of = part_of

    def add(self, messages: int, bytes_: int) -> None:
        """Add what waits more, or less."""
        self.messages += messages
        self.bytes += bytes_
        if self.part_of is not None:
            self.part_of.add(messages, bytes_)


def copied_out(batch: Batch, rows: NDArray[np.integer[Any]]) -> Batch:
    """Return a batch with only the given rows, over a buffer that holds nothing else."""
    chosen = batch.take(rows)
    encoded, lengths = encode_batch(chosen)
    return decode_batch(encoded, lengths, ids=chosen.ids, envelopes=chosen.envelopes)


class WaitingQueue:
    """First in, first out; bounded by the caller, who sheds from the front.

    Args:
        together: counts what waits here and in other queues.

    Attributes:
        messages: how many wait in memory.
        bytes: what they take.
        stored: how many wait in the store, after all that wait in memory.
    """

    def __init__(self, together: Load | None = None) -> None:
        self._together = together or Load()
        self.messages = 0
        self.bytes = 0
        self.stored = 0
        self._segments: deque[tuple[Batch, Consignment | None]] = deque()

    def __len__(self) -> int:
        return self.messages

    def push(self, batch: Batch, rows: NDArray[np.int64], consignment: Consignment | None = None, now: int = 0) -> None:
        """Append copies of some rows; their consignment is released when the last of them leaves."""
        waiting = copied_out(batch, rows)
        self._segments.append((waiting, consignment))
        if consignment is not None:
            consignment.queued(now)
        self._count(len(waiting), waiting.buffer.nbytes)

    def pull(self, most: int) -> list[Segment]:
        """Take up to `most` messages from the front, in order."""
        taken = []
        while most > 0 and self._segments:
            batch, consignment = self._segments.popleft()
            freed = batch.buffer.nbytes
            if len(batch) > most:
                every = np.arange(len(batch), dtype=np.int64)
                kept = copied_out(batch, every[most:])
                self._segments.appendleft((kept, consignment))
                freed -= kept.buffer.nbytes
                batch = batch.take(every[:most])
            elif consignment is not None:
                consignment.unqueued()
            most -= len(batch)
            self._count(-len(batch), -freed)
            taken.append(Segment(batch, np.arange(len(batch), dtype=np.int64)))
        return taken

    def _count(self, messages: int, bytes_: int) -> None:
        self.messages += messages
        self.bytes += bytes_
        self._together.add(messages, bytes_)

    def drop(self, most: int) -> list[Segment]:
        """Take up to `most` segments from the front."""
        return [part for _ in range(min(most, len(self._segments))) for part in self.pull(len(self._segments[0][0]))]

    def shed(self, messages: int, bytes_: int) -> list[Segment]:
        """Take from the front until the limits of messages and bytes are met; return what was shed."""
        shed = []
        while self.messages and (self.messages > messages or self.bytes > bytes_):
            excess = self.messages - messages
            # The bytes alone do not say how many messages to shed, so go by whole segments.
            shed += self.pull(excess if excess > 0 else len(self._segments[0][0]))
        return shed
