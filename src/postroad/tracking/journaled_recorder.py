"""A recorder that first writes reports to a journal, so that a crash loses none of them.

Each call becomes one entry for a journal; after a crash the entries are replayed, in order, to a fresh recorder. What
the entries say is what the calls say, no more: ids, numbers, times.
"""

from __future__ import annotations

import inspect
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np

from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.topology.graph import LARGEST_COST
from postroad.tracking.contract import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import MessageId
    from postroad.messages.columns import Ids
    from postroad.tracking.chronicle import Chronicle
    from postroad.tracking.contract import Job, TrackingRecorder, TrackingStatistics
    from postroad.tracking.findings import Findings

__all__ = [
    "ENTRY_HEAD",
    "JournalEntryError",
    "JournalMark",
    "Journaled",
    "retell",
    "segment_begun",
    "segment_entry",
    "told_at",
    "turn_end",
    "turn_entry",
]

ENTRY_HEAD = np.dtype([("event", "<i4"), ("count", "<i4"), ("number", "<i8"), ("now", "<i8")])
_ID_BYTES = 16
# Brokers, publishers and subscriptions have numbers of 32 bits; no clock comes near this time.
LARGEST_NUMBER, LARGEST_TIME = 2**32 - 1, 2**62


class JournalEntryError(PostroadError):
    """An entry of a journal cannot be read."""


class JournalMark(IntEnum):
    """Entries that are about the journal itself: numbers that no event has."""

    TURN_ENDED = 16
    SEGMENT_BEGUN = 17


class _Form(NamedTuple):
    """How an event of `Recorder` is written down.

    An entry has the number of the event, the number that the call is about, its time, its ids, and its texts. What of
    these a call has is what its parameters are named: `batch` and `rows`, `ids`, or `head` and `tail`, are ids; `link`,
    `subscription` or `publisher` is the number; all others but `now` and `positive` are texts.

    Attributes:
        name: of the method.
        number: of the event.
        negative: of the event where `positive` is false; 0 without that parameter.
        places: parameter -> its place, in order.
        about: the place of the number; None for none.
        texts: the places of the texts.
    """

    name: str
    number: int
    negative: int
    places: dict[str, int]
    about: int | None
    texts: tuple[int, ...]

    @classmethod
    def of(cls, method: Callable[..., None]) -> _Form:
        parameters = list(inspect.signature(method).parameters)[1:]
        places = {parameter: place for place, parameter in enumerate(parameters)}
        about = next((places[name] for name in _NUMBERS if name in places), None)
        texts = tuple(place for name, place in places.items() if name not in _NO_TEXTS)
        number, negative = method.event  # type: ignore[attr-defined]
        return cls(method.__name__, number, negative, places, about, texts)

    def ids(self, said: tuple[Any, ...]) -> Ids | None:
        """The ids in the arguments of a call."""
        if "rows" in self.places:
            return cast("Ids", said[self.places["batch"]].ids[said[self.places["rows"]]])
        if "batch" in self.places:
            return cast("Ids", said[self.places["batch"]].ids)
        if "ids" in self.places:
            return cast("Ids", said[self.places["ids"]])
        if "head" in self.places:
            return np.array([[said[self.places["head"]], said[self.places["tail"]]]], np.uint64)
        return None

    def arguments(self, event: int, ids: Ids, number: int, now: int, texts: list[str]) -> list[Any]:
        """The arguments that an entry was made of."""
        given: dict[str, Any] = {**dict.fromkeys(_NUMBERS, number), "now": now, "positive": event == self.number}
        if "batch" in self.places:
            given |= {"batch": _only_ids(ids), "rows": np.arange(len(ids), dtype=np.int64)}
        if "ids" in self.places:
            if not len(ids):
                raise ValueError("it names no message")
            given["ids"] = ids
        if "head" in self.places:
            given |= {"head": int(ids[0, 0]), "tail": int(ids[0, 1])}
        names = list(self.places)
        given |= {names[place]: text for place, text in zip(self.texts, texts, strict=True)}
        if "cost" in given:
            given["cost"] = _cost(given["cost"])
        return [given[name] for name in names]


_NUMBERS = ("link", "subscription", "publisher")
_NO_TEXTS = frozenset({*_NUMBERS, "batch", "rows", "ids", "head", "tail", "positive", "now"})
_FORMS = tuple(_Form.of(method) for method in vars(Recorder).values() if hasattr(method, "event"))
_BY_EVENT = {number: form for form in _FORMS for number in (form.number, form.negative) if number}


