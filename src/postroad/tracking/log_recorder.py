"""The recorder `log`: sixteen bytes per record, buffered, passed to the writer when the buffer is full or old.

The baseline that filters are measured against. Simple and exact, and the most to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages.id_columns import id_fields
from postroad.messages.identity import ID_BYTES
from postroad.tracking.filter_probe import FilterEvidence
from postroad.tracking.history_recorder import KeepingRecorder
from postroad.tracking.segments import LogRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import MessageId
    from postroad.tracking.contract import Rows
    from postroad.tracking.findings import Findings
    from postroad.tracking.segments import Segment
    from postroad.tracking.settings import HistorySettings

    Part = tuple[int, int, NDArray[np.uint64]]

__all__ = ["LogRecorder"]


def _records(parts: list[Part]) -> list[Segment]:
    if not parts:
        return []
    counts = [len(ids) for _, _, ids in parts]
    kinds = np.repeat(np.array([kind for kind, _, _ in parts], np.int32), counts)
    subjects = np.repeat(np.array([number for _, number, _ in parts], np.int64), counts)
    return [LogRecords(kinds, subjects, *id_fields(np.concatenate([ids for _, _, ids in parts])))]


class LogRecorder(KeepingRecorder):
    """Keeps all ids as they come. `settings.budget` is the size of the buffer, `settings.interval` its age."""

    def __init__(self, broker: int, settings: HistorySettings, now: int) -> None:
        super().__init__(broker, settings, now)
        self._parts: list[Part] = []
        self._entries = 0
        self._since: int | None = None
        self._unreleased: dict[int, list[Part]] = {}

    def _record(self, kind: int, number: int, ids: NDArray[np.uint64], rows: Rows, now: int) -> None:
        self._parts.append((kind, number, ids[rows]))
        self._entries += len(rows)
        if self._since is None:
            self._since = now

    def _ready(self, now: int, force: bool) -> bool:
        full = self._entries * ID_BYTES >= self.settings.budget
        # What is kept beside the records waits too, so the age is that of all.
        return force or full or now - self._last_job_at >= self.settings.interval

    def _take_due(self, number: int, now: int, force: bool) -> Callable[[], list[Segment]]:
        parts = self._parts
        self._unreleased[number] = parts
        self._parts, self._entries, self._since = [], 0, None
        return lambda: _records(parts)

    def _oldest(self, now: int) -> int:
        return now if self._since is None else self._since

    def _let_go(self, number: int) -> None:
        self._unreleased.pop(number, None)

    def _holdings(self) -> tuple[int, int, int, int, int]:
        unreleased = sum(len(ids) for parts in self._unreleased.values() for _, _, ids in parts)
        return int(self._entries > 0), self._entries, ID_BYTES * (self._entries + unreleased), 0, 0

    def findings(self, identity: MessageId, now: int) -> Findings:
        """Exact."""
        self._settle(now)
        evidence = FilterEvidence(identity)
        window = (identity.time, identity.time)
        for parts in [*self._unreleased.values(), self._parts]:
            for kind, number, ids in parts:
                if ((ids[:, 0] == np.uint64(identity.head)) & (ids[:, 1] == np.uint64(identity.tail))).any():
                    evidence.consider(kind, number, 0.0, window, True)
                evidence.probes += len(ids)
        evidence.neighbours = self.chronicle.neighbours.between(identity.time - self.settings.skew, now)
        return evidence.findings(self.broker, self.chronicle.drops(identity.head, identity.tail))
