"""The verdict on many ids at once: plain evidence by array operations, the rest one id at a time.

Plain is what nearly all messages of a healthy network leave behind: every hop told by both of its ends, no gap in the
record of any broker on the way, nothing dropped. For such ids the verdict of `Reconstruction` comes down to counting,
which `tests/pipeline/test_judging.py` holds against it. An id that is not plain goes to `Reconstruction` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.messages import MessageId
from postroad.pipeline.evidence import ASKED, HITS, JOURNEY, PASSAGE
from postroad.pipeline.findings import HIT, journey_of
from postroad.pipeline.tables import ID
from postroad.tracking import HERE, HistoryKind, Verdict
from postroad.trail import unpack_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from postroad.pipeline.context import Context
    from postroad.tracking import Journey

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bits = NDArray[np.bool_]

__all__ = ["VERDICT_SCHEMA", "Judge", "judged"]

_SOURCES = 6
# Brokers have numbers below 2^16 (postroad.topology.LARGEST_BROKER): a hop fits in 32 bits, and a group beside it.
_BROKER_BITS = 16

_SUBSCRIBER = pa.struct([("broker", pa.int64()), ("subscriber", pa.int64()), ("doubt", pa.float64())])
_LOST = pa.struct([("broker", pa.int64()), ("neighbour", pa.int64()), ("doubt", pa.float64())])
_PRUNED = pa.struct([*_LOST, ("reason", pa.string())])
_GAP = pa.struct([("broker", pa.int64()), ("since", pa.int64()), ("until", pa.int64()), ("reason", pa.string())])

VERDICT_SCHEMA = pa.schema(
    [
        ("asked", pa.string()),
        ("origin", pa.int64()),
        ("time", pa.int64()),
        ("publisher", pa.int64()),
        ("counter", pa.int32()),
        ("verdict", pa.string()),
        ("certainty", pa.float64()),
        ("brokers", pa.list_(pa.int64())),
        ("subscribers", pa.list_(_SUBSCRIBER)),
        ("acknowledged", pa.list_(_SUBSCRIBER)),
        ("lost", pa.list_(_LOST)),
        ("pruned", pa.list_(_PRUNED)),
        ("gaps", pa.list_(_GAP)),
        ("silent", pa.list_(pa.int64())),
    ]
)


class Answers(NamedTuple):
    """What plain evidence says, as rows about groups (ids).

    Attributes:
        stops: (group, broker) of each broker passed.
        delivered: (group, broker, subscriber) of each delivery.
        doubts: of each delivery.
        acknowledged: (group, broker, subscriber).
        surety: 1 minus the doubt that it entered at its origin; by group.
    """

    stops: tuple[Ints, Ints]
    delivered: tuple[Ints, Ints, Ints]
    doubts: Floats
    acknowledged: tuple[Ints, Ints, Ints]
    surety: Floats


class Judge:
    """Judges sorted evidence, batch by batch; made by the driver, run by the workers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Verdicts, for `mapInArrow`. Rows of one id may lie in two batches: the last id waits for the next batch."""
        held: Any = None
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if held is not None:
                rows = pa.concat_tables([held, rows])
            starts = _starts(rows)
            cut = int(starts[-1]) if len(starts) else 0
            held = rows.slice(cut)
            if cut:
                yield from judged(self._context, rows.slice(0, cut)).to_batches()
        if held is not None and held.num_rows:
            yield from judged(self._context, held).to_batches()


def judged(context: Context, rows: Any) -> Any:
    """The verdicts on all ids of some evidence, one row for each question."""
    rows = rows.combine_chunks()
    starts = _starts(rows)
    columns = {name: rows.column(name).to_numpy() for name in (*ID, "source")}
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, rows.num_rows)))
    counts = np.bincount(group * _SOURCES + columns["source"], minlength=len(starts) * _SOURCES)
    kinds = counts.reshape(len(starts), _SOURCES)
    kinds[:, ASKED] = 0
    only = kinds.sum(axis=1)[:, None] == kinds
    at = {name: columns[name][starts] for name in ID}
    view = _View(context, rows, group, columns["source"], at)
    parts = [
        _never(view, np.flatnonzero(kinds.sum(axis=1) == 0)),
        _walked(view, np.flatnonzero(only[:, JOURNEY] & (kinds[:, JOURNEY] == 1)), JOURNEY),
        _walked(view, np.flatnonzero(only[:, PASSAGE] & (kinds[:, PASSAGE] > 0)), PASSAGE),
        _walked(view, np.flatnonzero(only[:, HITS] & (kinds[:, HITS] > 0)), HITS),
    ]
    done = np.zeros(len(starts), np.bool_)
    for plain, _ in parts:
        done[plain] = True
    others = np.flatnonzero(~done)
    verdicts = pa.concat_tables([*(table for _, table in parts), _one_by_one(view, others)])
    order = np.concatenate([*(plain for plain, _ in parts), others])
    return _for_each_question(view, verdicts, order)


class _View(NamedTuple):
    """The evidence of a batch, and where its groups are."""

    context: Context
    rows: Any
    group: Ints
    source: Ints
    at: dict[str, Ints]

    def chosen(self, groups: Ints, source: int) -> Ints:
        """Rows of a kind that belong to some groups."""
        wanted = np.zeros(len(self.at["origin"]), np.bool_)
        wanted[groups] = True
        return np.flatnonzero(wanted[self.group] & (self.source == source))

    def numbers(self, name: str, rows: Ints) -> Ints:
        """A column of some rows, in which it is never null."""
        return np.asarray(self.rows.column(name).take(pa.array(rows)).to_numpy(), np.int64)

    def lists(self, name: str, rows: Ints) -> tuple[Ints, Ints]:
        """The numbers in the packed lists of some rows, and the place of its row for each number."""
        offsets, numbers = unpack_lists(self.rows.column(name).take(pa.array(rows)))
        return np.repeat(np.arange(len(rows)), np.diff(offsets)), numbers


def _starts(rows: Any) -> Ints:
    """Where each id begins in sorted rows."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    fresh = np.ones(rows.num_rows, np.bool_)
    fresh[1:] = False
    for name in ID:
        values = rows.column(name).to_numpy()
        fresh[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(fresh)


def _never(view: _View, groups: Ints) -> tuple[Ints, Any]:
    """Ids of which nothing is known, though their origins have complete records of the time."""
    certain = groups[view.context.is_complete(view.at["origin"][groups], view.at["time"][groups])]
    verdicts = np.full(len(certain), Verdict.NEVER_ACCEPTED.value, object)
    return certain, _table(verdicts, np.ones(len(certain)), *(_Rows.empty(len(certain)) for _ in range(3)))


def _walked(view: _View, groups: Ints, source: int) -> tuple[Ints, Any]:
    """Ids with evidence of one kind; those among them that are not plain are left out."""
    if not len(groups):
        return groups, _table(np.empty(0, object), np.empty(0), *(_Rows.empty(0) for _ in range(3)))
    rows = view.chosen(groups, source)
    plain = np.zeros(len(view.at["origin"]), np.bool_)
    plain[groups] = True
    read = {JOURNEY: _from_journeys, PASSAGE: _from_passages, HITS: _from_hits}[source]
    answers = read(view, rows, plain)
    stop_group, broker = answers.stops
    complete = view.context.is_complete(broker, view.at["time"][stop_group])
    plain[stop_group[~complete]] = False
    return _counted(np.flatnonzero(plain), plain, answers)


def _counted(chosen: Ints, plain: Bits, answers: Answers) -> tuple[Ints, Any]:
    """The verdicts on plain ids: what was delivered, and acknowledged."""
    size = len(plain)
    group = answers.delivered[0]
    received = np.bincount(group, minlength=size)
    # One true delivery is enough: all of them must be false answers for the verdict to be wrong.
    wrong = np.ones(size)
    np.multiply.at(wrong, group, answers.doubts)
    taken, told = _triples(answers.delivered), _triples(answers.acknowledged)
    answered = np.bincount(group[np.isin(taken, told)], minlength=size)
    verdict = np.where(answered == received, Verdict.ACKNOWLEDGED.value, Verdict.DELIVERED.value).astype(object)
    verdict[received == 0] = Verdict.MATCHED_NOBODY.value
    certainty = answers.surety * np.where(received > 0, 1 - wrong, 1)
    place = np.full(size, -1)
    place[chosen] = np.arange(len(chosen))
    return chosen, _table(
        verdict[chosen],
        certainty[chosen],
        _Rows.of(place, len(chosen), *answers.stops),
        _Rows.of(place, len(chosen), *answers.delivered, answers.doubts),
        _Rows.of(place, len(chosen), *answers.acknowledged, np.zeros(len(told))),
    )


def _triples(rows: tuple[Ints, Ints, Ints]) -> Any:
    """(group, broker, subscriber) as one value that can be compared."""
    pair = np.empty(len(rows[0]), np.dtype([("place", np.int64), ("subscriber", np.int64)]))
    pair["place"] = rows[0] << _BROKER_BITS | rows[1]
    pair["subscriber"] = rows[2]
    return pair.view("V16").ravel()


# --- what evidence of each kind says --------------------------------------------------------------------------------


def _from_journeys(view: _View, rows: Ints, plain: Bits) -> Answers:
    """Journeys are plain by construction: compaction writes only those that are complete."""
    group = view.group[rows]
    hop, ends = _in_pairs(view, "next_hops", rows)
    taker, taken = _in_pairs(view, "subscribers", rows)
    teller, told = _in_pairs(view, "acknowledged", rows)
    waiter, waiting = _in_pairs(view, "queued", rows)
    delivered = (group[taker], taken[0], taken[1])
    _doubt_waiting(plain, (group[waiter], waiting[0], waiting[1]), delivered)
    return Answers(
        (np.concatenate([group, group[hop]]), np.concatenate([view.at["origin"][group], ends[1]])),
        delivered,
        np.zeros(len(taker)),
        (group[teller], told[0], told[1]),
        np.ones(len(plain)),
    )


def _from_passages(view: _View, rows: Ints, plain: Bits) -> Answers:
    group, broker = view.group[rows], view.numbers("broker", rows)
    came = view.numbers("arrived_from", rows)
    at_origin = broker == view.at["origin"][group]
    _need_each_once(plain, group, broker)
    plain[group[(came < HERE) | (at_origin != (came == HERE))]] = False
    _need_one_origin(plain, group[at_origin])
    place, hop = view.lists("next_hops", rows)
    claims = _hops(group[place], broker[place], hop)
    arrivals = _hops(group[~at_origin], came[~at_origin], broker[~at_origin])
    plain[np.setxor1d(claims, arrivals) >> 2 * _BROKER_BITS] = False
    lists = {name: view.lists(name, rows) for name in ("subscribers", "acknowledged", "queued")}
    triples = {name: (group[place], broker[place], number) for name, (place, number) in lists.items()}
    _doubt_waiting(plain, triples["queued"], triples["subscribers"])
    return Answers(
        (group, broker),
        triples["subscribers"],
        np.zeros(len(triples["subscribers"][0])),
        triples["acknowledged"],
        np.ones(len(plain)),
    )


def _from_hits(view: _View, rows: Ints, plain: Bits) -> Answers:
    packed = view.rows.column("hits").take(pa.array(rows)).combine_chunks()
    if isinstance(packed, pa.ChunkedArray):
        packed = pa.concat_arrays(packed.chunks)
    offsets = np.frombuffer(packed.buffers()[1], np.int32)[packed.offset : packed.offset + len(rows) + 1]
    hits = np.frombuffer(packed.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].view(HIT)
    place = np.repeat(np.arange(len(rows)), np.diff(offsets) // HIT.itemsize)
    group, broker = view.group[rows], view.numbers("broker", rows)
    _need_each_once(plain, group, broker)
    at_origin = broker == view.at["origin"][group]
    own = np.where(at_origin[place], HistoryKind.PUBLISHED, HistoryKind.ROUTED) == hits["kind"]
    seen = np.bincount(place[own], minlength=len(rows))
    plain[group[seen != 1]] = False
    _need_one_origin(plain, group[at_origin])

    def triples(kind: int) -> tuple[Ints, Ints, Ints]:
        chosen = hits["kind"] == kind
        return group[place[chosen]], broker[place[chosen]], hits["number"][chosen].astype(np.int64)

    claimed = triples(HistoryKind.FORWARDED)
    # Each broker that says it had the message was handed it once, and nobody else was.
    handed = _hops(claimed[0], np.zeros_like(claimed[1]), claimed[2])
    known, times = np.unique(handed, return_counts=True)
    plain[known[times > 1] >> 2 * _BROKER_BITS] = False
    had = _hops(group[~at_origin], np.zeros(int((~at_origin).sum()), np.int64), broker[~at_origin])
    plain[np.setxor1d(known, had) >> 2 * _BROKER_BITS] = False
    delivered = triples(HistoryKind.DELIVERED)
    _doubt_waiting(plain, triples(HistoryKind.QUEUED), delivered)
    surety = np.ones(len(plain))
    entered = own & at_origin[place]
    surety[group[place[entered]]] = 1 - hits["doubt"][entered]
    doubts = hits["doubt"][hits["kind"] == HistoryKind.DELIVERED]
    return Answers((group, broker), delivered, doubts, triples(HistoryKind.ACKNOWLEDGED), surety)


def _in_pairs(view: _View, name: str, rows: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
    place, numbers = view.lists(name, rows)
    return place[::2], (numbers[::2], numbers[1::2])


def _hops(group: Ints, start: Ints, end: Ints) -> Ints:
    return group << 2 * _BROKER_BITS | start << _BROKER_BITS | end


def _need_each_once(plain: Bits, group: Ints, broker: Ints) -> None:
    """Several rows of one message at one broker mean their union: not plain."""
    known, times = np.unique(_hops(group, np.zeros_like(broker), broker), return_counts=True)
    plain[known[times > 1] >> 2 * _BROKER_BITS] = False


def _need_one_origin(plain: Bits, group: Ints) -> None:
    plain &= np.bincount(group, minlength=len(plain)) == 1


def _doubt_waiting(plain: Bits, queued: tuple[Ints, Ints, Ints], delivered: tuple[Ints, Ints, Ints]) -> None:
    """A message that still waits in a queue is not plain."""
    if len(queued[0]):
        plain[queued[0][~np.isin(_triples(queued), _triples(delivered))]] = False


# --- tables of verdicts ---------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Lists of rows: those of list i are at offsets[i] to offsets[i + 1], sorted."""

    offsets: Ints
    columns: tuple[Any, ...]

    @classmethod
    def empty(cls, count: int) -> _Rows:
        return cls(np.zeros(count + 1, np.int64), ())

    @classmethod
    def of(cls, place: Ints, count: int, group: Ints, *columns: Any) -> _Rows:
        """Lists by the place of each group; groups without a place are left out."""
        row = place[group]
        kept = np.flatnonzero(row >= 0)
        kept = kept[np.lexsort((*(column[kept] for column in reversed(columns[:2])), row[kept]))]
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(row[kept], minlength=count), out=offsets[1:])
        return cls(offsets, tuple(column[kept] for column in columns))

    def array(self, kind: Any) -> Any:
        offsets = pa.array(self.offsets.astype(np.int32))
        inner = kind.value_type
        if not self.columns:
            return pa.ListArray.from_arrays(offsets, pa.array([], inner), type=kind)
        if pa.types.is_struct(inner):
            arrays = [pa.array(column, field.type) for column, field in zip(self.columns, inner, strict=True)]
            return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, fields=list(inner)), type=kind)
        return pa.ListArray.from_arrays(offsets, pa.array(self.columns[0], inner), type=kind)


