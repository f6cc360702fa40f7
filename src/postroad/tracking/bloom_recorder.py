"""The recorder `bloom`: a filter of fixed shape per history; the paper's way.

Its memory is m / 8 bytes per open history, however little is in it, and what is stored is as large: the shape must fit
the traffic. In return no hash is kept, and what is open is as small as what is stored. Bits are set as messages come,
or when the filter is stored where messages come as runs.

With `hold` longer than `interval`, a filter is stored every `interval` but stays open, and each copy replaces the one
before in the trail: the paper's way for brokers whose own interval is shorter than that of the brokers before them. The
copies of one filter are ORs of its parts, so the last says yes to all that the others did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import count_ones
from postroad.tracking.filter_probe import evidence_of
from postroad.tracking.histories import HistoryRecorder
from postroad.tracking.history_kernels import PIECE, take_bits
from postroad.tracking.history_seal import Made, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.filters import Shape
    from postroad.messages import MessageId
    from postroad.tracking.contract import Rows
    from postroad.tracking.filter_probe import FilterEvidence
    from postroad.tracking.history import History
    from postroad.tracking.id_runs import IdRuns
    from postroad.tracking.segments import FilterSegment, Segment
    from postroad.tracking.settings import HistorySettings

__all__ = ["BloomRecorder"]

_NOTHING = np.uint64(0)


def _segment(history: History, shape: Shape, now: int) -> FilterSegment:
    words = np.zeros((shape.m + 63) // 64, np.uint64) if history.words is None else history.words
    if history.runs is not None:
        if history.words is not None:
            # The loop may look into the history while a job is made of it.
            words = words.copy()
        history.runs.set_bits(words, shape.m, shape.k)
    data = words.astype("<u8", copy=False).tobytes()
    return segment_of(history, shape.n, Made("bloom", shape.m, shape.k, 0, count_ones(words), data), now)


class BloomRecorder(HistoryRecorder):
    """Fixed m, k and n for every history."""

    def __init__(self, broker: int, settings: HistorySettings, now: int) -> None:
        super().__init__(broker, settings, now)
        self._words = (settings.shape.m + 63) // 64
        self._scratch = np.empty(PIECE, np.uint64)
        self._unreleased: dict[int, list[History]] = {}

    @property
    def _capacity(self) -> int:
        return self.settings.shape.n

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
        words = self._words_of(history)
        shape, room = self.settings.shape, self._capacity - history.entries
        mixed = _NOTHING if derived is None else self._mixed_number(derived)
        # fmt: off
        take_bits(
            ids, rows, first, derived is not None, mixed, now, tolerance, words, shape.m, shape.k, room,
            self._scratch, self._report, self._late,
        )
        # fmt: on

    def _words_of(self, history: History) -> NDArray[np.uint64]:
        if history.words is None:
            history.words = np.zeros(self._words, np.uint64)
        return history.words

    def _hash_runs(self, history: History, runs: IdRuns) -> None:
        runs.set_bits(self._words_of(history), self.settings.shape.m, self.settings.shape.k)

    def _make_room(self) -> None:
        """Each open history costs its whole filter: with too many, the fullest are sealed first."""
        most = max(1, self.settings.budget // (8 * self._words))
        while len(self._open) > most:
            self._seal_largest(1)

    @property
    def _longest_open(self) -> int:
        return max(self.settings.interval, self.settings.hold)

    def _is_pressed(self, now: int) -> bool:
        settings = self.settings
        return now - self._oldest(now) >= settings.interval or 8 * self._words * len(self._sealed) > settings.budget

    def _take_sealed(self, number: int, histories: list[History], now: int) -> Callable[[], list[Segment]]:
        interval, linger = self.settings.interval, self.settings.linger
        if self.settings.hold > interval:
            for history in self._open.values():
                # Those that would come soon come along, so that files do not get small.
                if now - history.stored >= interval - linger:
                    histories.append(history.frozen())
                    history.stored = now
        self._unreleased[number] = histories
        shape = self.settings.shape
        return lambda: [_segment(history, shape, now) for history in histories]

    def _let_go(self, number: int) -> None:
        self._unreleased.pop(number, None)

    def _holdings(self) -> tuple[int, int, int, int, int]:
        filters = len(self._open) + len(self._sealed) + sum(map(len, self._unreleased.values()))
        entries = sum(history.entries for history in self._open.values())
        return len(self._open), entries, 8 * self._words * filters, self._singles, self._early_seals

    def _evidence(
        self, identity: MessageId, neighbours: tuple[int, ...], subscriptions: tuple[int, ...], now: int
    ) -> FilterEvidence:
        """What the open filters say, and those that are not released."""
        unreleased = [history for histories in self._unreleased.values() for history in histories]
        histories = [*self._open.values(), *self._sealed, *unreleased]
        shape = self.settings.shape
        segments = (_segment(one, shape, now) for one in histories if one.name.origin == identity.broker)
        return evidence_of(segments, identity, neighbours, subscriptions)
