"""A recorder that first writes down what it is told, so that a crash loses nothing of it.

Each call becomes one entry for a journal; after a crash the entries are told again, in order, to a fresh recorder. What
the entries say is what the calls say, no more: ids, numbers, times.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.topology.graph import LARGEST_COST

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import MessageId
    from postroad.messages.columns import Ids
    from postroad.tracking.chronicle import Chronicle
    from postroad.tracking.contract import Job, Rows, TrackingRecorder, TrackingStatistics
    from postroad.tracking.findings import Findings
    from postroad.tracking.segments import BatchCost

__all__ = [
    "JournalEntryError",
    "Journaled",
    "retell",
    "segment_begun",
    "segment_entry",
    "told_at",
    "turn_end",
    "turn_entry",
]

_HEAD = np.dtype([("event", "<i4"), ("count", "<i4"), ("number", "<i8"), ("now", "<i8")])
_ID_BYTES = 16
# Brokers, publishers and subscriptions have numbers of 32 bits; no clock comes near this time.
LARGEST_NUMBER, LARGEST_TIME = 2**32 - 1, 2**62


class JournalEntryError(PostroadError):
    """An entry of a journal that says nothing."""


class _Event(IntEnum):
    ACCEPTED = 1
    ARRIVED = 2
    RELAYED = 3
    QUEUED = 4
    DELIVERED = 5
    ACKNOWLEDGED = 6
    REFUSED = 7
    SHED = 8
    DROPPED = 9
    PUBLISHES = 10
    SUBSCRIBED = 11
    UNSUBSCRIBED = 12
    LINKED = 13
    UNLINKED = 14
    ALIASED = 15
    TURN_ENDED = 16
    SEGMENT_BEGUN = 17


class Journaled:
    """Tells a recorder everything, after an entry of it went to the journal.

    Args:
        recorder: keeps the record.
        append: takes an entry; answers the journal's position after it.

    Attributes:
        position: the journal's position after the latest entry.
    """

    def __init__(self, recorder: TrackingRecorder, append: Callable[[bytes], int]) -> None:
        self.recorder = recorder
        self.position = 0
        self._append = append

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here, and have their ids."""
        self._write(_Event.ACCEPTED, 0, now, batch.ids)
        self.recorder.accepted(batch, now)

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour."""
        self._write(_Event.ARRIVED, link, now, batch.ids)
        self.recorder.arrived(batch, link, now)

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were handed to the link to a neighbour."""
        self._write(_Event.RELAYED, link, now, batch.ids[rows])
        self.recorder.relayed(batch, rows, link, now)

    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows wait in a queue."""
        self._write(_Event.QUEUED, subscription, now, batch.ids[rows])
        self.recorder.queued(batch, rows, subscription, now)

    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows were handed to the socket of a subscription."""
        self._write(_Event.DELIVERED, subscription, now, batch.ids[rows])
        self.recorder.delivered(batch, rows, subscription, now)

    def acknowledged(self, head: int, tail: int, subscription: int, positive: bool, now: int) -> None:
        """A subscription acknowledged one message (or refused it)."""
        event = _Event.ACKNOWLEDGED if positive else _Event.REFUSED
        self._write(event, subscription, now, np.array([[head, tail]], np.uint64))
        self.recorder.acknowledged(head, tail, subscription, positive, now)

    def shed(self, batch: Batch, rows: Rows, subscription: int, reason: str, now: int) -> None:
        """The rows were dropped before they reached a subscription."""
        self._write(_Event.SHED, subscription, now, batch.ids[rows], reason)
        self.recorder.shed(batch, rows, subscription, reason, now)

    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        """The rows were dropped on their way to other brokers."""
        self._write(_Event.DROPPED, link, now, batch.ids[rows], reason)
        self.recorder.dropped(batch, rows, link, reason, now)

    def publishes(self, publisher: int, principal: str, now: int) -> None:
        """A session publishes under a new publisher number."""
        self._write(_Event.PUBLISHES, publisher, now, None, principal)
        self.recorder.publishes(publisher, principal, now)

    def subscribed(self, subscription: int, principal: str, topic: str, selector: str, now: int) -> None:
        """A subscription begins."""
        self._write(_Event.SUBSCRIBED, subscription, now, None, principal, topic, selector)
        self.recorder.subscribed(subscription, principal, topic, selector, now)

    def unsubscribed(self, subscription: int, now: int) -> None:
        """A subscription ends."""
        self._write(_Event.UNSUBSCRIBED, subscription, now)
        self.recorder.unsubscribed(subscription, now)

    def linked(self, link: int, cost: int, now: int) -> None:
        """A link to a neighbour works."""
        self._write(_Event.LINKED, link, now, None, str(cost))
        self.recorder.linked(link, cost, now)

    def unlinked(self, link: int, now: int) -> None:
        """A link to a neighbour is gone."""
        self._write(_Event.UNLINKED, link, now)
        self.recorder.unlinked(link, now)

    def aliased(self, alias: str, head: int, tail: int, now: int) -> None:
        """A message that entered here bears a foreign id."""
        self._write(_Event.ALIASED, 0, now, np.array([[head, tail]], np.uint64), alias)
        self.recorder.aliased(alias, head, tail, now)

    def timed(self, cost: BatchCost, now: int) -> None:
        """What a sampled batch cost; a crash may lose that."""
        self.recorder.timed(cost, now)

    @property
    def chronicle(self) -> Chronicle:
        """What the recorder keeps exactly."""
        return self.recorder.chronicle

    def due(self, now: int, force: bool = False) -> list[Job]:
        """What is ready to be stored."""
        return self.recorder.due(now, force)

    def release(self, number: int) -> None:
        """A job is stored."""
        self.recorder.release(number)

    def findings(self, identity: MessageId, now: int) -> Findings:
        """What is known of an id that is not stored yet."""
        return self.recorder.findings(identity, now)

    def statistics(self) -> TrackingStatistics:
        """What the recorder holds and did."""
        return self.recorder.statistics()

    def _write(self, event: _Event, number: int, now: int, ids: Ids | None = None, *texts: str) -> None:
        head = _head(event, 0 if ids is None else len(ids), number, now)
        body = b"" if ids is None else np.ascontiguousarray(ids, "<u8").tobytes()
        tail = msgspec.msgpack.encode(texts) if texts else b""
        self.position = self._append(head + body + tail)