_ANSWER_NAMES = VERDICT_SCHEMA.names[5:]
_ANSWERS = pa.schema([VERDICT_SCHEMA.field(name) for name in _ANSWER_NAMES])


def _table(verdict: Any, certainty: Floats, brokers: _Rows, subscribers: _Rows, acknowledged: _Rows) -> Any:
    nothing = _Rows.empty(len(verdict))
    lists = [brokers, subscribers, acknowledged, nothing, nothing, nothing, nothing]
    kinds = [_ANSWERS.field(name).type for name in _ANSWER_NAMES[2:]]
    arrays = [rows.array(kind) for rows, kind in zip(lists, kinds, strict=True)]
    return pa.Table.from_arrays([pa.array(verdict, pa.string()), pa.array(certainty), *arrays], schema=_ANSWERS)


def _one_by_one(view: _View, groups: Ints) -> Any:
    if not len(groups):
        return _ANSWERS.empty_table()
    bounds = np.searchsorted(view.group, np.stack([groups, groups + 1]))
    found = []
    for group, start, end in zip(groups.tolist(), *bounds.tolist(), strict=True):
        at = {name: int(view.at[name][group]) for name in ID}
        id = MessageId(at["publisher"], at["origin"], at["time"], at["counter"])
        found.append(_as_row(journey_of(view.context, id, view.rows.slice(start, end - start).to_pylist())))
    return pa.Table.from_pylist(found, schema=_ANSWERS)


