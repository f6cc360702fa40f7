"""The common base of the recorders of histories (`bloom` and `sealed`) and of the plain log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking.chronicle import ChronicledRecorder
from postroad.tracking.contract import Job, TrackingStatistics
from postroad.tracking.segments import HistoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import Batch, MessageId
    from postroad.messages.columns import Ids
    from postroad.tracking.contract import Rows
    from postroad.tracking.findings import Findings
    from postroad.tracking.segments import Segment
    from postroad.tracking.settings import HistorySettings

__all__ = ["KeepingRecorder"]

# Acknowledgements come one by one: they are collected, and recorded together.
_ACKNOWLEDGEMENTS = 512
# One part in this many of the memory budget may be what is kept exactly (what was shed, above all).
_CHRONICLE_SHARE = 4


def _run_of(batch: Batch, rows: Rows) -> tuple[int, int] | None:
    """The first id of rows that are known to be a run: all of one."""
    return batch.run if len(rows) == len(batch.ids) else None


def _answer(positive: bool) -> int:
    return HistoryKind.ACKNOWLEDGED if positive else HistoryKind.REFUSED


class KeepingRecorder(ChronicledRecorder, ABC):
    """Turns what the broker reports into (kind, number, ids), and what is ready into jobs."""

    def __init__(self, broker: int, settings: HistorySettings, now: int) -> None:
        super().__init__(now)
        self.broker = broker
        self.settings = settings
        self._every = np.arange(1024)
        self._acknowledgements: dict[tuple[int, bool], list[NDArray[np.uint64]]] = {}
        self._collected = 0
        self._recorded = 0
        self._jobs = 0
        self._pending = 0
        self._through = now - 1
        self._last_job_at = now

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here."""
        self._note(HistoryKind.ACCEPTED, 0, batch.ids, self._rows(len(batch)), now, batch.run)

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour."""
        rows = self._rows(len(batch))
        self._note(HistoryKind.ARRIVED, 0, batch.ids, rows, now, batch.run)
        self._note(HistoryKind.ARRIVED_FROM, link, batch.ids, rows, now, batch.run)

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were written to a link."""
        self._note(HistoryKind.RELAYED, link, batch.ids, rows, now, _run_of(batch, rows))

    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows wait for a subscription."""
        self._note(HistoryKind.QUEUED, subscription, batch.ids, rows, now, _run_of(batch, rows))

    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows were written to the socket of a subscription."""
        self._note(HistoryKind.DELIVERED, subscription, batch.ids, rows, now, _run_of(batch, rows))
        self.chronicle.delayed(batch, rows, now)

    def acknowledged(self, ids: Ids, subscription: int, positive: bool, now: int) -> None:
        """A subscription acknowledged messages, or refused them."""
        if len(ids) >= _ACKNOWLEDGEMENTS:
            # Much at once is recorded at once, after what came before it.
            self._settle(now)
            self._note(_answer(positive), subscription, ids, self._rows(len(ids)), now)
            return
        self._acknowledgements.setdefault((subscription, positive), []).append(ids.copy())
        self._collected += len(ids)
        if self._collected >= _ACKNOWLEDGEMENTS:
            self._settle(now)

    def _settle(self, now: int) -> None:
        """Record what was collected to be recorded together."""
        groups, self._acknowledgements, self._collected = self._acknowledgements, {}, 0
        for (subscription, positive), parts in groups.items():
            ids = parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._note(_answer(positive), subscription, ids, self._rows(len(ids)), now)

    def _rows(self, count: int) -> NDArray[np.int64]:
        if count > len(self._every):
            self._every = np.arange(2 * count)
        return self._every[:count]

    def _note(
        self, kind: int, number: int, ids: NDArray[np.uint64], rows: Rows, now: int, run: tuple[int, int] | None = None
    ) -> None:
        """Something happened to rows; `run` is the first id of rows that are known as a run."""
        self._recorded += len(rows)
        if len(rows):
            self._record(kind, number, ids, rows, now)

    def due(self, now: int, force: bool = False) -> list[Job]:
        """What is ready to be stored: at least one job each `interval`, so that what is covered moves on in silence."""
        self._settle(now)
        # Where much is shed, the exact record of it must not wait for the histories.
        burdened = (
            self.chronicle.open_bytes > self.settings.budget // _CHRONICLE_SHARE or self.chronicle.has_many_aliases
        )
        if not self._ready(now, force) and not burdened:
            return []
        jobs = [self._full_job(now) for _ in range(self.chronicle.full)]
        self._jobs += 1
        self._pending += 1
        number, self._last_job_at = self._jobs, now
        make = self._take_due(number, now, force)
        chapter = self.chronicle.close(number, now)
        # What else comes in during this very millisecond is not in the job.
        self._through = max(self._through, self._oldest(now) - 1)
        self.chronicle.forget(min(self._through, now) - self.settings.interval - self.settings.skew)
        return [*jobs, Job(number, lambda: [*make(), *chapter.segments()], self._through)]

    def _full_job(self, now: int) -> Job:
        self._jobs += 1
        self._pending += 1
        return Job(self._jobs, self.chronicle.close_full(self._jobs, now).segments, self._through, is_part=True)

    def release(self, number: int) -> None:
        """Forget what a stored job was made of."""
        self._pending -= 1
        self.chronicle.release(number)
        self._let_go(number)

    def statistics(self) -> TrackingStatistics:
        """What it holds and did."""
        histories, entries, held, singles, early = self._holdings()
        return TrackingStatistics(
            recorded=self._recorded + self._collected,
            open_histories=histories,
            open_entries=entries,
            held_bytes=held + self.chronicle.held_bytes,
            jobs=self._jobs,
            pending_jobs=self._pending,
            singles=singles,
            early_seals=early,
        )

    @abstractmethod
    def findings(self, identity: MessageId, now: int) -> Findings:
        """What is known about an id from what is not released."""

    @abstractmethod
    def _record(self, kind: int, number: int, ids: NDArray[np.uint64], rows: Rows, now: int) -> None:
        """Keep that this happened to the rows; there is at least one."""

    @abstractmethod
    def _ready(self, now: int, force: bool) -> bool:
        """Whether there is something for a job."""

    @abstractmethod
    def _take_due(self, number: int, now: int, force: bool) -> Callable[[], list[Segment]]:
        """Seal what is due; returns what does the heavy part."""

    @abstractmethod
    def _oldest(self, now: int) -> int:
        """The time of the oldest record that no job has; `now` when there is none."""

    @abstractmethod
    def _let_go(self, number: int) -> None:
        """Forget what a job was made of."""

    @abstractmethod
    def _holdings(self) -> tuple[int, int, int, int, int]:
        """Open histories, entries in them, bytes held, singles so far, early seals so far."""
