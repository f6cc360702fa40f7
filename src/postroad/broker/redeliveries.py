"""Rows of the store that return: they are counted, wait a while, and are given up after a number of tries.

A row returns when its consumer refuses it (NACK) or is gone before it has acknowledged it. The store keeps how often
that happened (`Log.retry`). While such a row waits for its time it is in flight for the store, so that nobody is
offered it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np

from postroad.store import MAX_TRIES, RowSet, runs_of
from postroad.tracking.reasons import LATE_MS, Detour

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.no_recorder import Recorder
    from postroad.messages import Batch
    from postroad.store import Cursor, Log

__all__ = ["QueueSettings", "Redeliveries", "record_stored_delivery"]

# Times are rounded up to this, so that rows that return one by one wait together.
QUANTUM_MS = 100

Count = Annotated[int, msgspec.Meta(ge=0)]


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How queues and durable subscriptions treat what comes back to them.

    Attributes:
        max_deliveries: a message that was delivered this often, and came back each time, is given up.
        redelivery_ms: how long a message waits that was refused for the first time; twice as long each further time.
            One whose consumer was lost goes to another one at once the first time.
        max_redelivery_ms: the longest such wait.
        dead_letter: what is given up goes to the queue of this name and its own queue's behind it, and keeps the
            reason; with an empty text it is dropped, and on record.
        prefetch: how many messages a consumer has at most that it has not acknowledged, unless it says so itself.
        when_home_is_down: what becomes of a message to a queue of another broker that cannot be reached: this broker
            keeps it until it can be (`keep`), or refuses it (`refuse`), and confirms it when the other has stored it.
    """

    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=MAX_TRIES)] = 5
    redelivery_ms: Count = 1_000
    max_redelivery_ms: Count = 60_000
    dead_letter: Annotated[str, msgspec.Meta(max_length=64)] = "DLQ."
    prefetch: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    when_home_is_down: Literal["keep", "refuse"] = "keep"


class Redeliveries:
    """Rows that returned and wait for their time, of all cursors.

    Args:
        settings: how long they wait, and how often they may return.
        log: the store.

    Attributes:
        count: how many rows returned so far.
    """

    def __init__(self, settings: QueueSettings, log: Log) -> None:
        self.settings = settings
        self._log = log
        # By the time when they are due, then by the cursor.
        self._waiting: dict[int, dict[int, RowSet]] = {}
        self.count = 0

    def came_back(
        self, cursor: Cursor, places: NDArray[np.int64], now: int, refused: bool, for_good: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Take rows that return; return those that wait for their time, and those that returned too often.

        The latter stay in flight: their owner settles or transfers them. All others wait again for any consumer. With
        `for_good` one try was too much.
        """
        self.count += len(places)
        self._log.retry(cursor, places)
        tries = cursor.tries_of(places)
        exhausted = tries >= (1 if for_good else self.settings.max_deliveries)
        late = []
        for number in np.unique(tries[~exhausted]).tolist():
            mine = places[~exhausted & (tries == number)]
            delay = self._delay(number if refused else number - 1)
            if delay:
                self._delay_until(cursor, mine, now + delay)
                late.append(mine)
            else:
                self._log.give_back(cursor, mine)
        return (np.concatenate(late) if late else places[:0]), places[exhausted]

    def again(self, cursor: Cursor, places: NDArray[np.int64], now: int) -> None:
        """Let rows that returned too often and have nowhere to go wait for the longest time."""
        self._delay_until(cursor, places, now + max(QUANTUM_MS, self.settings.max_redelivery_ms))

    def _delay(self, times: int) -> int:
        """Return how long a row waits that returned so often."""
        if times < 1:
            return 0
        return min(self.settings.redelivery_ms << (times - 1), self.settings.max_redelivery_ms)

    def _delay_until(self, cursor: Cursor, places: NDArray[np.int64], time: int) -> None:
        due = -(-time // QUANTUM_MS) * QUANTUM_MS
        self._waiting.setdefault(due, {}).setdefault(cursor.number, RowSet()).add(runs_of(np.sort(places)))

    def due(self) -> int | None:
        """Return when the next rows are due, in ms; None without any."""
        return min(self._waiting, default=None)

    def take_due(self, now: int) -> dict[int, NDArray[np.int64]]:
        """Return rows whose time has come, by the number of their cursor: they wait again for any consumer."""
        taken: dict[int, list[NDArray[np.int64]]] = {}
        # Nothing is due later than this, unless the clock was set back: then it is due now.
        latest = now + max(QUANTUM_MS, self.settings.max_redelivery_ms) + QUANTUM_MS
        for due in [each for each in self._waiting if not now < each <= latest]:
            for number, rows in self._waiting.pop(due).items():
                taken.setdefault(number, []).append(rows.runs.places())
        return {number: self._give_back(number, np.concatenate(parts)) for number, parts in taken.items()}

    def recall(self, cursor: Cursor) -> NDArray[np.int64]:
        """Let all rows of a cursor wait again at once; return which these are."""
        found = [np.empty(0, np.int64)]
        for due, cursors in list(self._waiting.items()):
            rows = cursors.pop(cursor.number, None)
            if rows is not None:
                found.append(rows.runs.places())
            if not cursors:
                del self._waiting[due]
        return self._give_back(cursor.number, np.concatenate(found))

    def _give_back(self, number: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        cursor = self._log.cursors.get(number)
        if cursor is None:
            return places[:0]
        if len(places):
            self._log.give_back(cursor, places)
        return places

    def waiting(self, cursor: Cursor) -> int:
        """Return how many rows of a cursor wait for their time."""
        return sum(rows[cursor.number].count for rows in self._waiting.values() if cursor.number in rows)


def record_stored_delivery(
    recorder: Recorder, batch: Batch, rows: NDArray[np.int64], again: NDArray[np.bool_] | None, stored: int, now: int
) -> None:
    """Record what is worth it about rows that a consumer, or a durable subscription, gets from the store.

    Args:
        recorder: keeps the record.
        batch: where they are.
        rows: which ones.
        again: which of them were delivered before, or may have been; None for none.
        stored: when they were stored, in ms.
        now: the time in ms.
    """
    if again is not None and again.any():
        recorder.dropped(batch, rows[again], 0, Detour.DELIVERED_AGAIN, now)
    if now - stored >= LATE_MS:
        recorder.dropped(batch, rows, 0, Detour.DELIVERED_LATE, now)
