"""What every recorder keeps exactly: subscriptions and links with their times, drops, names, aliases, timings,
latencies.

These are few compared with the messages. A chronicle collects them in chapters: the open one takes what is reported; a
closed one belongs to a job, and can be queried until the job is released.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from postroad.messages.id_columns import id_fields
from postroad.tracking.answers import NamedSubscription
from postroad.tracking.findings import Drop, Gap
from postroad.tracking.latency import LatencySketch
from postroad.tracking.presence import Presence
from postroad.tracking.segments import (
    LEFT_OUT,
    Aliases,
    Latencies,
    LinkChanges,
    Names,
    Repeated,
    Shed,
    SubscriptionChanges,
    Timings,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.tracking.contract import Rows
    from postroad.tracking.segments import BatchCost, Segment

__all__ = ["Chapter", "Chronicle", "ChronicledRecorder"]

Line = TypeVar("Line", bound="tuple[object, ...]")

FORGOTTEN = "more subscriptions ended than the broker remembers until it has written them"
# Python's objects of one line, as a rough measure for the memory budget: a tuple, its numbers, the heads of its texts.
_LINE_BYTES = 200
# A text with one character beyond ASCII may take four bytes for each.
_CHARACTER_BYTES = 4
# Aliases that are not written yet. Senders choose how many there are and how long, and one client can send more than
# is written in the same time; the others are left out, so that the record of messages has room. Some 50,000 of full
# length, or 300,000 UUIDs.
MAX_ALIAS_BYTES = 64 << 20
# With so many a chapter is closed, so that honest senders stay well below the limit.
SEALED_ALIAS_BYTES = MAX_ALIAS_BYTES // 4
# Lines that are made into columns at once: one call of numpy or Arrow for all would hold up the loop for longer than a
# turn of it takes.
CONVERTED_LINES = 8_192
# The same for the characters of their texts.
CONVERTED_CHARACTERS = 1 << 20
# Rows of one chapter that were shed. A subscriber that goes away may leave tens of millions; made into rows of
# the trail they take ten times their memory (some 60 MB for a full chapter), so that this is done chapter by chapter.
SHED_CHAPTER_ROWS = 262_144


@dataclass(slots=True)
class Chapter:
    """What was reported between two seals. It does not change any more; `segments()` is heavy work for a thread."""

    since: int
    until: int = 0
    lines: int = 0
    text_bytes: int = 0
    alias_bytes: int = 0
    lacks_aliases: bool = False
    shed_ids: list[NDArray[np.uint64]] = field(default_factory=list)
    # For each entry of `shed_ids`: subscription, link, reason, when.
    shed_causes: list[tuple[int, int, str, int]] = field(default_factory=list)
    subscriptions: list[tuple[int, int, int, str, str, str]] = field(default_factory=list)
    links: list[tuple[int, int, int, int]] = field(default_factory=list)
    names: list[tuple[str, int, int, str]] = field(default_factory=list)
    aliases: list[tuple[str, int, int]] = field(default_factory=list)
    timings: list[tuple[int, BatchCost]] = field(default_factory=list)
    delays: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def drops(self, head: int, tail: int) -> list[Drop]:
        """Where a message went no further."""
        return [
            Drop(*cause)
            for ids, cause in zip(self.shed_ids, self.shed_causes, strict=True)
            if ((ids[:, 0] == np.uint64(head)) & (ids[:, 1] == np.uint64(tail))).any()
        ]

    def segments(self) -> list[Segment]:
        """The tables of the chapter; those without rows are left out."""
        found: list[Segment] = []
        if self.shed_ids:
            found.append(self._shed())
        for lines in _parts(self.subscriptions):
            number, at, begins, principal, topic, selector = zip(*lines, strict=True)
            found.append(
                SubscriptionChanges(
                    _longs(number), _longs(at), _ints(begins), list(principal), list(topic), list(selector)
                )
            )
        if self.links:
            neighbour, at, up, cost = zip(*self.links, strict=True)
            found.append(LinkChanges(_longs(neighbour), _longs(at), _ints(up), _ints(cost)))
        for names in _parts(self.names):
            kind, number, at, name = zip(*names, strict=True)
            found.append(Names(list(kind), _longs(number), _longs(at), list(name)))
        for aliases in _parts(self.aliases):
            alias, heads, tails = zip(*aliases, strict=True)
            ids = np.array([heads, tails], np.uint64).T
            found.append(Aliases(list(alias), *id_fields(ids)))
        if self.timings:
            at, costs = zip(*self.timings, strict=True)
            messages, subscriptions, copies, destinations, sizes, nanoseconds = zip(*costs, strict=True)
            counts = _ints(messages), _ints(subscriptions), _ints(copies), _ints(destinations)
            found.append(Timings(_longs(at), *counts, _longs(sizes), _longs(nanoseconds)))
        found.extend(self._latencies())
        return found

    def _shed(self) -> Shed:
        counts = np.array([len(ids) for ids in self.shed_ids], np.int64)
        subscription, link, reason, at = zip(*self.shed_causes, strict=True)
        origin, time, publisher, counter = id_fields(np.concatenate(self.shed_ids))
        columns = (np.repeat(_longs(column), counts) for column in (subscription, link, at))
        subscriptions, links, times = columns
        return Shed(origin, time, publisher, counter, subscriptions, links, Repeated(reason, counts), times)

    def _latencies(self) -> list[Segment]:
        buckets = np.flatnonzero(self.delays)
        if not len(buckets):
            return []
        since, until = np.full(len(buckets), self.since), np.full(len(buckets), self.until)
        return [Latencies(since, until, buckets.astype(np.int32), self.delays[buckets])]


def _parts(lines: list[Line]) -> Iterator[list[Line]]:
    """Cut lines into parts that are converted at once."""
    start = characters = 0
    for at, line in enumerate(lines):
        characters += sum(len(each) for each in line if type(each) is str)
        if at - start >= CONVERTED_LINES - 1 or characters >= CONVERTED_CHARACTERS:
            yield lines[start : at + 1]
            start, characters = at + 1, 0
    if start < len(lines):
        yield lines[start:]


def _text_bytes(*texts: str) -> int:
    """Return about what the characters of some texts take in memory."""
    return sum(len(text) if text.isascii() else _CHARACTER_BYTES * len(text) for text in texts)


def _longs(values: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _ints(values: tuple[int, ...]) -> NDArray[np.int32]:
    return np.minimum(np.array(values, np.int64), np.iinfo(np.int32).max).astype(np.int32)


class Chronicle:
    """The exact side of a recorder: its methods are those of `TrackingRecorder` that every recorder does alike."""

    def __init__(self, since: int) -> None:
        """Begin a chronicle at a time of the broker's clock."""
        self.subscriptions = Presence()
        self.neighbours = Presence()
        self._open = Chapter(since)
        # Chapters with as much that was shed as one may have, and nothing else.
        self._full: list[Chapter] = []
        self._closed: dict[int, Chapter] = {}
        self._sketch = LatencySketch()
        self._shed_bytes = 0
        self._open_shed_bytes = self._open_shed_rows = 0
        self._alias_bytes = 0
        self.aliases_left_out = 0

    def shed(self, batch: Batch, rows: Rows, subscription: int, reason: str, now: int) -> None:
        """Rows that never reached a subscription."""
        self._went_no_further(batch, rows, (subscription, 0, reason, now))

    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        """Rows that never reached other brokers."""
        self._went_no_further(batch, rows, (0, link, reason, now))

    def _went_no_further(self, batch: Batch, rows: Rows, cause: tuple[int, int, str, int]) -> None:
        if len(rows):
            # Subscriptions that lose the same batch share its ids.
            ids = batch.ids if len(rows) == len(batch.ids) else batch.ids[rows]
            self._open.shed_ids.append(ids)
            self._open.shed_causes.append(cause)
            self._open.lines += 1
            self._shed_bytes += 16 * len(rows)
            self._open_shed_bytes += 16 * len(rows)
            self._open_shed_rows += len(rows)
            if self._open_shed_rows >= SHED_CHAPTER_ROWS:
                self._fill()

    def _fill(self) -> None:
        chapter = self._open
        lines = len(chapter.shed_ids)
        full = Chapter(chapter.since, 0, lines, shed_ids=chapter.shed_ids, shed_causes=chapter.shed_causes)
        self._full.append(full)
        chapter.shed_ids, chapter.shed_causes = [], []
        chapter.lines -= lines
        self._open_shed_rows = 0

    def _add_line(self, *texts: str) -> None:
        self._open.lines += 1
        # Clients choose how long their texts are.
        self._open.text_bytes += _text_bytes(*texts)

    def publishes(self, publisher: int, principal: str, now: int) -> None:
        """A new publisher number."""
        self._open.names.append(("publisher", publisher, now, principal))
        self._add_line(principal)

    def subscribed(self, subscription: int, principal: str, topic: str, selector: str, now: int) -> None:
        """A subscription begins."""
        self.subscriptions.begin(subscription, now)
        self._open.subscriptions.append((subscription, now, 1, principal, topic, selector))
        self._add_line(principal, topic, selector)

    def unsubscribed(self, subscription: int, now: int) -> None:
        """A subscription ends."""
        self.subscriptions.end(subscription, now)
        self._open.subscriptions.append((subscription, now, 0, "", "", ""))
        self._open.lines += 1

    def linked(self, link: int, cost: int, now: int) -> None:
        """A link works."""
        self.neighbours.begin(link, now)
        self._open.links.append((link, now, 1, cost))
        self._open.lines += 1

    def unlinked(self, link: int, now: int) -> None:
        """A link is gone."""
        self.neighbours.end(link, now)
        self._open.links.append((link, now, 0, 0))
        self._open.lines += 1

    def aliased(self, alias: str, head: int, tail: int, now: int) -> None:
        """A foreign id; beyond `MAX_ALIAS_BYTES` it is left out, and the record says so."""
        chapter, size = self._open, _LINE_BYTES + _text_bytes(alias)
        if self._alias_bytes + size > MAX_ALIAS_BYTES:
            self.aliases_left_out += 1
            if chapter.lacks_aliases:
                return
            chapter.lacks_aliases, alias, size = True, LEFT_OUT, _LINE_BYTES
        chapter.aliases.append((alias, head, tail))
        chapter.alias_bytes += size
        self._alias_bytes += size
        self._add_line(alias)

    def timed(self, cost: BatchCost, now: int) -> None:
        """What a batch cost."""
        self._open.timings.append((now, cost))
        self._open.lines += 1

    def delayed(self, batch: Batch, rows: Rows, now: int) -> None:
        """Count the latencies of rows that were written to a socket."""
        if batch.run is not None and len(rows) == len(batch.ids):
            self._sketch.add_run(batch.run[1], len(rows), now)
        elif len(rows) == 1:
            self._sketch.add_run(batch.ids.item(rows.item(0), 1), 1, now)
        else:
            self._sketch.add(batch.ids, rows, now)

    @property
    def full(self) -> int:
        """How many chapters are full: each needs a job of its own before the open one is closed."""
        return len(self._full)

    def close_full(self, job: int, now: int) -> Chapter:
        """Give the first full chapter to a job."""
        chapter = self._full.pop(0)
        chapter.until = now
        self._closed[job] = chapter
        return chapter

    def close(self, job: int, now: int) -> Chapter:
        """Give the open chapter to a job, and begin the next."""
        chapter = self._open
        chapter.until = now
        chapter.delays = self._sketch.take()
        self._closed[job] = chapter
        self._open = Chapter(now)
        self._open_shed_bytes = self._open_shed_rows = 0
        return chapter

    def release(self, job: int) -> None:
        """Forget the chapter of a job."""
        chapter = self._closed.pop(job, None)
        if chapter is not None:
            self._shed_bytes -= sum(16 * len(ids) for ids in chapter.shed_ids)
            self._alias_bytes -= chapter.alias_bytes

    def forget(self, before: int) -> None:
        """Let go of stays that ended before a time, as no question about open histories reaches back so far."""
        self.subscriptions.forget(before)
        self.neighbours.forget(before)

    def gaps(self, since: int) -> tuple[Gap, ...]:
        """Return the gaps since a time: stays forgotten for lack of room, about which filters are not asked."""
        forgotten = (presence.forgotten_until(since) for presence in (self.subscriptions, self.neighbours))
        return tuple(Gap(since, until + 1, FORGOTTEN) for until in forgotten if until is not None)

    def drops(self, head: int, tail: int) -> tuple[Drop, ...]:
        """Where a message went no further, from all chapters that are not released."""
        chapters = [*self._closed.values(), *self._full, self._open]
        return tuple(drop for chapter in chapters for drop in chapter.drops(head, tail))

    def publisher(self, number: int) -> str | None:
        """The name of a publisher, from all chapters that are not released."""
        for chapter in (self._open, *self._closed.values()):
            for kind, known, _, name in chapter.names:
                if kind == "publisher" and known == number:
                    return name
        return None

    def named(self, numbers: Collection[int]) -> tuple[NamedSubscription, ...]:
        """Subscriptions by number, from all chapters that are not released."""
        return tuple(
            NamedSubscription(number, principal, topic, selector)
            for chapter in (self._open, *self._closed.values())
            for number, _, begins, principal, topic, selector in chapter.subscriptions
            if begins and number in numbers
        )

    def ids_of(self, alias: str) -> list[tuple[int, int]]:
        """The ids of a foreign id, from all chapters that are not released."""
        chapters = [*self._closed.values(), self._open]
        return [(head, tail) for chapter in chapters for known, head, tail in chapter.aliases if known == alias]

    @property
    def empty(self) -> bool:
        """Whether there is nothing for a job but latencies."""
        return self._open.lines == 0 and not self._full

    @property
    def open_bytes(self) -> int:
        """Memory of the open chapter: its recorder bounds what it grows by."""
        return self._open_shed_bytes + _LINE_BYTES * self._open.lines + self._open.text_bytes

    @property
    def has_many_aliases(self) -> bool:
        """Whether the open chapter is to be closed because of its aliases."""
        return self._open.alias_bytes > SEALED_ALIAS_BYTES

    @property
    def held_bytes(self) -> int:
        """Memory of the chapters that are open, or closed and not released."""
        chapters = (self._open, *self._full, *self._closed.values())
        return self._shed_bytes + sum(_LINE_BYTES * one.lines + one.text_bytes for one in chapters)


class ChronicledRecorder:
    """The base of all recorders: what they keep alike goes straight to the chronicle."""

    def __init__(self, now: int) -> None:
        self.chronicle = Chronicle(now)
        # A new event of this kind is a method of the chronicle, and a line here; `contract.Recorder` declares it.
        self.shed = self.chronicle.shed
        self.dropped = self.chronicle.dropped
        self.publishes = self.chronicle.publishes
        self.subscribed = self.chronicle.subscribed
        self.unsubscribed = self.chronicle.unsubscribed
        self.linked = self.chronicle.linked
        self.unlinked = self.chronicle.unlinked
        self.aliased = self.chronicle.aliased
        self.timed = self.chronicle.timed
