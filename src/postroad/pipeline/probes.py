"""Probes filters for many ids at once: one call per filter for all ids of its origin and time.

A filter's bytes are never joined to an id. Filters and ids of one origin and bin of time meet in one task. There the
filters of each broker say whether it had the messages; if so, further filters say to whom it relayed them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.filters import BloomFilter, FilterError, RibbonFilter, derived_keys, hash_ids, mix64
from postroad.messages import MessageId
from postroad.messages.id_columns import id_words
from postroad.pipeline.findings import DAMAGED, HIT
from postroad.pipeline.tables import ID
from postroad.tracking import FilterSegment, HistoryKind, covers, evidence_of, without_superseded
from postroad.trail import TrailDamageError, filter_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from postroad.pipeline.context import Context
    from postroad.tracking import Stays

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Bits = NDArray[np.bool_]

__all__ = ["FILTER_COLUMNS", "HITS_SCHEMA", "Question", "hits_of", "loaded", "segments_by_broker"]

# The columns read of a filter: all but the keys it was made of.
FILTER_COLUMNS = (
    "broker", "kind", "origin", "subject", "time_from", "time_to", "singles", "opened", "sealed", "entries",
    "capacity", "method", "bits", "hashes", "seed", "ones", "data", "crc",
)  # fmt: skip
HITS_SCHEMA = pa.schema(
    [
        *((name, pa.int32() if name == "counter" else pa.int64()) for name in ID),
        ("broker", pa.int64()),
        ("hits", pa.binary()),
    ]
)

_OWN = (HistoryKind.ACCEPTED, HistoryKind.ARRIVED)
_ABOUT_NEIGHBOURS = (HistoryKind.RELAYED, HistoryKind.ARRIVED_FROM)
_ABOUT_SUBSCRIPTIONS = (
    HistoryKind.DELIVERED,
    HistoryKind.ACKNOWLEDGED,
    HistoryKind.REFUSED,
    HistoryKind.QUEUED,
)
_IN_BULK = frozenset({*_OWN, *_ABOUT_NEIGHBOURS, *_ABOUT_SUBSCRIPTIONS})


def loaded(segment: FilterSegment) -> BloomFilter | RibbonFilter:
    """Return the filter in a row.

    Raises:
        FilterError: the bytes are not a filter that this version can probe.
    """
    if segment.method == "bloom":
        return BloomFilter.from_bytes(segment.data, segment.bits, segment.hashes)
    if segment.method == "ribbon":
        return RibbonFilter.from_bytes(segment.data)
    raise FilterError(f"a filter of method {segment.method!r} cannot be asked here")


class Question(NamedTuple):
    """Ids of one origin to probe filters for."""

    head: Words
    tail: Words
    hashes: Words
    times: Ints

    @classmethod
    def of(cls, ids: Any) -> Question:
        columns = {name: ids.column(name).to_numpy() for name in ID}
        words = id_words(columns["origin"], columns["time"], columns["publisher"], columns["counter"])
        return cls(words[:, 0], words[:, 1], hash_ids(words), columns["time"])

    def some(self, rows: Ints) -> Question:
        return Question(self.head[rows], self.tail[rows], self.hashes[rows], self.times[rows])

    def one(self, row: int) -> MessageId:
        return MessageId.of(int(self.head[row]), int(self.tail[row]))


class _Answers:
    """Positive answers and their doubts for one kind of history: a row for each id, a column for each number."""

    def __init__(self, kind: int, rows: Ints, numbers: Ints) -> None:
        shape = (len(rows), len(numbers))
        self._kind = kind
        self._rows = rows
        self.numbers = numbers
        self._sure = np.zeros(shape)
        self._yes = np.zeros(shape, np.bool_)
        self._since = np.zeros(shape, np.int64)
        self._until = np.zeros(shape, np.int64)

    def note(self, segment: FilterSegment, rate: float, row: Ints, column: Ints, times: Ints, found: Bits) -> None:
        """Record what a filter with that error rate, which covers the times, answered to some pairs."""
        self._sure[row, column] += np.log1p(-rate) if rate < 1 else -np.inf
        row, column, when = row[found], column[found], times[found]
        self._yes[row, column] = True
        # A filter that covers the time only by a single time says nothing about a window.
        inside = (segment.time_from <= when) & (when <= segment.time_to)
        self._since[row, column] = np.where(inside, segment.time_from, when)
        self._until[row, column] = np.where(inside, segment.time_to, when)

    def any(self) -> Ints:
        """Return the ids with a positive answer."""
        return self._rows[self._yes.any(axis=1)]

    def hits(self) -> tuple[Ints, Any]:
        """Return the row of each positive answer, and the answers."""
        row, column = np.nonzero(self._yes)
        found = np.empty(len(row), HIT)
        found["kind"], found["number"] = self._kind, self.numbers[column]
        found["doubt"] = -np.expm1(self._sure[row, column])
        found["time_from"], found["time_to"] = self._since[row, column], self._until[row, column]
        return self._rows[row], found


def _together(answers: Iterable[_Answers]) -> tuple[Ints, Any]:
    """Return the positive answers of all kinds, by row."""
    parts = [one.hits() for one in answers]
    row = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
    hits = np.concatenate([np.empty(0, HIT), *(part[1] for part in parts)])
    order = np.argsort(row, kind="stable")
    return row[order], hits[order]


def hits_of(context: Context, ids: Any, filters: Any) -> Any:
    """Return what the filters of all brokers say about ids of one origin: a row for each id and broker that had it."""
    question = Question.of(ids)
    tables = []
    for broker, segments, damaged in segments_by_broker(filters):
        row, hits = _asked(context, broker, segments, question)
        if damaged:
            row, hits = _with_damage(row, hits, damaged, len(question.times))
        if len(row):
            tables.append(_table(ids, broker, row, hits))
    return pa.concat_tables(tables) if tables else HITS_SCHEMA.empty_table()


def segments_by_broker(filters: Any) -> Iterator[tuple[int, list[FilterSegment], list[tuple[int, int]]]]:
    """Yield the filters of each broker, and the times of its damaged filters."""
    found: dict[int, list[FilterSegment]] = defaultdict(list)
    damaged: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in filters.select(list(FILTER_COLUMNS)).to_pylist():
        broker = row["broker"]
        try:
            segment = filter_segment(row)
            loaded(segment)
            found[broker].append(segment)
        except (FilterError, TrailDamageError):
            damaged[broker].append((row["time_from"], row["time_to"]))
    for broker in sorted({*found, *damaged}):
        yield broker, without_superseded(found[broker]), damaged[broker]


def _asked(context: Context, broker: int, segments: Sequence[FilterSegment], question: Question) -> tuple[Ints, Any]:
    if any(segment.kind not in _IN_BULK for segment in segments):
        return _one_by_one(context, broker, segments, question)
    everyone = np.arange(len(question.times))
    own = {kind: _Answers(kind, everyone, np.zeros(1, np.int64)) for kind in _OWN}
    for segment in segments:
        if segment.kind in _OWN:
            rows = np.flatnonzero(covers(segment, question.times))
            made = loaded(segment)
            found = made.contains(question.hashes[rows])
            own[segment.kind].note(segment, made.rate, rows, np.zeros_like(rows), question.times[rows], found)
    had = np.unique(np.concatenate([answers.any() for answers in own.values()]))
    some = question.some(had)
    asked = _key_times(context, segments, some.times)
    about = {
        **dict.fromkeys(_ABOUT_NEIGHBOURS, _present(context.links[broker], *asked)),
        **dict.fromkeys(_ABOUT_SUBSCRIPTIONS, _present(context.subscriptions[broker], *asked)),
    }
    others: dict[int, _Answers] = {}
    for segment in segments:
        if segment.kind not in _OWN:
            numbers = about[segment.kind][0]
            if segment.kind not in others:
                subjects = {one.subject for one in segments if one.kind == segment.kind and one.subject}
                others[segment.kind] = _Answers(segment.kind, had, np.union1d(numbers, np.array([*subjects], np.int64)))
            _ask_numbers(others[segment.kind], segment, about[segment.kind], some)
    return _together([*own.values(), *others.values()])


def _ask_numbers(answers: _Answers, segment: FilterSegment, present: tuple[Ints, Bits], some: Question) -> None:
    """Probe a filter of keys (id, number) for all pairs at once."""
    rows = np.flatnonzero(covers(segment, some.times))
    if not len(rows):
        return
    made = loaded(segment)
    if segment.subject:
        column = np.full(len(rows), np.searchsorted(answers.numbers, segment.subject))
        found = made.contains(some.hashes[rows])
        answers.note(segment, made.rate, rows, column, some.times[rows], found)
        return
    numbers, there = present
    place, number = np.nonzero(there[rows])
    # mix64(hash xor mix64(number)): the mixed numbers go into the words, so that one call makes the keys of all pairs.
    mixed = np.array([mix64(int(one)) for one in numbers], np.uint64)
    words = some.hashes[rows][place] ^ mixed[number] ^ np.uint64(mix64(0))
    found = made.contains(derived_keys(words, 0))
    row, column = rows[place], np.searchsorted(answers.numbers, numbers)[number]
    answers.note(segment, made.rate, row, column, some.times[row], found)


def _key_times(context: Context, segments: Sequence[FilterSegment], times: Ints) -> tuple[Ints, Ints]:
    """Return when keys of each id may have come into filters, from and to: as `key_times`, for many ids."""
    since, until = times - context.skew, times + context.tolerance + context.skew
    for segment in segments:
        rows = covers(segment, times)
        since[rows], until[rows] = np.minimum(since[rows], segment.opened), np.maximum(until[rows], segment.sealed)
    return since, until


def _present(stays: Stays, since: Ints, until: Ints) -> tuple[Ints, Bits]:
    """Return the numbers that were present at some time, and bool[id, number]: present in the time of that id."""
    numbers = np.unique(stays.number)
    there = np.zeros((len(since), len(numbers)), np.bool_)
    column = np.searchsorted(numbers, stays.number)
    for place, begun, ended in zip(column, stays.since, stays.until, strict=True):
        there[:, place] |= (begun <= until) & (ended >= since)
    return numbers, there


def _one_by_one(
    context: Context, broker: int, segments: Sequence[FilterSegment], question: Question
) -> tuple[Ints, Any]:
    """Probe filters whose keys are about sets of neighbours: one id at a time."""
    rows, hits = [], []
    since, until = _key_times(context, segments, question.times)
    for row in range(len(question.times)):
        id = question.one(row)
        asked = int(since[row]), int(until[row])
        around, at_home = context.links[broker].between(*asked), context.subscriptions[broker].between(*asked)
        evidence = evidence_of(segments, id, around, at_home)
        found = [
            (kind, hit.number, hit.doubt, hit.time_from, hit.time_to)
            for kind in sorted(_IN_BULK)
            for hit in evidence.hits(kind)
        ]
        rows += [row] * len(found)
        hits += found
    return np.array(rows, np.int64), np.array(hits, HIT)


def _with_damage(row: Ints, hits: Any, damaged: Iterable[tuple[int, int]], count: int) -> tuple[Ints, Any]:
    """Add to every id of the group that filters could not be probed: a negative answer then proves nothing."""
    notes = np.zeros(count, HIT)
    notes["kind"], notes["number"] = DAMAGED, len(list(damaged))
    row = np.concatenate([row, np.arange(count)])
    order = np.argsort(row, kind="stable")
    return row[order], np.concatenate([hits, notes])[order]


def _table(ids: Any, broker: int, row: Ints, hits: Any) -> Any:
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    offsets = (np.append(starts, len(row)) * HIT.itemsize).astype(np.int32)
    packed = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(hits.tobytes())]
    )
    chosen = ids.select(list(ID)).take(pa.array(row[starts]))
    columns = [*chosen.columns, pa.array(np.full(len(starts), broker)), packed]
    return pa.Table.from_arrays(columns, schema=HITS_SCHEMA)
