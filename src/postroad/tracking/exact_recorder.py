"""The exact recorder: one row for each message that passed, with where it came from and where it went.

While a book is open, what the broker tells is copied in portions as it comes; sealing, off the loop, makes rows of it.
What comes after the seal of a message's book (a late delivery from a queue, an acknowledgement) becomes a further row
that adds to the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking.chronicle import ChronicledRecorder
from postroad.tracking.contract import Job, TrackingStatistics
from postroad.tracking.exact_book import ACKNOWLEDGED, DELIVERED, QUEUED, REFUSED, RELAYED, Book
from postroad.tracking.exact_runs import runs_of
from postroad.tracking.exact_seal import seal
from postroad.tracking.findings import Findings, Hit
from postroad.tracking.segments import ADDENDUM, HERE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch, MessageId
    from postroad.messages.columns import Ids
    from postroad.tracking.chronicle import Chapter
    from postroad.tracking.contract import Rows
    from postroad.tracking.segments import Segment

__all__ = ["DEFAULT_BUDGET_BYTES", "DEFAULT_PERSIST_MS", "ExactRecorder"]

# How long a record may stay in memory: what a crash can lose without the journal. A minute gives files large enough for
# both readers at a few hundred messages a second.
DEFAULT_PERSIST_MS = 60_000
# An open book that is larger is sealed before its time: 4 million ids, some seconds of a broker at full load.
DEFAULT_BUDGET_BYTES = 64 << 20


class ExactRecorder(ChronicledRecorder):
    """Keeps every id, and answers without error. Costs about 20 bytes of memory per message until it is written."""

    def __init__(
        self,
        broker: int,
        now: int,
        persist_ms: int = DEFAULT_PERSIST_MS,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
    ) -> None:
        """Begin a record.

        Args:
            broker: whose record it is.
            now: the broker's time.
            persist_ms: seal this long after a book was opened.
            budget_bytes: seal before that when the open book is larger.
        """
        super().__init__(now)
        self.broker = broker
        self._persist_ms = persist_ms
        self._budget_bytes = budget_bytes
        self._spare: list[NDArray[np.uint64]] = []
        self._book = Book(now, self._spare)
        self._pending: dict[int, Book] = {}
        self._through = now
        self._jobs = 0
        self._sealed_records = 0
        self._early_seals = 0

    # --- what happens to messages ----------------------------------------------------------------------------------

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here."""
        self._book.take(batch.ids, HERE, batch.run)

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour."""
        self._book.take(batch.ids, link, batch.run)

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were written to a link."""
        self._book.enter(batch.ids, rows, RELAYED, link, batch.run)

    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows wait for a subscription."""
        self._book.enter(batch.ids, rows, QUEUED, subscription, batch.run)

    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows were written to the socket of a subscription."""
        self._book.enter(batch.ids, rows, DELIVERED, subscription, batch.run)
        self.chronicle.delayed(batch, rows, now)

    def acknowledged(self, ids: Ids, subscription: int, positive: bool, now: int) -> None:
        """A subscription answered for messages."""
        self._book.note(ids, ACKNOWLEDGED if positive else REFUSED, subscription)

    # --- handing over ----------------------------------------------------------------------------------------------

    def due(self, now: int, force: bool = False) -> list[Job]:
        """A job when the book is old or large enough. An old book is sealed even when empty, so that the
        record says that nothing happened."""
        held = self._book.unfolded_bytes + self.chronicle.open_bytes
        large = held > self._budget_bytes or self.chronicle.has_many_aliases
        # Opened in the future: the clock was set back.
        old = not 0 <= now - self._book.since < self._persist_ms
        if not (large or old or force):
            return []
        self._early_seals += large and not old and not force
        jobs = [self._full_job(now) for _ in range(self.chronicle.full)]
        number, book = self._jobs, self._book
        self._jobs += 1
        chapter = self.chronicle.close(number, now)
        book.close()
        self._sealed_records += book.records
        self._pending[number] = book
        # As much is kept in reserve as the last book had: little, once traffic is low.
        del self._spare[len(book.chunks()) :]
        self._book = Book(now, self._spare)
        # More may be reported in this same millisecond: only earlier ones are complete.
        self._through = max(self._through, now - 1)
        return [*jobs, Job(number, lambda: _segments(book, chapter), self._through)]

    def _full_job(self, now: int) -> Job:
        number = self._jobs
        self._jobs += 1
        return Job(number, self.chronicle.close_full(number, now).segments, self._through, is_part=True)

    def release(self, number: int) -> None:
        """Forget what a job was made of."""
        book = self._pending.pop(number, None)
        if book is not None:
            # Nobody else has the chunks: what was made of the book is a copy.
            self._spare += book.chunks()
        self.chronicle.release(number)

    def findings(self, identity: MessageId, now: int) -> Findings:
        """What is known about an id that is not released yet."""
        by_kind: dict[int, set[int]] = {}
        books = [*self._pending.values(), self._book]
        for book in books:
            for kind, number in book.about(identity.head, identity.tail):
                by_kind.setdefault(kind, set()).add(number)
        came = by_kind.get(-1, set())
        # A neighbour's skew is not known here: every neighbour linked around the id's time may have had it.
        neighbours = self.chronicle.neighbours.between(identity.time - self._persist_ms, now)

        def hits(numbers: set[int]) -> tuple[Hit, ...]:
            return tuple(Hit(number, 0.0, identity.time, identity.time) for number in sorted(numbers))

        here = Hit(0, 0.0, identity.time, identity.time)
        from_neighbours = came - {HERE, ADDENDUM}
        return Findings(
            self.broker,
            here if HERE in came else None,
            here if from_neighbours else None,
            hits(from_neighbours),
            relayed_to=hits(by_kind.get(RELAYED, set())),
            delivered=hits(by_kind.get(DELIVERED, set())),
            acknowledged=hits(by_kind.get(ACKNOWLEDGED, set())),
            refused=hits(by_kind.get(REFUSED, set())),
            queued=hits(by_kind.get(QUEUED, set())),
            dropped=self.chronicle.drops(identity.head, identity.tail),
            gaps=(),
            retained_since=0,
            neighbours=neighbours,
            probes=len(books),
        )

    def statistics(self) -> TrackingStatistics:
        """What it holds and did."""
        book = self._book
        held = book.held_bytes + sum(one.held_bytes for one in self._pending.values()) + self.chronicle.held_bytes
        return TrackingStatistics(
            recorded=self._sealed_records + book.records,
            open_histories=1,
            open_entries=book.records,
            held_bytes=held,
            jobs=self._jobs,
            pending_jobs=len(self._pending),
            singles=0,
            early_seals=self._early_seals,
        )


def _segments(book: Book, chapter: Chapter) -> list[Segment]:
    passages = runs_of(book) or seal(book)
    return [*([passages] if passages is not None else []), *chapter.segments()]
