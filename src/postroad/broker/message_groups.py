"""Message groups of a queue: messages with the same `JMSXGroupID` go to one consumer at a time, in order.

Groups share `BUCKETS` buckets by the hash of their key. A bucket belongs to the consumer that has messages of it in
flight. While it has some, no other consumer gets more of them; when it has none, the next message may go to anyone. A
message that returned and waits for its time holds back all later ones of its bucket.

Rows that cannot be delivered now because of their bucket are set apart (`blocked`), so that a search for rows does not
meet them again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import kernel
from postroad.messages import attribute_texts
from postroad.store import RowSet, first_places, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.broker.consumers import Consumer
    from postroad.messages import Batch
    from postroad.store import Runs

    Rows = NDArray[np.int64]

__all__ = ["BUCKETS", "GROUP_ATTRIBUTE", "MessageGroups"]

# The name that JMS and ActiveMQ use.
GROUP_ATTRIBUTE = "JMSXGroupID"
# Enough for some hundred consumers to find work; ActiveMQ's default. A power of two.
BUCKETS = 1024


# FNV-1a, 64 bits: no result depends on it, only how evenly groups are spread.
@kernel("void(uint8[::1], int64[::1], boolean[::1], int64[::1])", allocates=False)
def _hash_into_buckets(data: NDArray[np.uint8], offsets: Rows, present: NDArray[np.bool_], buckets: Rows) -> None:
    """Compute the bucket of each text, -1 for rows without.

    `offsets` has one entry more than `present` and `buckets`, rises, and ends within `data`, as `attribute_texts` makes
    it. So every index below is in range.
    """
    for row in range(len(buckets)):
        if not present[row]:
            buckets[row] = -1
            continue
        value = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        buckets[row] = np.int64((value ^ value >> np.uint64(32)) & np.uint64(BUCKETS - 1))


class MessageGroups:
    """The groups of one queue."""

    def __init__(self) -> None:
        # By bucket: the number of the consumer that has messages in flight, and how many. Then the buckets of rows that
        # wait for their time, and these rows by bucket; the buckets of rows in flight; and rows set apart.
        self._owner = np.zeros(BUCKETS, np.int64)
        self._out = np.zeros(BUCKETS, np.int64)
        self._delayed: dict[int, int] = {}
        self._late: dict[int, RowSet] = {}
        self._buckets: dict[int, int] = {}
        self._blocked: dict[int, RowSet] = {}
        self.blocked = RowSet()

    @staticmethod
    def buckets(batch: Batch, rows: Rows) -> Rows | None:
        """Return the bucket of each row, -1 for those in no group; None if none is in a group."""
        texts = attribute_texts(batch.take(rows), GROUP_ATTRIBUTE)
        if not texts.present.any():
            return None
        found = np.empty(len(rows), np.int64)
        _hash_into_buckets(np.ascontiguousarray(texts.data), texts.offsets, texts.present, found)
        return found

    def waiting(self) -> list[int]:
        """Return the buckets with rows that were set apart."""
        return list(self._blocked)

    def rows_of(self, bucket: int) -> Runs:
        """Return the rows of a bucket that were set apart, up to the first that waits for its time."""
        runs, late = self._blocked[bucket].runs, self._late.get(bucket)
        return runs if late is None else first_places(runs, runs.size, late.first)

    def block(self, bucket: int, places: Rows) -> None:
        """Set rows of a bucket apart: they cannot be delivered now."""
        runs = runs_of(places)
        self._blocked.setdefault(bucket, RowSet()).add(runs)
        self.blocked.add(runs)

    def consumer_for(
        self, bucket: int, row: int, wants: Mapping[int, NDArray[np.bool_]], rooms: Mapping[int, int]
    ) -> int:
        """Return the number of the consumer that gets the next row of a bucket; 0 for none.

        Args:
            bucket: which one.
            row: the row.
            wants: which rows the selector of each consumer wants, by number, in the order of their turns.
            rooms: how much each of them takes.
        """
        owner = int(self._owner[bucket])
        if owner:
            return owner if rooms.get(owner) and wants[owner][row] else 0
        able = [number for number, room in rooms.items() if room and wants[number][row]]
        return max(able, key=rooms.__getitem__, default=0)

    def may_go(self, bucket: int, consumers: Sequence[Consumer]) -> bool:
        """Return whether rows of a bucket may go to one of the consumers now."""
        owner = int(self._owner[bucket])
        return not owner or any(each.number == owner for each in consumers)

    def able(self, bucket: int, rows: Runs, consumers: Sequence[Consumer]) -> list[Consumer]:
        """Return who may get the first of some rows of a bucket, as far as that is known without reading it."""
        if not len(rows.starts):
            return []
        owner, first = int(self._owner[bucket]), rows.starts[:1]
        return [
            each
            for each in consumers
            if owner in (0, each.number) and each.room and not each.profile.passed.runs.contains(first)[0]
        ]

    def is_free(self, bucket: int) -> bool:
        """Return whether nothing of a bucket must be delivered before a row that was not examined yet."""
        return bucket not in self._blocked

    def took(self, bucket: int, consumer: int, places: Rows) -> None:
        """Note that a consumer has rows of a bucket in flight."""
        self._owner[bucket] = consumer
        self._out[bucket] += len(places)
        self._buckets.update(dict.fromkeys(places.tolist(), bucket))
        self._unblock(bucket, places)

    def _unblock(self, bucket: int, places: Rows) -> None:
        rows = self._blocked.get(bucket)
        if rows is not None:
            runs = runs_of(places)
            rows.remove(runs)
            self.blocked.remove(runs)
            if not rows.count:
                del self._blocked[bucket]

    def settled(self, places: Iterable[int]) -> None:
        """Note that rows are no longer in flight: they are settled, or have left the queue."""
        for place in places:
            bucket = self._buckets.pop(place, -1)
            if bucket >= 0:
                self._out[bucket] -= 1
                if not self._out[bucket]:
                    self._owner[bucket] = 0

    def came_back(self, places: Rows, late: Rows) -> None:
        """Return rows to the queue; those that are `late` wait for their time, and hold back their bucket."""
        is_late = set(late.tolist())
        for place in places.tolist():
            bucket = self._buckets.get(place, -1)
            if bucket < 0:
                continue
            self.settled([place])
            if place in is_late:
                self._delayed[place] = bucket
                self._late.setdefault(bucket, RowSet()).add(runs_of([place]))
            # Before all others of its bucket, which are set apart as well from now on.
            self.block(bucket, np.array([place]))

    def due(self, places: Rows) -> None:
        """Note that returned rows wait no longer."""
        for place in places.tolist():
            bucket = self._delayed.pop(place, -1)
            if bucket >= 0:
                self._late[bucket].remove(runs_of([place]))
                if not self._late[bucket].count:
                    del self._late[bucket]

    def given_up(self, bucket: int, places: Rows) -> None:
        """Remove rows that were set apart and left the queue without being delivered."""
        self._unblock(bucket, places)

    def forget(self) -> None:
        """Examine all waiting rows again: rows were given up without being delivered."""
        self._blocked, self.blocked = {}, RowSet()