def _as_row(journey: Journey) -> dict[str, Any]:
    def told(kind: str) -> list[dict[str, Any]]:
        hits = [(stop.broker, hit) for stop in journey.stops for hit in getattr(stop.findings, kind)]
        rows = [{"broker": broker, "subscriber": hit.number, "doubt": hit.doubt} for broker, hit in hits]
        return sorted(rows, key=lambda row: (row["broker"], row["subscriber"]))

    return {
        "verdict": journey.verdict.value,
        "certainty": journey.certainty,
        "brokers": sorted(stop.broker for stop in journey.stops),
        "subscribers": told("delivered"),
        "acknowledged": told("acknowledged"),
        "lost": [hop._asdict() for hop in journey.lost],
        "pruned": [hop._asdict() for hop in journey.pruned],
        "gaps": [{"broker": broker, **gap._asdict()} for broker, gap in journey.gaps],
        "silent": list(journey.silent),
    }


def _for_each_question(view: _View, verdicts: Any, order: Ints) -> Any:
    """One row for each question: an id may have been asked for under several names."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    questions = np.flatnonzero(view.source == ASKED)
    answers = verdicts.take(pa.array(place[view.group[questions]]))
    asked = view.rows.select(["asked", *ID]).take(pa.array(questions))
    return pa.Table.from_arrays([*asked.columns, *answers.columns], schema=VERDICT_SCHEMA)
