"""Messages that return to a queue: counted, delivered again, and in the end given up to a dead-letter queue.

A message returns when its consumer refuses it or is gone. The last time, one record of the store moves it to the
dead-letter queue, so that a crash leaves it in one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.id_batches import ids_alone, words_of
from postroad.errors import PostroadError
from postroad.messages.headers import escape
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.named_queues import NamedQueue
    from postroad.broker.redeliveries import Redeliveries
    from postroad.messages import Batch
    from postroad.store import Cursor

__all__ = ["QueueReturns", "given_up_because"]


class QueueReturns:
    """Messages that return to the queues of a broker.

    Args:
        core: the broker.
        deliveries: delivers rows to subscriptions.
        redeliveries: counts them, and lets them wait.
        make: returns the dead-letter queue of a name, and makes it if there is none.

    Attributes:
        dead_lettered: how many messages went to a dead-letter queue, or were dropped for lack of one.
        undeliverable: why the last dead-letter queue that was needed could not be made; empty if all could.
    """

    def __init__(
        self,
        core: Broker,
        deliveries: Deliveries,
        redeliveries: Redeliveries,
        make: Callable[[str, int], NamedQueue],
    ) -> None:
        assert deliveries.stored is not None
        self._core = core
        self._deliveries = deliveries
        self._stored = deliveries.stored
        self._log = self._stored.log
        self._redeliveries = redeliveries
        self._settings = redeliveries.settings
        self._make = make
        self.dead_lettered = 0
        self.undeliverable = ""

    def is_dead_letter(self, name: str) -> bool:
        """Return whether a name is that of a dead-letter queue."""
        prefix = self._settings.dead_letter
        return bool(prefix) and name.startswith(prefix)

    def settled(self, queue: NamedQueue, places: Sequence[int]) -> None:
        """Note that rows were acknowledged."""
        self._log.settle(queue.cursor, np.array(places))
        if queue.groups is not None:
            queue.groups.settled(places)

    def came_back(
        self, queue: NamedQueue, rows: Mapping[int, int], now: int, refused: bool, for_good: bool = False
    ) -> None:
        """Take messages that were refused, or whose consumer is gone.

        Args:
            queue: their queue.
            rows: their ids, as 128-bit integers, with their places.
            now: the time in ms.
            refused: their consumer has refused them, and is connected.
            for_good: nobody is to get them again.
        """
        places = np.array(list(rows.values()), np.int64)
        late, exhausted = self._redeliveries.came_back(queue.cursor, places, now, refused, for_good)
        queue.consumers.came_back(places)
        gone = set(exhausted.tolist())
        if queue.groups is not None:
            queue.groups.settled(gone)
            queue.groups.came_back(places[~np.isin(places, exhausted)], late)
        self.note_return({each: place for each, place in rows.items() if place not in gone}, now)
        if gone:
            reason = given_up_because(self._settings.max_deliveries, refused, for_good)
            self._give_up(queue, {each: place for each, place in rows.items() if place in gone}, reason, now)
        queue.idle = False

    def note_return(self, rows: Mapping[int, int], now: int) -> None:
        """Record that messages are delivered again: their ids, as 128-bit integers, with their places."""
        if rows:
            self._core.recorder.dropped(ids_alone(words_of(rows)), np.arange(len(rows)), 0, Detour.COMES_AGAIN, now)

    def note_way_back(self, rows: Mapping[int, int], broker: int, now: int) -> None:
        """Record that messages sent to another broker may never have arrived there, and are here again."""
        self._core.recorder.dropped(ids_alone(words_of(rows)), np.arange(len(rows)), broker, Detour.RETURNED, now)

    def _give_up(self, queue: NamedQueue, rows: Mapping[int, int], reason: str, now: int) -> None:
        """Move messages that returned too often to the dead-letter queue, or drop them."""
        if self.is_dead_letter(queue.name):
            # There is no queue after this one: they stay.
            self._keep(queue.cursor, rows, now)
            return
        note = f"dead-letter-queue:{escape(queue.name)}\ndead-letter-reason:{reason}\n".encode()
        if self.give_up(queue.cursor, queue.name, rows, reason, note, now):
            queue.dead_lettered += len(rows)

    def give_up(self, cursor: Cursor, name: str, rows: Mapping[int, int], reason: str, note: bytes, now: int) -> bool:
        """Move messages of a cursor that returned too often to the dead-letter queue of a name, or drop them.

        If that cannot be done now, they wait for the longest time, and come back once more.

        Args:
            cursor: whose they are; they are in flight.
            name: of the queue.
            rows: their ids, as 128-bit integers, with their places.
            reason: why, for the record.
            note: header lines that give the reason to those who get them from there.
            now: the time in ms.

        Returns:
            whether they were given up.
        """
        places = np.array(list(rows.values()), np.int64)
        recorder, given_up = self._core.recorder, self._stored.given_up
        if given_up.is_crowded:
            # The disk is behind.
            self._keep(cursor, rows, now)
            return False
        ids_only = ids_alone(words_of(rows))
        every = np.arange(len(places))
        self.dead_lettered += len(places)

        def dropped(batch: Batch, rows: NDArray[np.int64], at: int) -> None:
            recorder.shed(batch, rows, cursor.number, f"given up: {reason}", at)

        if not self._settings.dead_letter:
            self._log.settle(cursor, places)
            given_up.note(cursor, ids_only, every, dropped, now)
            return True
        try:
            target = self._make(self._settings.dead_letter + name, now)
        except PostroadError as error:
            self.undeliverable = str(error)
            self.dead_lettered -= len(places)
            self._keep(cursor, rows, now)
            return False
        self.undeliverable = ""
        self._log.transfer(cursor, places, target.cursor, note)

        def moved(batch: Batch, rows: NDArray[np.int64], at: int) -> None:
            recorder.shed(batch, rows, cursor.number, f"dead-lettered to {target.name}: {reason}", at)
            recorder.queued(batch, rows, target.cursor.number, at)

        given_up.note(cursor, ids_only, every, moved, now)
        target.holder.waiting.stored = self._log.unread(target.cursor)
        target.consumers.came_back(places)
        target.idle = False
        self._stored.block(target.holder)
        if self._stored.is_over(target.holder):
            # No publisher can be paused for dead letters: keep the latest.
            self._deliveries.overflowed.add(target.holder)
            self._stored.shed_oldest(target.holder)
        return True

    def _keep(self, cursor: Cursor, rows: Mapping[int, int], now: int) -> None:
        """Let messages that returned too often and cannot be given up now come back once more, after a while."""
        self._redeliveries.again(cursor, np.array(list(rows.values()), np.int64), now)
        self.note_return(rows, now)


def given_up_because(deliveries: int, refused: bool, for_good: bool) -> str:
    """Return why a message is not delivered again, in words."""
    if for_good:
        return "refused for good (requeue:false)"
    return f"{'refused' if refused else 'not acknowledged by a consumer that is gone'}, delivery {deliveries}"
