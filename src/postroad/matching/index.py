"""`SubscriptionIndex`: which of a million subscriptions want these messages?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.errors import PostroadError
from postroad.matching.batch_match import BUDGET, DONE, PENDING_FULL, RESULTS_FULL, ROW, STATUS, STOPPED, scan
from postroad.matching.ceilings import Ceilings
from postroad.matching.columns import CONJUNCTIONS_LIVE, RESIDENT_WORK
from postroad.matching.conjunctions import FILTER, HINT, attach, attach_nothing, detach
from postroad.matching.interner import Interner
from postroad.matching.lowered_rows import fan_out, lower, lower_topic
from postroad.matching.row_reader import SCRATCH_START
from postroad.matching.search import ROOM_WORDS
from postroad.matching.store import WORDS_FULL
from postroad.matching.table_hash import FIXED_SECRET
from postroad.matching.tables import Tables, grown
from postroad.messages import number_of
from postroad.messages.limits import MAX_HEADER_BYTES
from postroad.selectors import Selector, TopicPattern
from postroad.selectors.normal_form import Constraint, Operator

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from numpy.typing import NDArray

    from postroad.matching.lowered_rows import Member
    from postroad.messages import Batch
    from postroad.selectors.normal_form import Conjunction

__all__ = ["NO_BUDGET", "IndexStatistics", "MatchingError", "SubscriptionIndex", "WorkError"]

# The fewest removals between two compactions, so that a small index does not compact all the time.
_LEAST_REMOVALS = 1024
# Room for numbers that only Python can round, in one scan; doubled when a batch has more.
_HARD_ROWS = 1024
_FIRST_RESULTS = 4096
# Reaching a conjunction through each text of an IN multiplies its constraints, and each takes some microseconds to add.
# A selector that would get more constraints than this is reached in another way.
MAX_FANNED_CONSTRAINTS = 4_096
# More work than any batch can cause.
NO_BUDGET = 2**62
_LARGE_RESULT = 1 << 18

_NO_STARTS = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.float64)

_EVERYTHING: tuple[Conjunction, ...] = ((),)


class MatchingError(PostroadError):
    """A key is already in the index, or is not."""


class WorkError(MatchingError):
    """The conditions of a selector cost more than its allowance; `work` is what the index would have cost."""

    def __init__(self, work: int) -> None:
        self.work = work
        super().__init__(f"with this selector a message could take {work:,} ns or more to match, more than was allowed")


class IndexStatistics(NamedTuple):
    """What an index holds."""

    subscriptions: int
    conjunctions: int
    constraints: int
    attributes: int
    bytes: int
    work: int


class SubscriptionIndex:
    """Subscriptions by key, each a selector and a topic pattern, matched against whole batches.

    The result equals evaluating every selector on every message. Local subscriptions and what other brokers advertise
    can share one index: give them different keys, and tell them apart by slot.

    Not safe for use by two threads at once.

    Args:
        ceilings: how large its arrays may become.
        secret: 64 bits that key its hash tables, random where clients choose names and texts. Results do not depend on
            it.
    """

    def __init__(self, ceilings: Ceilings | None = None, secret: int = FIXED_SECRET) -> None:
        self._tables = Tables(ceilings or Ceilings(), secret)
        self._interner = Interner(self._tables)
        self._slots: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._removals = 0
        self._most_work = NO_BUDGET
        self._pending = np.zeros(1024, np.int32)
        self._scratch = np.zeros(SCRATCH_START + MAX_HEADER_BYTES, np.uint8)
        self._room = np.zeros(ROOM_WORDS, np.uint64)
        self._results = np.zeros(_FIRST_RESULTS, np.int32)
        self._hard = np.zeros((1 + _HARD_ROWS, 2), np.int64)
        self._progress = np.zeros(4, np.int64)
        self._progress[BUDGET] = self._budget = NO_BUDGET

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def add(
        self,
        key: Hashable,
        selector: Selector | str | None = None,
        topic: TopicPattern | str | None = None,
        allowance: int = NO_BUDGET,
    ) -> int:
        """Add a subscription; returns its slot, the number by which `match` reports it.

        Args:
            key: the caller's name for the subscription.
            selector: the condition on a message's attributes; None is any message.
            topic: the pattern of topics; None is any topic.
            allowance: how much the conditions of the selector may add to `work`.

        Raises:
            MatchingError: the key is in the index already.
            WorkError: the conditions cost more than the allowance; the rest of them was not looked at, and nothing has
                changed.
            LimitError: an array of the index is as large as it may be; nothing has changed.
            SelectorError, TopicError: a text does not parse.
        """
        if isinstance(selector, str):
            selector = Selector.parse(selector)
        return self.add_disjunction(key, _EVERYTHING if selector is None else selector.disjunction, topic, allowance)

    def add_disjunction(
        self,
        key: Hashable,
        disjunction: tuple[Conjunction, ...],
        topic: TopicPattern | str | None = None,
        allowance: int = NO_BUDGET,
    ) -> int:
        """Add a subscription of which only the disjunction is known, as other brokers advertise it."""
        if key in self._slots:
            raise MatchingError(f"subscription {key!r} is in the index already; remove it first")
        if isinstance(topic, str):
            topic = TopicPattern.parse(topic)
        self._most_work = min(self.work + allowance, NO_BUDGET)
        slot = self._attach(disjunction, topic)
        self._slots[key] = slot
        if slot >= len(self._keys):
            self._keys.extend([None] * (slot + 1 - len(self._keys)))
        self._keys[slot] = key
        return slot

    def remove(self, key: Hashable) -> None:
        """Remove a subscription. Its slot may be given to another one.

        Raises:
            MatchingError: the key is not in the index.
        """
        slot = self._slots.pop(key, None)
        if slot is None:
            raise MatchingError(f"subscription {key!r} is not in the index")
        self._keys[slot] = None
        self._detach(slot)
        self._removals += 1
        if self._removals > max(_LEAST_REMOVALS, self._tables.live_constraints):
            self._removals = 0
            self._interner.tidy()

    def slot(self, key: Hashable) -> int:
        """The slot of a subscription."""
        try:
            return self._slots[key]
        except KeyError:
            raise MatchingError(f"subscription {key!r} is not in the index") from None

    def keys(self, slots: Iterable[int]) -> list[Hashable]:
        """The keys of slots; for people and tests, not for the hot path."""
        keys = self._keys
        return [keys[slot] for slot in slots]

    def match(self, batch: Batch, budget: int = NO_BUDGET) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The subscriptions that want each message of a batch, as (offsets, slots).

        Row i is wanted by `slots[offsets[i]:offsets[i + 1]]`, each slot once, in no particular order.

        Args:
            batch: the messages.
            budget: about how many nanoseconds this and delivering what matched may take (`costs.py`). The match stops
                after the row that uses it up, and returns the rows so far: at least one, if there is one.
        """
        if budget != self._budget:
            self._progress[BUDGET] = self._budget = budget
        offsets = self._scan(batch, _NO_STARTS, _NO_VALUES)
        if self._hard[0, 0]:
            offsets = self._scan_with_hard_numbers(batch)
        total = int(offsets[-1])
        results = self._results
        if total < _LARGE_RESULT:
            return offsets, results[:total].copy()
        # Hand the array over instead of copying it. The new one takes no memory until a batch fills it.
        self._results = np.empty(len(results), np.int32)
        return offsets, results[:total]

    def match_charged(self, batch: Batch, budget: int) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """The same as `match`, and what of the budget it was charged, in about nanoseconds."""
        offsets, slots = self.match(batch, budget)
        return offsets, slots, int(self._hard[0, 1])

    def fill_from(self, other: SubscriptionIndex) -> None:
        """Hold what another index holds, under the same keys and slots; what was here before is gone.

        Copying costs a small part of what adding does, for networks whose brokers all know the same.
        """
        self._tables = other._tables.copied()
        self._interner = other._interner.copied(self._tables)
        self._slots = dict(other._slots)
        self._keys = list(other._keys)
        self._removals = other._removals

    def statistics(self) -> IndexStatistics:
        """How much the index holds and how much memory its arrays take."""
        tables = self._tables
        own = sum(array.nbytes for array in (self._pending, self._scratch, self._results))
        return IndexStatistics(
            subscriptions=len(self._slots),
            conjunctions=int(tables.counters[CONJUNCTIONS_LIVE]),
            constraints=tables.live_constraints,
            attributes=self._interner.attribute_count,
            bytes=tables.nbytes + own,
            work=self.work,
        )

    @property
    def work(self) -> int:
        """The most that matching a single message can cost, in about nanoseconds (`costs.py`)."""
        return int(self._tables.counters[RESIDENT_WORK])

    def _scan(self, batch: Batch, known: NDArray[np.int64], known_values: NDArray[np.float64]) -> NDArray[np.int64]:
        tables, interner, progress = self._tables, self._interner, self._progress
        offsets = np.empty(len(batch) + 1, np.int64)
        while True:
            # Passed one by one: bundling them here would cost a microsecond more per call (`bundles.py`).
            status = scan(
                batch.buffer, batch.spans, batch.ids, batch.envelopes, *tables.store, *tables.chunks,
                tables.values, tables.numbers, tables.memory, tables.seen, interner.stack, interner.floats,
                self._room, tables.present, self._pending, known, known_values, self._hard,
                self._scratch, self._scratch, progress, self._results, offsets,
            )  # fmt: skip
            if status == DONE:
                return offsets
            if status == STOPPED:
                return offsets[: progress[ROW] + 1]
            try:
                self._make_room(status)
            except BaseException:
                # So that the next match begins at its first row.
                progress[STATUS] = DONE
                raise

    def _make_room(self, status: int) -> None:
        if status == RESULTS_FULL:
            self._results = grown(self._results, 4 * len(self._results))
        elif status == PENDING_FULL:
            self._pending = grown(self._pending, 2 * len(self._pending))
        else:
            self._scratch = grown(self._scratch, 2 * len(self._scratch))

    def _scan_with_hard_numbers(self, batch: Batch) -> NDArray[np.int64]:
        """Scan again with the numbers that Python rounded, until none is missing."""
        settled: dict[int, float] = {}
        while True:
            count = int(self._hard[0, 0])
            for start, end in self._hard[1 : count + 1].tolist():
                number = number_of(batch.buffer[start:end].tobytes().decode())
                settled[start] = np.nan if number is None else float(number)
            if count + 1 == len(self._hard):
                self._hard = grown(self._hard, 2 * len(self._hard))
            known = np.array(sorted(settled), np.int64)
            offsets = self._scan(batch, known, np.array([settled[start] for start in known.tolist()]))
            if not self._hard[0, 0]:
                return offsets

    def _attach(self, disjunction: tuple[Conjunction, ...], topic: TopicPattern | None) -> int:
        if not disjunction:
            self._tables.make_room()
            return int(attach_nothing(self._tables.store))
        alternatives = _alternatives(disjunction)
        slot = -1
        try:
            for conjunction in alternatives:
                number = self._attach_one(conjunction, topic, slot, len(alternatives) > 1)
                slot = number if slot < 0 else slot
        except BaseException:
            if slot >= 0:
                self._detach(slot)
            raise
        return slot

    def _attach_one(self, conjunction: Conjunction, topic: TopicPattern | None, slot: int, multiple: bool) -> int:
        interner, counters = self._interner, self._tables.counters
        members: list[Member] = []
        try:
            for constraint in conjunction:
                members.extend(lower(interner, constraint))
                if counters[RESIDENT_WORK] > self._most_work:
                    raise WorkError(self.work)
            members.extend(lower_topic(interner, topic))
            if all(role == FILTER for _, role in members):
                members.append((interner.always(), HINT))
        except BaseException:
            interner.release([number for number, _ in members])
            raise
        numbers = np.array([number for number, _ in members], np.int32)
        roles = np.array([role for _, role in members], np.int32)
        rest = np.empty(len(members), np.int32)
        tables = self._tables
        try:
            tables.make_room()
            while True:
                number = attach(tables.store, tables.chunks, numbers, roles, rest, slot, multiple)
                if number != WORDS_FULL:
                    return int(number)
                tables.grow_words()
        except BaseException:
            interner.release(numbers.tolist())
            raise

    def _detach(self, slot: int) -> None:
        detach(self._tables.store, self._tables.chunks, slot)


def _alternatives(disjunction: tuple[Conjunction, ...]) -> list[Conjunction]:
    """The conjunctions of a subscription, fanned out unless that makes too many constraints."""
    alternatives = [part for conjunction in disjunction for part in _fanned_out(conjunction)]
    if sum(map(len, alternatives)) > MAX_FANNED_CONSTRAINTS:
        return list(disjunction)
    return alternatives


def _fanned_out(conjunction: Conjunction) -> list[Conjunction]:
    """A conjunction that is best reached through an IN, as one conjunction for each of its texts."""
    chosen = fan_out(conjunction)
    if chosen is None:
        return [conjunction]
    rest = tuple(part for part in conjunction if part is not chosen)
    return [(Constraint(chosen.attribute, Operator.EQUAL_TEXT, text), *rest) for text in chosen.operand]
