"""What other brokers want, and the way from a match to destinations.

Exact interests are in the same index as the local subscriptions, so one match answers both questions: which local
subscriptions want a message, and which brokers. A slot belongs to a local subscription (owner 0) or to a broker (owner:
its number). Encoded interests are in a matrix of their own; the brokers that it names may want a message.

Many rows of a batch go to the same brokers. So `split_by_owner` gives each row the place of its set among the distinct
sets of the batch (`routing.destinations`), which an open hash table finds: a word of `table` is -1, or such a place. It
writes the set of each row after the last distinct one, and keeps it there only if it is new.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from postroad.errors import PostroadError
from postroad.kernels import kernel
from postroad.matching import NO_BUDGET
from postroad.matching.encoding import (
    EncodedPredicates,
    EncodingError,
    PredicateMatrix,
    decode_exact_in_steps,
    from_bytes_in_steps,
)
from postroad.routing.destinations import Destinations, same_set, set_hash
from postroad.topology import bit_words

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from postroad.matching import SubscriptionIndex
    from postroad.matching.cover import Row
    from postroad.matching.encoding import Scheme
    from postroad.messages import Batch
    from postroad.routing import Delta

    # Rows in order, each once.
    _Rows = dict[Row, None]

__all__ = ["Advertised", "Interests", "Split"]

LOCAL = 0
# Rows added to or removed from the index in one step: about 4 ms.
STEP = 64
# Rows of encoded interests merged in one step: about 4 ms.
MERGE_STEP = 2_048


class Advertised(NamedTuple):
    """What a broker advertised, decoded: rows that are exact, or vectors.

    Rows keep the order in which they were said: what the index makes of them does not depend on hashes, and two
    processes with the same input do the same.

    Attributes:
        added: what it wants from now on; None if it is gone.
        removed: what it no longer wants; None if `added` is all that it wants.
    """

    added: _Rows | EncodedPredicates | None
    removed: _Rows | EncodedPredicates | None


# Sets of one batch that may share a place in their table. The hash is not secret: a publisher could choose the
# destinations of its messages so that all sets share one place.
MAX_PROBES = 64

# The result of an index: where each row's slots begin, and the slots.
Matched = tuple["NDArray[np.int64]", "NDArray[np.int32]"]


class Split(NamedTuple):
    """A match, split by owner.

    Attributes:
        destinations: the brokers that want each row.
        offsets: where each row's local slots begin in `slots`.
        slots: the local slots.
    """

    destinations: Destinations
    offsets: NDArray[np.int64]
    slots: NDArray[np.int32]


@kernel(
    "UniTuple(int64, 2)(int64[::1], int32[::1], int64[::1], uint64[:, ::1], int64[::1], int64[::1], int64[::1],"
    " int32[::1])",
    allocates=False,
)
def split_by_owner(
    offsets: NDArray[np.int64],
    slots: NDArray[np.int32],
    owners: NDArray[np.int64],
    sets: NDArray[np.uint64],
    lines: NDArray[np.int64],
    table: NDArray[np.int64],
    local_offsets: NDArray[np.int64],
    local_slots: NDArray[np.int32],
) -> tuple[int, int]:
    """Put local slots into one array and brokers into a dictionary of distinct sets; return how many of each there are.

    `sets` has one line more than there are rows; `table` is a power of two larger than that, filled with -1. Slots come
    from the index, and those beyond `owners` are local; a broker's number is below 64 times the words of a set.
    """
    distinct = 0
    local = 0
    mask = np.uint64(table.size - 1)
    local_offsets[0] = 0
    for row in range(offsets.size - 1):
        for word in range(sets.shape[1]):
            sets[distinct, word] = np.uint64(0)
        for place in range(offsets[row], offsets[row + 1]):
            owner = owners[slots[place]] if slots[place] < owners.size else LOCAL
            if owner == LOCAL:
                local_slots[local] = slots[place]
                local += 1
            else:
                sets[distinct, owner >> 6] |= np.uint64(1) << np.uint64(owner & 63)
        local_offsets[row + 1] = local
        at = set_hash(sets, distinct) & mask
        probes = 0
        while table[at] >= 0 and probes < MAX_PROBES and not same_set(sets, table[at], distinct):
            at = (at + np.uint64(1)) & mask
            probes += 1
        if table[at] >= 0 and probes < MAX_PROBES:
            lines[row] = table[at]
        else:
            # A new set, or one of too many that share a place; in that case it may be in the dictionary twice.
            if table[at] < 0:
                table[at] = distinct
            lines[row] = distinct
            distinct += 1
    return distinct, local


@kernel("int64(int64[::1], int32[::1], int64[::1], int64[::1], int32[::1])", allocates=False)
def local_of(
    offsets: NDArray[np.int64],
    slots: NDArray[np.int32],
    owners: NDArray[np.int64],
    local_offsets: NDArray[np.int64],
    local_slots: NDArray[np.int32],
) -> int:
    """Return how many local slots there are; fill the slots of each row, and where they begin. See `split_by_owner`."""
    local = 0
    local_offsets[0] = 0
    for row in range(offsets.size - 1):
        for place in range(offsets[row], offsets[row + 1]):
            if slots[place] >= owners.size or owners[slots[place]] == LOCAL:
                local_slots[local] = slots[place]
                local += 1
        local_offsets[row + 1] = local
    return local


class Interests:
    """The interests of other brokers: exact ones in an index that local subscriptions share, encoded ones in a matrix.

    Args:
        index: the local subscriptions.
        scheme: how brokers encode what they want; None if they advertise it exactly.
        most_work: what the exact interest of one broker may add to the work that a message can cost
            (`SubscriptionIndex.work`), whatever limits that broker has for its own subscriptions.
    """

    def __init__(self, index: SubscriptionIndex, scheme: Scheme | None = None, most_work: int = NO_BUDGET) -> None:
        self.index = index
        self._owners = np.zeros(64, np.int64)
        self._exact: dict[int, _Rows] = {}
        self._most_work = most_work
        # What each broker's rows have added to the work of the index. Conditions that several rows share are counted
        # for the first of them, so this is approximate; it is exact again when a broker has no rows.
        self._work: dict[int, int] = {}
        self._encoded: dict[int, EncodedPredicates] = {}
        self._matrix = None if scheme is None else PredicateMatrix(scheme)
        self._words = 1

    @property
    def brokers(self) -> tuple[int, ...]:
        """Return the brokers whose interest is known."""
        return tuple(self._exact if self._matrix is None else self._encoded)

    def replace(self, broker: int, summary: bytes | None) -> None:
        """Replace the interest of a broker; empty bytes if it has not said anything yet, None if it is gone.

        Raises:
            EncodingError, LimitError: the bytes are not an advertisement; what was known about the broker stays.
        """
        _finish(self._learn(broker, summary))

    def change(self, broker: int, delta: Delta) -> None:
        """Change the interest of a broker.

        Raises:
            EncodingError, LimitError: the bytes are not an advertisement; what was known about the broker stays.
        """
        _finish(self._learn(broker, delta))

    def _learn(self, broker: int, said: bytes | Delta | None) -> Generator[None, None, None]:
        yield from self.apply(broker, (yield from self.read(said)))

    def read(self, said: bytes | Delta | None) -> Generator[None, None, Advertised]:
        """Decode an advertisement, a step at a time, and change nothing.

        Raises:
            EncodingError, LimitError: the bytes are not an advertisement.
        """
        if said is None or isinstance(said, bytes):
            rows = None if said is None else (yield from self._rows(said))
            return Advertised(rows, None)
        added, removed = said
        return Advertised((yield from self._rows(added)), (yield from self._rows(removed)))

    def apply(self, broker: int, advertised: Advertised) -> Generator[None, None, None]:
        """Apply what was decoded, a step at a time: first additions, then removals, so that no subscriber is missed.

        Raises:
            PostroadError: the index has no room for it; what was known about the broker stays.
        """
        self._words = max(self._words, bit_words(broker))
        added, removed = advertised
        if self._matrix is not None:
            yield from self._set_encoded(self._matrix, broker, advertised)
            return
        held = self._exact.setdefault(broker, {})
        came, said_no_more = cast("_Rows", added or {}), cast("_Rows | None", removed)
        if said_no_more is None:
            went = [row for row in held if row not in came]
        else:
            went = [row for row in said_no_more if row in held]
        yield from self._set_exact(broker, [row for row in came if row not in held], went)
        if not held:
            self._work.pop(broker, None)
        if added is None:
            self._exact.pop(broker, None)

    def everything(self) -> Advertised:
        """Return the interest of a broker of which nothing better is known: everything."""
        if self._matrix is not None:
            return Advertised(EncodedPredicates(self._matrix.scheme, [()]), None)
        rows: _Rows = {(">", ()): None}
        return Advertised(rows, None)

    def fill_from(self, known: Interests) -> None:
        """Know what another one knows, under the same slots, with a copy of its index; both are exact.

        What was in the index before is gone: local subscriptions have to enter it again.
        """
        self.index.fill_from(known.index)
        self._owners = known._owners.copy()
        self._exact = {broker: dict(rows) for broker, rows in known._exact.items()}
        self._work = dict(known._work)
        self._words = known._words

    def _rows(self, data: bytes) -> Generator[None, None, _Rows | EncodedPredicates]:
        if self._matrix is not None:
            return (yield from self._vectors(self._matrix, data))
        return dict.fromkeys((yield from decode_exact_in_steps(data))) if data else {}

    def _set_exact(self, broker: int, added: Sequence[Row], removed: Sequence[Row]) -> Generator[None, None, None]:
        """Apply all of it, or nothing if the index refuses a row."""
        held = self._exact[broker]
        entered: list[Row] = []
        try:
            for row in added:
                self._enter(broker, row)
                entered.append(row)
                if len(entered) % STEP == 0:
                    yield
        except PostroadError:
            for number, row in enumerate(entered):
                self._strike(broker, row)
                if number % STEP == STEP - 1:
                    yield
            raise
        except GeneratorExit:
            # Aborted, because the broker is gone or starts again: all that it had is removed next, and these rows with
            # it.
            held.update(dict.fromkeys(entered))
            raise
        held.update(dict.fromkeys(added))
        for number, row in enumerate(removed):
            held.pop(row, None)
            self._strike(broker, row)
            if number % STEP == STEP - 1:
                yield

    def _enter(self, broker: int, row: Row) -> None:
        topic, conjunction = row
        before, used = self.index.work, self._work.get(broker, 0)
        slot = self.index.add_disjunction((broker, row), (conjunction,), topic, max(0, self._most_work - used))
        self._work[broker] = used + self.index.work - before
        if slot >= len(self._owners):
            self._owners = np.concatenate([self._owners, np.zeros(slot + 1, np.int64)])
        self._owners[slot] = broker

    def _strike(self, broker: int, row: Row) -> None:
        key, before = (broker, row), self.index.work
        self._owners[self.index.slot(key)] = LOCAL
        self.index.remove(key)
        self._work[broker] = max(0, self._work.get(broker, 0) + self.index.work - before)

    def _vectors(self, matrix: PredicateMatrix, data: bytes) -> Generator[None, None, EncodedPredicates]:
        if not data:
            return EncodedPredicates(matrix.scheme)
        read = yield from from_bytes_in_steps(data)
        if read.scheme != matrix.scheme:
            raise EncodingError(f"an advertisement by {read.scheme}, where this network agreed on {matrix.scheme}")
        return read

    def _set_encoded(self, matrix: PredicateMatrix, broker: int, advertised: Advertised) -> Generator[None, None, None]:
        added, removed = cast("tuple[EncodedPredicates | None, EncodedPredicates | None]", advertised)
        if added is None:
            self._encoded.pop(broker, None)
            matrix.remove(broker)
            return
        wanted = added
        if removed is not None:
            held = self._encoded.get(broker, EncodedPredicates(matrix.scheme))
            wanted = EncodedPredicates.canonical(matrix.scheme, (yield from _merged(held, added, removed)))
        yield from matrix.replace_in_steps(broker, wanted)
        self._encoded[broker] = wanted

    def split(self, batch: Batch, matched: Matched | None = None, *, entering: bool) -> Split:
        """Return which brokers and which local slots want each row; the brokers only for rows that enter here.

        Args:
            batch: the rows.
            matched: the result of the index for them, if it is known.
            entering: whether the rows enter the network here.
        """
        offsets, slots = self.index.match(batch) if matched is None else matched
        if not entering:
            return Split(Destinations.nowhere(len(offsets) - 1), *self.local(offsets, slots))
        if self._matrix is None:
            return self._split(offsets, slots)
        sets, lines = np.unique(self._matrix.match(batch), axis=0, return_inverse=True)
        return Split(Destinations(sets, lines.reshape(-1).astype(np.int64)), offsets, slots)

    def _split(self, offsets: NDArray[np.int64], slots: NDArray[np.int32]) -> Split:
        rows = len(offsets) - 1
        sets = np.empty((rows + 1, self._words), np.uint64)
        lines, local_offsets = np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
        local_slots = np.empty(len(slots), np.int32)
        table = np.full(1 << (rows + 1).bit_length(), -1, np.int64)
        distinct, local = split_by_owner(offsets, slots, self._owners, sets, lines, table, local_offsets, local_slots)
        return Split(Destinations(sets[: max(distinct, 1)].copy(), lines), local_offsets, local_slots[:local])

    def local(
        self, offsets: NDArray[np.int64], slots: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return a match without the brokers that want a row: where its local slots begin, and the slots."""
        if self._matrix is None:
            local_offsets, local_slots = np.empty(len(offsets), np.int64), np.empty(len(slots), np.int32)
            local = local_of(offsets, slots, self._owners, local_offsets, local_slots)
            offsets, slots = local_offsets, local_slots[:local]
        return offsets, slots


def _finish(steps: Generator[None, None, None]) -> None:
    for _ in steps:
        pass


def _merged(
    held: EncodedPredicates, added: EncodedPredicates, removed: EncodedPredicates
) -> Generator[None, None, list[tuple[int, ...]]]:
    """Return the rows of both lists without the removed ones, in order, a step at a time."""
    gone: set[tuple[int, ...]] = set()
    for first in range(0, len(removed), MERGE_STEP):
        if first:
            yield
        gone.update(removed.rows[first : first + MERGE_STEP])
    rows: list[tuple[int, ...]] = []
    for number, row in enumerate(heapq.merge(held.rows, added.rows)):
        if row not in gone and (not rows or rows[-1] != row):
            rows.append(row)
        if number % MERGE_STEP == MERGE_STEP - 1:
            yield
    return rows
