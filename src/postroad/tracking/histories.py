"""Open histories by name: opened by the first record, sealed when full, when old, or when memory is short.

Of "message tracking with Bloom filter histories" (Jun and Astley) this is ADD and sealing. A history is the triple of
the paper, (filter, range R, single times S):

    filter   the subclass has it: bits in `words` (`bloom`), or hashes in one buffer for all histories (`sealed`)
    R        `time_from` to `time_to`, widened by every id whose time is within the tolerance of the clock
    S        `late`: the times of all other ids. The paper widens R by these too, and then one id with a wrong clock
             makes a filter cover hours, and Theorem 1 (`settings.py`) fails

    histories of publishers (H_P)       kind ACCEPTED
    of origins (H_b)                    kind ARRIVED
    of next hops (H_b,d)                kinds RELAYED and RELAYED_SET
    of subscriptions (H_b,s)            kinds QUEUED, DELIVERED, ACKNOWLEDGED, REFUSED

With the layout "shared" the kinds with a number have one history per origin, and the number goes into the key instead
of the name. A history of the paper for each subscription would be almost empty, at the same size.

The age of a history counts from when it was opened, not from ticks that all histories share: one opened just before a
tick would be sealed a moment later, and Theorem 1 counts on a least time for which each filter is open.

Late ids count against the capacity like others. A history that is full is sealed in the same call, so an open one
always has room for one more id, and the loops below always get on.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import mix64
from postroad.messages.id_columns import ORIGIN
from postroad.messages.identity import COUNTER_BITS, ORIGIN_MASK
from postroad.tracking.history import KINDS, MAX_SINGLES, NUMBERED, History, HistoryName
from postroad.tracking.history_kernels import REPORT, TAKEN
from postroad.tracking.history_recorder import KeepingRecorder
from postroad.tracking.id_runs import LEAST_RUN, is_run
from postroad.tracking.segments import HistoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import Batch, MessageId
    from postroad.tracking.contract import Rows
    from postroad.tracking.filter_probe import FilterEvidence
    from postroad.tracking.findings import Findings
    from postroad.tracking.id_runs import IdRuns
    from postroad.tracking.segments import Segment
    from postroad.tracking.settings import HistorySettings

__all__ = ["HistoryRecorder"]

_NOTHING = np.uint64(0)
# A job costs several ms of the processor, however little is in it. At full speed, with histories full all the time, a
# short `linger` would make one of every look; nothing that is younger than `interval` is in such a hurry.
_BETWEEN_JOBS = 1_000  # ms
# Runs before short ones are hashed: 32 KiB of them. More would make a longer pause of it, where each is in a history of
# its own; fewer would share the cost of a call among fewer.
_MANY_RUNS = 1_024
_MANY_NUMBERS = 100_000  # mixed numbers that are remembered, some 10 MB


class HistoryRecorder(KeepingRecorder):
    """A recorder of histories; subclasses say where keys go."""

    def __init__(self, broker: int, settings: HistorySettings, now: int) -> None:
        super().__init__(broker, settings, now)
        # In the order they were opened: a history that is opened again comes last.
        self._open: dict[tuple[int, int, int], History] = {}
        self._sealed: list[History] = []
        self._slots = 0
        self._singles = 0
        self._early_seals = 0
        # How many since short ones were last hashed; and histories that have any, or had.
        self._runs = 0
        self._with_runs: list[History] = []
        self._mixed: dict[int, np.uint64] = {}
        # What was written to links since messages last came in: ids, and the mixed number of the link.
        self._relays: list[tuple[NDArray[np.uint64], np.uint64]] = []
        self._report = np.zeros(REPORT, np.int64)
        self._late = np.zeros(1024, np.int64)
        self._ways = {kind: self._way(kind) for kind in KINDS}
        self._most = self._capacity

    def _way(self, kind: int) -> tuple[bool, bool, int]:
        """Whether each number has a history of its own, else whether keys are of pairs; and what counts as in time."""
        settings, numbered = self.settings, kind in NUMBERED
        apart = settings.layout == "paper" and numbered and kind != HistoryKind.RELAYED_SET
        # On its way a message is delayed; at its entry its id is new.
        tolerance = settings.tolerance + (settings.jitter if kind != HistoryKind.ACCEPTED else 0)
        return apart, numbered and not apart, tolerance

    def _note(
        self, kind: int, number: int, ids: NDArray[np.uint64], rows: Rows, now: int, run: tuple[int, int] | None = None
    ) -> None:
        count = len(rows)
        if run is None and count == 1:
            row = rows.item(0)
            run = ids.item(row, 0), ids.item(row, 1)
        if run is not None and count and self._record_run(kind, number, run, count, now):
            self._recorded += count
        else:
            super()._note(kind, number, ids, rows, now)

    def _record(self, kind: int, number: int, ids: NDArray[np.uint64], rows: Rows, now: int) -> None:
        apart, numbered, tolerance = self._ways[kind]
        subject = number if apart else 0
        derived = number if numbered else None
        if len(rows) >= LEAST_RUN and is_run(ids, rows):
            first = rows.item(0)
            if self._record_run(kind, number, (ids.item(first, 0), ids.item(first, 1)), len(rows), now):
                return
        if len(rows) > len(self._late):
            self._late = np.zeros(2 * len(rows), np.int64)
        first, ordered = 0, False
        while first < len(rows):
            origin = ids.item(rows.item(first), 0) & ORIGIN_MASK
            history = self._open.get((kind, origin, subject))
            if history is None:
                history = self._begin(HistoryName(kind, origin, subject), now)
            # Up to the end, to a full history, or to the first row of another origin.
            self._take(history, ids, rows, first, derived, now, tolerance)
            first += self._report.item(TAKEN)
            self._note_times(history)
            if first < len(rows) and not ordered and ids.item(rows.item(first), 0) & ORIGIN_MASK != origin:
                # Several origins: what is left, one origin after the other. Once sorted, it stays so.
                rest = rows[first:]
                rows, first, ordered = rest[np.argsort(ids[rest, 0] & ORIGIN, kind="stable")], 0, True
        self._make_room()

    def _record_run(self, kind: int, number: int, run: tuple[int, int], left: int, now: int) -> bool:
        """Record a run of consecutive ids if all are within the tolerance; returns whether they are."""
        apart, numbered, tolerance = self._ways[kind]
        head, tail = run
        if now - (tail >> COUNTER_BITS) > tolerance or ((tail + left - 1) >> COUNTER_BITS) - now > tolerance:
            return False
        name = (kind, head & ORIGIN_MASK, number if apart else 0)
        mixed = self._mixed_number(number) if numbered else _NOTHING
        capacity, begun = self._most, False
        while left:
            history = self._open.get(name)
            if history is None:
                history, begun = self._begin(HistoryName(*name), now), True
            if history.runs is None:
                self._with_runs.append(history)
            count = min(left, capacity - history.entries)
            history.add_run(head, tail, count, mixed)
            if history.entries >= capacity:
                self._seal(history)
            tail += count
            left -= count
        self._runs += 1
        if self._runs >= _MANY_RUNS:
            self._hash_short_runs()
        # A run takes no memory to speak of, but a history may.
        elif begun:
            self._make_room()
        return True

    def _hash_short_runs(self) -> None:
        """Those of single messages, say, which take more memory than their hashes."""
        looked_at, self._with_runs, self._runs = self._with_runs, [], 0
        for history in looked_at:
            if history.runs is None or not self._is_open(history):
                continue
            if history.runs.is_wasteful:
                self._hash_runs(history, history.runs)
                history.runs = None
            else:
                self._with_runs.append(history)
        self._make_room()

    def _is_open(self, history: History) -> bool:
        return self._open.get(history.name) is history

    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here."""
        if self._relays:
            self._settle(now)
        super().accepted(batch, now)

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour."""
        if self._relays:
            self._settle(now)
        super().arrived(batch, link, now)

    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were written to a link; with keys of sets, others may follow."""
        if self.settings.relay_keys == "each":
            super().relayed(batch, rows, link, now)
        elif len(rows):
            self._relays.append((batch.ids[rows], self._mixed_number(link)))

    def _settle(self, now: int) -> None:
        super()._settle(now)
        if not self._relays:
            return
        counts = [len(ids) for ids, _ in self._relays]
        ids = np.concatenate([ids for ids, _ in self._relays])
        mixed = np.repeat(np.array([mixed for _, mixed in self._relays], np.uint64), counts)
        self._relays.clear()
        order = np.lexsort((mixed, ids[:, 1], ids[:, 0]))
        ids, mixed = ids[order], mixed[order]
        # Written to one link twice, as after a fault, counts once: equal numbers would cancel out.
        new = (ids[1:] != ids[:-1]).any(axis=1)
        distinct = np.concatenate([[True], new | (mixed[1:] != mixed[:-1])])
        begins = np.concatenate([[True], new])[distinct].nonzero()[0]
        ids, mixed = ids[distinct][begins], np.bitwise_xor.reduceat(mixed[distinct], begins)
        for joined in np.unique(mixed).tolist():
            # A number that no neighbour has stands for the set.
            if len(self._mixed) >= _MANY_NUMBERS:
                self._mixed.clear()
            self._mixed[-1 - joined] = np.uint64(joined)
            rows = np.flatnonzero(mixed == np.uint64(joined))
            self._note(HistoryKind.RELAYED_SET, -1 - joined, ids, rows, now)

    def _begin(self, name: HistoryName, now: int) -> History:
        self._slots += 1
        history = History(name, self._slots, now, now)
        self._open[name] = history
        return history

    def _note_times(self, history: History) -> None:
        taken, earliest, latest, lates = self._report.tolist()
        history.entries += taken
        if earliest < history.time_from:
            history.time_from = earliest
        if latest > history.time_to:
            history.time_to = latest
        if lates:
            history.late.append(np.unique(self._late[:lates]))
            history.late_count += len(history.late[-1])
            self._singles += lates
        if history.entries >= self._capacity or history.late_count >= MAX_SINGLES:
            self._seal(history)

    def _seal(self, history: History) -> None:
        del self._open[history.name]
        self._sealed.append(history)

    def _seal_old(self, now: int, age: int) -> None:
        """Seal what has been open for this long: the first in line, as they stand in the order of opening."""
        while self._open:
            history = next(iter(self._open.values()))
            # Opened in the future: the clock was set back.
            if 0 <= now - history.opened < age:
                break
            self._seal(history)

    def _seal_largest(self, enough: int) -> None:
        """Seal the largest open histories until so much is sealed."""
        sealed = 0
        for history in sorted(self._open.values(), key=self._weight, reverse=True):
            if sealed >= enough:
                break
            sealed += self._weight(history)
            self._seal(history)
            self._early_seals += 1

    def _ready(self, now: int, force: bool) -> bool:
        self._seal_old(now, 0 if force else self._longest_open)
        waited = now - self._last_job_at
        return force or waited >= self.settings.interval or self._lingered(now, waited) or self._is_pressed(now)

    def _lingered(self, now: int, waited: int) -> bool:
        """Whether sealed histories have waited long enough for others: what is full but young waits a while longer."""
        if not self._sealed or waited < self.settings.linger:
            return False
        oldest = min(history.opened for history in self._sealed)
        # Without any linger they go at once, as the paper has it.
        return not self.settings.linger or waited >= _BETWEEN_JOBS or now - oldest >= self.settings.interval

    def _take_due(self, number: int, now: int, force: bool) -> Callable[[], list[Segment]]:
        histories, self._sealed = self._sealed, []
        # What is sealed must not stay in memory for the sake of this list.
        self._with_runs = [history for history in self._with_runs if self._is_open(history)]
        return self._take_sealed(number, histories, now)

    def findings(self, identity: MessageId, now: int) -> Findings:
        """What is known about an id from what is not released."""
        self._settle(now)
        since = identity.time - self.settings.skew
        neighbours = self.chronicle.neighbours.between(since, now)
        subscriptions = self.chronicle.subscriptions.between(since, now)
        evidence = self._evidence(identity, neighbours, subscriptions, now)
        drops, gaps = self.chronicle.drops(identity.head, identity.tail), self.chronicle.gaps(since)
        return evidence.findings(self.broker, drops, gaps)

    def _mixed_number(self, number: int) -> np.uint64:
        mixed = self._mixed.get(number)
        if mixed is None:
            if len(self._mixed) >= _MANY_NUMBERS:
                self._mixed.clear()
            mixed = self._mixed[number] = np.uint64(mix64(number))
        return mixed

    def _oldest(self, now: int) -> int:
        return min((history.stored for history in self._open.values()), default=now)

    @property
    @abstractmethod
    def _capacity(self) -> int:
        """The most entries of a history."""

    def _weight(self, history: History) -> int:
        """What makes a history large: its entries."""
        return history.entries

    @property
    def _longest_open(self) -> int:
        """How long a history may stay open."""
        return self.settings.interval

    @abstractmethod
    def _is_pressed(self, now: int) -> bool:
        """Whether there is so much, or of such an age, that it must be passed to the writer at once."""

    @abstractmethod
    def _take_sealed(self, number: int, histories: list[History], now: int) -> Callable[[], list[Segment]]:
        """Give sealed histories, and what else is due, to a job; returns what does the heavy part."""

    @abstractmethod
    def _evidence(
        self, identity: MessageId, neighbours: tuple[int, ...], subscriptions: tuple[int, ...], now: int
    ) -> FilterEvidence:
        """What the histories that are not released know about an id."""

    @abstractmethod
    def _take(
        self,
        history: History,
        ids: NDArray[np.uint64],
        rows: Rows,
        first: int,
        derived: int | None,
        now: int,
        tolerance: int,
    ) -> None:
        """Put rows from `first` on into a history, and report how many and their times."""

    @abstractmethod
    def _hash_runs(self, history: History, runs: IdRuns) -> None:
        """Put the keys of runs into a history that is open."""

    @abstractmethod
    def _make_room(self) -> None:
        """Called when records came in: seal histories if memory is short."""
