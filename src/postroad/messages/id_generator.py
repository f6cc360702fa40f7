"""`IdGenerator`: gives each message of one publisher a unique id."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import kernel
from postroad.messages.errors import MessageError
from postroad.messages.identity import COUNTER_BITS, COUNTER_MASK, LARGEST_TAIL, LARGEST_TIME, MessageId, check_field

if TYPE_CHECKING:
    from postroad.messages.columns import Ids

__all__ = ["IdGenerator", "IdStatistics"]


@kernel("void(uint64[:, ::1], uint64, uint64)", allocates=False)
def put_ids(ids: Ids, head: int, first: int) -> None:
    """Fill rows with one head and consecutive tails."""
    for row in range(np.uint64(len(ids))):
        ids[row, 0], ids[row, 1] = head, first + row


class IdStatistics(NamedTuple):
    """How far a generator was ahead of its clock, and how often the clock went back."""

    issued: int
    last_time_ms: int
    lead_ms: int
    largest_lead_ms: int
    steps_back: int
    largest_step_back_ms: int


class IdGenerator:
    """Gives each message of one publisher at one broker a unique id, in ascending order.

    Time and counter together are one 64-bit number. The next id is the larger of "this millisecond, counter 0" and "the
    last id plus one". Three rules follow. Within a millisecond the counter rises. When all 65,536 counters of a
    millisecond are used, the time in ids runs ahead of the clock. When the clock steps back, the time in ids stays, and
    the counter rises. `lead_ms` is how far ahead the ids are.
    """

    __slots__ = (
        "_clock",
        "_head",
        "_issued",
        "_largest_lead",
        "_largest_step_back",
        "_last",
        "_steps_back",
        "broker",
        "publisher",
    )

    def __init__(self, publisher: int, broker: int, not_before: int = 0) -> None:
        """Start a generator whose ids carry no time before `not_before` (ms): the last one known before a restart."""
        first = MessageId(publisher, broker, not_before, 0)
        self.publisher = publisher
        self.broker = broker
        self._head = first.head
        self._last = first.tail - 1
        self._clock = 0
        self._issued = 0
        self._largest_lead = 0
        self._steps_back = 0
        self._largest_step_back = 0

    def next(self, now: int) -> MessageId:
        """Return the next id, at `now` in Unix milliseconds."""
        tail = self._advance(now, 1)
        return MessageId(self.publisher, self.broker, tail >> COUNTER_BITS, tail & COUNTER_MASK)

    def take(self, now: int, count: int) -> Ids:
        """Return the next `count` ids as rows of `Batch.ids`: the same as `count` calls of `next(now)`."""
        if count < 0:
            raise MessageError(f"cannot take {count} ids; ask for 0 or more")
        ids = np.empty((count, 2), dtype=np.uint64)
        if count:
            self.give(ids, now)
        return ids

    def give(self, ids: Ids, now: int) -> tuple[int, int]:
        """Write consecutive ids into all rows, at least one; return head and tail of the first."""
        head, first = self._head, self._advance(now, len(ids))
        put_ids(ids, head, first)
        return head, first

    @property
    def lead_ms(self) -> int:
        """How many milliseconds the last id is ahead of the time at which it was given."""
        return max(0, (self._last >> COUNTER_BITS) - self._clock) if self._issued else 0

    def statistics(self) -> IdStatistics:
        """Return the statistics so far."""
        return IdStatistics(
            issued=self._issued,
            last_time_ms=max(0, self._last >> COUNTER_BITS),
            lead_ms=self.lead_ms,
            largest_lead_ms=self._largest_lead,
            steps_back=self._steps_back,
            largest_step_back_ms=self._largest_step_back,
        )

    def _advance(self, now: int, count: int) -> int:
        """Reserve `count` numbers and return the first. Nothing changes when it raises."""
        if not 0 <= now <= LARGEST_TIME or isinstance(now, float):
            check_field("time", now, LARGEST_TIME)
        first = max(now << COUNTER_BITS, self._last + 1)
        last = first + count - 1
        if last > LARGEST_TAIL:
            raise MessageError(
                f"ids of publisher {self.publisher} at broker {self.broker} have reached the end of time"
            )
        if now < self._clock:
            self._steps_back += 1
            self._largest_step_back = max(self._largest_step_back, self._clock - now)
        self._clock = now
        self._last = last
        self._issued += count
        self._largest_lead = max(self._largest_lead, (last >> COUNTER_BITS) - now)
        return first
