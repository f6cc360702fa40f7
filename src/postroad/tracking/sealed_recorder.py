"""The recorder `sealed`: hashes while a history is open, a filter of exactly the right size when it is sealed.

Hashes of all histories are in one buffer, in the order in which they came, with the slot of their history
(`buffer.py`). A history itself holds none, so a thousand histories that get a key a minute cost a thousand keys a
minute, not a thousand arrays. Ids that follow each other are kept as runs instead (`id_runs.py`); a job hashes them.

A job gets a view of the buffer (`extract`), and groups it by slot on its own thread. Meanwhile the loop writes on after
the end of the view, and forgets what the view has as soon as copying the rest costs no more. Until the writer has
released a job, its view answers questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import derived_pairs, derived_sets, hash_ids
from postroad.tracking.buffer import KeyBuffer, total
from postroad.tracking.filter_probe import MAX_SET_NEIGHBOURS, FilterEvidence
from postroad.tracking.histories import HistoryRecorder
from postroad.tracking.history_kernels import TAKEN, take_keys
from postroad.tracking.history_seal import seal_history
from postroad.tracking.segments import HistoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import MessageId
    from postroad.tracking.buffer import Extract
    from postroad.tracking.contract import Rows
    from postroad.tracking.history import History
    from postroad.tracking.id_runs import IdRuns
    from postroad.tracking.segments import Segment
    from postroad.tracking.settings import HistorySettings

__all__ = ["SealedRecorder"]

# Answers to one question that are looked at: far more than one message can have neighbours and subscriptions.
_MOST_HITS = 1 << 17
_NOTHING = np.uint64(0)


def _keys(history: History, hashed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """All keys of a history, of which some are hashed already."""
    if history.runs is None:
        return hashed
    keys = history.runs.keys()
    return np.concatenate([hashed, keys]) if len(hashed) else keys


class SealedRecorder(HistoryRecorder):
    """Eight bytes per record while open, near log2(1 / rate) bits when sealed, at any filling."""

    def __init__(self, broker: int, settings: HistorySettings, now: int) -> None:
        super().__init__(broker, settings, now)
        self._buffer = KeyBuffer()
        self._unreleased: dict[int, tuple[Extract, list[History]]] = {}
        self._shrink_at = settings.budget

    @property
    def _capacity(self) -> int:
        return self.settings.capacity

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
        room = self._buffer.room(min(len(rows) - first, self._capacity - history.entries))
        mixed = _NOTHING if derived is None else self._mixed_number(derived)
        take_keys(ids, rows, first, derived is not None, mixed, now, tolerance, room, self._report, self._late)
        self._buffer.filled(history.slot, self._report.item(TAKEN))

    def _hash_runs(self, history: History, runs: IdRuns) -> None:
        self._buffer.append(history.slot, runs.keys())

    def _make_room(self) -> None:
        """Over the budget: seal the largest, half of all that is open; a job takes them at the next occasion."""
        if self._buffer.entries * 8 <= self._shrink_at:
            return
        live = sum(history.hashed for history in self._open.values())
        if live * 16 > self.settings.budget:
            self._seal_largest(live // 2)
        # Not again until a good part more has come in.
        self._shrink_at = self._buffer.entries * 8 + self.settings.budget // 8

    def _weight(self, history: History) -> int:
        return history.hashed

    def _is_pressed(self, now: int) -> bool:
        # A job hashes what waits as runs.
        in_runs = sum(history.runs.ids for history in self._sealed if history.runs is not None)
        return (self._buffer.entries + in_runs) * 8 > self.settings.budget

    def _take_sealed(self, number: int, histories: list[History], now: int) -> Callable[[], list[Segment]]:
        extract, settings = self._buffer.extract(), self.settings
        self._unreleased[number] = (extract, histories)
        live = {history.slot: history.hashed for history in self._open.values() if history.hashed}
        # Copying what lives costs no more than what is forgotten: each key is copied about once.
        if 2 * sum(live.values()) <= self._buffer.entries:
            self._buffer.keep_only(live)
        self._shrink_at = max(settings.budget, self._buffer.entries * 8)

        def make() -> list[Segment]:
            hashed = extract.grouped({history.slot: history.hashed for history in histories})
            return [seal_history(one, _keys(one, hashed[one.slot]), settings, now) for one in histories]

        return make

    def _let_go(self, number: int) -> None:
        done = self._unreleased.pop(number, None)
        if done is not None:
            self._buffer.recycle(done[0], [extract for extract, _ in self._unreleased.values()])

    def _holdings(self) -> tuple[int, int, int, int, int]:
        entries = sum(history.entries for history in self._open.values())
        unreleased = [history for _, histories in self._unreleased.values() for history in histories]
        runs = sum(one.runs.bytes for one in [*self._open.values(), *self._sealed, *unreleased] if one.runs is not None)
        held = self._buffer.bytes + total(extract for extract, _ in self._unreleased.values()) + runs
        return len(self._open), entries, held, self._singles, self._early_seals

    def _evidence(
        self, identity: MessageId, neighbours: tuple[int, ...], subscriptions: tuple[int, ...], now: int
    ) -> FilterEvidence:
        """Exact but for equal 64-bit hashes: what is open is not a filter yet."""
        word = int(hash_ids(np.array([[identity.head, identity.tail]], np.uint64))[0])
        # A derived key says which number it is about; a plain id is about the subject of its history.
        numbers = sorted({*neighbours, *subscriptions})
        about = dict(zip(derived_pairs(word, np.array(numbers, np.uint64)).tolist(), numbers, strict=True))
        sets = self._sets(word, neighbours)
        wanted = np.array([*{*about, *sets, word}], np.uint64)
        evidence = FilterEvidence(identity)
        evidence.probes = len(wanted)
        opened = [*self._open.values(), *self._sealed]
        for extract, histories in [(self._buffer.extract(), opened), *self._unreleased.values()]:
            by_slot = {history.slot: history for history in histories}
            found = extract.search(wanted, _MOST_HITS)
            for one in histories:
                if one.runs is not None:
                    found += [(one.slot, key) for key in one.runs.keys_of(identity.head, identity.tail)]
            for slot, key in found:
                history = by_slot.get(slot)
                if history is None or history.name.origin != identity.broker:
                    continue
                rate, window = history.entries * 2.0**-64, (history.time_from, history.time_to)
                if history.name.kind == HistoryKind.RELAYED_SET:
                    for number in sets.get(key, ()):
                        evidence.consider(HistoryKind.RELAYED, number, rate, window, True)
                elif key == word or key in about:
                    number = history.name.subject if key == word else about[key]
                    evidence.consider(history.name.kind, number, rate, window, True)
        evidence.neighbours = neighbours
        return evidence

    def _sets(self, word: int, neighbours: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """The key of every set of neighbours, where keys are of sets."""
        if self.settings.relay_keys == "each" or len(neighbours) > MAX_SET_NEIGHBOURS:
            return {}
        keys = derived_sets(word, np.array(neighbours, np.uint64)).tolist()
        return {
            key: tuple(number for place, number in enumerate(neighbours) if index >> place & 1)
            for index, key in enumerate(keys)
            if index
        }
