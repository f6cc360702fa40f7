"""An open history: its subject and the times in it. Its recorder holds its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.messages.identity import COUNTER_BITS
from postroad.tracking.id_runs import IdRuns
from postroad.tracking.segments import HistoryKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KINDS", "MAX_SINGLES", "NUMBERED", "History", "HistoryName"]

# Single times in one history before it is sealed: half a megabyte. Repeats within a batch count once.
MAX_SINGLES = 65_536
# An empty range: nothing lies in it, and any time widens it to itself.
_NEVER_FROM, _NEVER_TO = 1 << 62, -1

# Kinds whose keys are about a neighbour or a subscription too.
NUMBERED = frozenset(
    {
        HistoryKind.RELAYED,
        HistoryKind.RELAYED_SET,
        HistoryKind.ARRIVED_FROM,
        HistoryKind.DELIVERED,
        HistoryKind.ACKNOWLEDGED,
        HistoryKind.REFUSED,
        HistoryKind.QUEUED,
    }
)
KINDS = NUMBERED | {HistoryKind.ACCEPTED, HistoryKind.ARRIVED}


class HistoryName(NamedTuple):
    """Which history: see `FilterSegment`."""

    kind: int
    origin: int
    subject: int


@dataclass(slots=True, eq=False)
class History:
    """One filter-to-be.

    Attributes:
        name: which history it is.
        slot: its number in the buffer of keys; no other history of the recorder has it, but copies of it do.
        opened: when it began, in ms.
        stored: when a copy of it was last passed to the writer, else when it was opened.
        entries: how many keys it has, hashed or in runs.
        time_from, time_to: the range of those of its ids that came in time; empty as long as there is none.
        late: the times of the others, a sorted array for each call that had some.
        late_count: how many these are, repeats between calls included.
        words: the bits, of a filter of fixed shape that has any; None else.
        runs: entries that are kept as runs of ids and are not hashed yet.
    """

    name: HistoryName
    slot: int
    opened: int
    stored: int
    entries: int = 0
    time_from: int = _NEVER_FROM
    time_to: int = _NEVER_TO
    late: list[NDArray[np.int64]] = field(default_factory=list)
    late_count: int = 0
    words: NDArray[np.uint64] | None = None
    runs: IdRuns | None = None

    @property
    def is_derived(self) -> bool:
        """Whether its keys are of pairs: the number is not in its name."""
        return self.name.kind in NUMBERED and not self.name.subject

    @property
    def hashed(self) -> int:
        """Entries that are not runs."""
        return self.entries if self.runs is None else self.entries - self.runs.ids

    def add_run(self, head: int, tail: int, count: int, mixed: np.uint64) -> None:
        """Ids that follow each other, all of them in time; `mixed` is of the number in their keys."""
        if self.runs is None:
            self.runs = IdRuns(self.is_derived)
        self.runs.add(head, tail, count, mixed)
        self.entries += count
        begins, ends = tail >> COUNTER_BITS, (tail + count - 1) >> COUNTER_BITS
        if begins < self.time_from:
            self.time_from = begins
        if ends > self.time_to:
            self.time_to = ends

    def singles(self) -> NDArray[np.int64]:
        """The times outside the range, once each, ascending."""
        if not self.late:
            return np.zeros(0, np.int64)
        times = np.unique(np.concatenate(self.late))
        return times[(times < self.time_from) | (times > self.time_to)]

    def frozen(self) -> History:
        """A copy that no longer changes."""
        words = None if self.words is None else self.words.copy()
        return History(
            self.name,
            self.slot,
            self.opened,
            self.stored,
            self.entries,
            self.time_from,
            self.time_to,
            list(self.late),
            self.late_count,
            words,
            None if self.runs is None else self.runs.copy(),
        )