class Journaled(Recorder):
    """Tells a recorder everything, after an entry of it went to the journal.

    Args:
        recorder: keeps the record.
        append: takes an entry; returns the journal's position after it.

    Attributes:
        position: the journal's position after the latest entry.
    """

    def __init__(self, recorder: TrackingRecorder, append: Callable[[bytes], int]) -> None:
        self.recorder = recorder
        self.position = 0
        self._append = append
        # What a sampled batch cost, a crash may lose.
        self.timed = recorder.timed
        for form in _FORMS:
            setattr(self, form.name, self._teller(form, getattr(recorder, form.name)))

    def _teller(self, form: _Form, tell: Callable[..., None]) -> Callable[..., None]:
        """Writes an event to the journal, then reports it."""
        positive = form.places.get("positive")

        def report(*said: Any) -> None:
            event = form.number if positive is None or said[positive] else form.negative
            number = 0 if form.about is None else said[form.about]
            self._write(event, number, said[-1], form.ids(said), [str(said[place]) for place in form.texts])
            tell(*said)

        return report

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
        """What is known about an id that is not stored yet."""
        return self.recorder.findings(identity, now)

    def statistics(self) -> TrackingStatistics:
        """What the recorder holds and did."""
        return self.recorder.statistics()

    def _write(self, event: int, number: int, now: int, ids: Ids | None, texts: list[str]) -> None:
        head = _head(event, 0 if ids is None else len(ids), number, now)
        body = b"" if ids is None else np.ascontiguousarray(ids, "<u8").tobytes()
        tail = msgspec.msgpack.encode(texts) if texts else b""
        self.position = self._append(head + body + tail)


def _head(event: int, count: int, number: int, now: int) -> bytes:
    return np.array([(event, count, number, now)], ENTRY_HEAD).tobytes()


def turn_entry(now: int) -> bytes:
    """The entry between two turns of the event loop: all that was reported before `now` is before it."""
    return _head(JournalMark.TURN_ENDED, 0, 0, now)


def turn_end(entry: bytes) -> int | None:
    """The time of an entry between two turns; None for any other."""
    return _time_of(entry, JournalMark.TURN_ENDED)


def segment_entry(last: bytes) -> bytes:
    """The entry that a segment begins with: those before it end with the given one. Empty if that has no time."""
    return b"" if len(last) < ENTRY_HEAD.itemsize else _head(JournalMark.SEGMENT_BEGUN, 0, 0, told_at(last))


def segment_begun(entry: bytes) -> int | None:
    """The time of the last entry before a segment, by the one it begins with; None for any other."""
    return _time_of(entry, JournalMark.SEGMENT_BEGUN)


def _time_of(entry: bytes, kind: JournalMark) -> int | None:
    if len(entry) != ENTRY_HEAD.itemsize:
        return None
    event, _, _, now = np.frombuffer(entry, ENTRY_HEAD, 1)[0].tolist()
    return int(now) if event == kind else None


def told_at(entry: bytes) -> int:
    """The time of an entry.

    Raises:
        JournalEntryError: it cannot be read.
    """
    if len(entry) < ENTRY_HEAD.itemsize:
        raise JournalEntryError(f"a journal entry has at least {ENTRY_HEAD.itemsize} bytes, this has {len(entry)}")
    return int(np.frombuffer(entry, ENTRY_HEAD, 1)["now"][0])


def retell(entry: bytes, recorder: TrackingRecorder) -> int:
    """Tell a recorder what an entry says; returns the time of the entry.

    Raises:
        JournalEntryError: it cannot be read.
    """
    told_at(entry)
    event, count, number, now = np.frombuffer(entry, ENTRY_HEAD, 1)[0].tolist()
    end = ENTRY_HEAD.itemsize + count * _ID_BYTES
    if count < 0 or end > len(entry):
        raise JournalEntryError(f"a journal entry names {count} ids in {len(entry)} bytes")
    if not (0 <= number <= LARGEST_NUMBER and 0 <= now <= LARGEST_TIME):
        raise JournalEntryError(f"a journal entry of number {number} at {now} ms, which nothing has")
    ids = np.frombuffer(entry, "<u8", 2 * count, ENTRY_HEAD.itemsize).reshape(count, 2).astype(np.uint64)
    if event in (JournalMark.TURN_ENDED, JournalMark.SEGMENT_BEGUN):
        return int(now)
    try:
        texts = msgspec.msgpack.decode(entry[end:], type=list[str]) if end < len(entry) else []
        form = _BY_EVENT[event]
        getattr(recorder, form.name)(*form.arguments(event, ids, number, now, texts))
    except (LookupError, ValueError, msgspec.DecodeError) as error:
        raise JournalEntryError(f"a journal entry of kind {event} cannot be read: {error}") from error
    return int(now)


def _cost(text: str) -> int:
    cost = int(text)
    if not 0 <= cost <= LARGEST_COST:
        raise ValueError(f"a link of cost {cost}")
    return cost


def _only_ids(ids: Ids) -> Batch:
    """A batch whose messages have nothing but ids, which is all that recorders read."""
    rows = len(ids)
    return Batch(np.zeros(0, np.uint8), np.zeros((rows, 10), np.int32), ids, np.zeros((rows, 5), np.int64))