def _head(event: _Event, count: int, number: int, now: int) -> bytes:
    return np.array([(event, count, number, now)], _HEAD).tobytes()


def turn_entry(now: int) -> bytes:
    """The entry between two turns of the event loop: all that was told before `now` stands before it."""
    return _head(_Event.TURN_ENDED, 0, 0, now)


def turn_end(entry: bytes) -> int | None:
    """The time of an entry between two turns; None for any other."""
    return _time_of(entry, _Event.TURN_ENDED)


def segment_entry(last: bytes) -> bytes:
    """The entry that a segment begins with: those before it end with the given one. Empty if that has no time."""
    return b"" if len(last) < _HEAD.itemsize else _head(_Event.SEGMENT_BEGUN, 0, 0, told_at(last))


def segment_begun(entry: bytes) -> int | None:
    """The time of the last entry before a segment, by the one it begins with; None for any other."""
    return _time_of(entry, _Event.SEGMENT_BEGUN)


def _time_of(entry: bytes, kind: _Event) -> int | None:
    if len(entry) != _HEAD.itemsize:
        return None
    event, _, _, now = np.frombuffer(entry, _HEAD, 1)[0].tolist()
    return int(now) if event == kind else None


def told_at(entry: bytes) -> int:
    """The time of an entry.

    Raises:
        JournalEntryError: it says nothing.
    """
    if len(entry) < _HEAD.itemsize:
        raise JournalEntryError(f"a journal entry has at least {_HEAD.itemsize} bytes, this has {len(entry)}")
    return int(np.frombuffer(entry, _HEAD, 1)["now"][0])


