"""`IdGenerator`: gives each message of one publisher an id of its own."""

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
    """Fill rows with one head and rising tails."""
    for row in range(np.uint64(len(ids))):
        ids[row, 0], ids[row, 1] = head, first + row


class IdStatistics(NamedTuple):
    """What a generator has seen: how far it ran ahead of its clock, and how often the clock went back."""

    issued: int
    last_time_ms: int
    lead_ms: int
    largest_lead_ms: int
    steps_back: int
    largest_step_back_ms: int


class IdGenerator:
    """Gives each message of one publisher at one broker an id of its own, in rising order.

    Time and counter are read as one 64-bit number, and the next id is the larger of "this millisecond, counter 0" and
    "the last id plus one". From this follow the three rules: within a millisecond the counter rises; when all 65,536
    counters of a millisecond are used, the id's time runs ahead of the clock; when the clock steps back, the id's time
    stays where it was and the counter goes on. `lead_ms` shows how far ahead the ids are.
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
        """The next id, at `now` in Unix milliseconds."""
        tail = self._advance(now, 1)
        return MessageId(self.publisher, self.broker, tail >> COUNTER_BITS, tail & COUNTER_MASK)

    def take(self, now: int, count: int) -> Ids:
        """The next `count` ids as rows of `Batch.ids`: the same as `count` calls of `next(now)`."""
        if count < 0:
            raise MessageError(f"cannot take {count} ids; ask for 0 or more")
        ids = np.empty((count, 2), dtype=np.uint64)
        if count:
            self.give(ids, now)
        return ids

    def give(self, ids: Ids, now: int) -> tuple[int, int]:
        """Write the next ids into all rows, of which there are some; head and tail of the first. They are a run."""
        head, first = self._head, self._advance(now, len(ids))
        put_ids(ids, head, first)
        return head, first

    def observe(self, last: MessageId) -> None:
        """Never give out `last` or an id before it: what a restart has read from its record of the past."""
        if last.head != self._head:
            raise MessageError(
                f"id {last} belongs to publisher {last.publisher} at broker {last.broker}; "
                f"this generator is for publisher {self.publisher} at broker {self.broker}"
            )
        self._last = max(self._last, last.tail)

    @property
    def lead_ms(self) -> int:
        """How many milliseconds the last id is ahead of the clock that was passed in with it."""
        return max(0, (self._last >> COUNTER_BITS) - self._clock) if self._issued else 0

    def statistics(self) -> IdStatistics:
        """What happened so far."""
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