def retell(entry: bytes, recorder: TrackingRecorder) -> int:
    """Tell a recorder what an entry says; answers the time of the entry.

    Raises:
        JournalEntryError: it says nothing.
    """
    told_at(entry)
    event, count, number, now = np.frombuffer(entry, _HEAD, 1)[0].tolist()
    end = _HEAD.itemsize + count * _ID_BYTES
    if count < 0 or end > len(entry):
        raise JournalEntryError(f"a journal entry names {count} ids in {len(entry)} bytes")
    if not (0 <= number <= LARGEST_NUMBER and 0 <= now <= LARGEST_TIME):
        raise JournalEntryError(f"a journal entry of number {number} at {now} ms, which nothing has")
    ids = np.frombuffer(entry, "<u8", 2 * count, _HEAD.itemsize).reshape(count, 2).astype(np.uint64)
    try:
        texts = msgspec.msgpack.decode(entry[end:], type=list[str]) if end < len(entry) else []
        _retell(_Event(event), ids, number, now, texts, recorder)
    except (ValueError, IndexError, msgspec.DecodeError) as error:
        raise JournalEntryError(f"a journal entry of kind {event} cannot be read: {error}") from error
    return int(now)


def _retell(event: _Event, ids: Ids, number: int, now: int, texts: list[str], recorder: TrackingRecorder) -> None:
    if event in (_Event.TURN_ENDED, _Event.SEGMENT_BEGUN):
        return
    if event in (_Event.ACKNOWLEDGED, _Event.REFUSED):
        recorder.acknowledged(int(ids[0, 0]), int(ids[0, 1]), number, event is _Event.ACKNOWLEDGED, now)
    elif event is _Event.PUBLISHES:
        recorder.publishes(number, texts[0], now)
    elif event is _Event.SUBSCRIBED:
        recorder.subscribed(number, texts[0], texts[1], texts[2], now)
    elif event is _Event.UNSUBSCRIBED:
        recorder.unsubscribed(number, now)
    elif event is _Event.LINKED:
        cost = int(texts[0])
        if not 0 <= cost <= LARGEST_COST:
            raise ValueError(f"a link of cost {cost}")
        recorder.linked(number, cost, now)
    elif event is _Event.UNLINKED:
        recorder.unlinked(number, now)
    elif event is _Event.ALIASED:
        recorder.aliased(texts[0], int(ids[0, 0]), int(ids[0, 1]), now)
    else:
        _retell_batch(event, ids, number, now, texts, recorder)


def _retell_batch(event: _Event, ids: Ids, number: int, now: int, texts: list[str], recorder: TrackingRecorder) -> None:
    batch = _only_ids(ids)
    rows = np.arange(len(ids), dtype=np.int64)
    if event is _Event.ACCEPTED:
        recorder.accepted(batch, now)
    elif event is _Event.ARRIVED:
        recorder.arrived(batch, number, now)
    elif event is _Event.RELAYED:
        recorder.relayed(batch, rows, number, now)
    elif event is _Event.QUEUED:
        recorder.queued(batch, rows, number, now)
    elif event is _Event.DELIVERED:
        recorder.delivered(batch, rows, number, now)
    elif event is _Event.SHED:
        recorder.shed(batch, rows, number, texts[0], now)
    else:
        recorder.dropped(batch, rows, number, texts[0], now)


def _only_ids(ids: Ids) -> Batch:
    """A batch whose messages have nothing but ids, which is all that recorders read."""
    rows = len(ids)
    return Batch(np.zeros(0, np.uint8), np.zeros((rows, 10), np.int32), ids, np.zeros((rows, 5), np.int64))
