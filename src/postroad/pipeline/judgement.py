"""The verdict on many ids at once: plain evidence by array operations, the rest one id at a time.

Nearly all messages of a healthy network leave plain evidence: both ends of every hop recorded it, no broker on the way
has a gap, nothing was dropped. For such ids the verdict of `Reconstruction` reduces to counting, and
`tests/pipeline/test_judgement.py` compares the two. An id that is not plain goes to `Reconstruction` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.messages import MessageId
from postroad.pipeline.evidence import ASKED, COLUMNS, HITS, JOURNEY, PASSAGE
from postroad.pipeline.findings import journey_of
from postroad.pipeline.ids import id_texts
from postroad.pipeline.plain_evidence import Answers, View, from_hits, from_journeys, from_passages, triples, whole_ids
from postroad.pipeline.tables import ID
from postroad.tracking import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from postroad.pipeline.context import Context
    from postroad.tracking import Journey

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bits = NDArray[np.bool_]

__all__ = ["ANSWER_SCHEMA", "VERDICT_SCHEMA", "Judge", "judged", "with_text"]

_SUBSCRIPTION = pa.struct([("broker", pa.int64()), ("subscription", pa.int64()), ("doubt", pa.float64())])
_LOST = pa.struct([("broker", pa.int64()), ("neighbour", pa.int64()), ("doubt", pa.float64())])
_PRUNED = pa.struct([*_LOST, ("reason", pa.string())])
_GAP = pa.struct(
    [
        ("broker", pa.int64()),
        ("since", pa.int64()),
        ("until", pa.int64()),
        ("reason", pa.string()),
        ("hides", pa.string()),
    ]
)

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
        ("delivered", pa.list_(_SUBSCRIPTION)),
        ("acknowledged", pa.list_(_SUBSCRIPTION)),
        ("lost", pa.list_(_LOST)),
        ("pruned", pa.list_(_PRUNED)),
        ("gaps", pa.list_(_GAP)),
        ("silent", pa.list_(pa.int64())),
        # Hops where nobody can say whether the message arrived.
        ("open", pa.list_(_PRUNED)),
    ]
)

_ID_FIELD = pa.field("id", pa.string())
# What a bulk trace gives: the verdicts, and the ids as text.
ANSWER_SCHEMA = VERDICT_SCHEMA.append(_ID_FIELD)


class Judge:
    """Judges sorted evidence, batch by batch; made by the driver, run by the workers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield verdicts, for `mapInArrow`."""
        for rows in whole_ids(batches):
            yield from judged(self._context, _completed(rows)).to_batches()


_ARROW = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}


def _completed(rows: Any) -> Any:
    """Add the columns that nothing filled, and that were therefore not sent."""
    for name, kind in COLUMNS.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, _ARROW[kind]))
    return rows


def with_text(verdicts: Any) -> Any:
    """Add the id as text; a caller that asks by numbers also gets it as `asked`."""
    text = id_texts(*(verdicts.column(name).to_numpy() for name in ID))
    place = verdicts.schema.get_field_index("asked")
    asked = pc.coalesce(verdicts.column(place), text)
    return verdicts.set_column(place, verdicts.schema.field(place), asked).append_column(_ID_FIELD, text)


def judged(context: Context, rows: Any) -> Any:
    """Return the verdicts on all ids of the evidence, one row for each question."""
    view = View.of(context, rows)
    kinds = view.counts()
    kinds[:, ASKED] = 0
    total = kinds.sum(axis=1)
    only = total[:, None] == kinds
    parts = [
        _never(view, np.flatnonzero(total == 0)),
        _walked(view, np.flatnonzero(only[:, JOURNEY] & (kinds[:, JOURNEY] == 1)), JOURNEY),
        _walked(view, np.flatnonzero(only[:, PASSAGE] & (kinds[:, PASSAGE] > 0)), PASSAGE),
        _walked(view, np.flatnonzero(only[:, HITS] & (kinds[:, HITS] > 0)), HITS),
    ]
    done = np.zeros(len(total), np.bool_)
    for plain, _ in parts:
        done[plain] = True
    others = np.flatnonzero(~done)
    verdicts = pa.concat_tables([*(table for _, table in parts), _one_by_one(view, others)])
    order = np.concatenate([*(plain for plain, _ in parts), others])
    return _for_each_question(view, verdicts, order)


def _never(view: View, groups: Ints) -> tuple[Ints, Any]:
    """Return ids of which nothing is known, although their origins have complete records."""
    certain = groups[view.context.is_denied(view.at["origin"][groups], view.at["time"][groups])]
    verdicts = np.full(len(certain), Verdict.NEVER_ACCEPTED.value, object)
    return certain, _table(verdicts, np.ones(len(certain)), *(_RowLists.empty(len(certain)) for _ in range(3)))


def _walked(view: View, groups: Ints, source: int) -> tuple[Ints, Any]:
    """Return ids with evidence of one kind, without those that are not plain."""
    if not len(groups):
        return groups, _table(np.empty(0, object), np.empty(0), *(_RowLists.empty(0) for _ in range(3)))
    rows = view.chosen(groups, source)
    plain = np.zeros(len(view.at["origin"]), np.bool_)
    plain[groups] = True
    read = {JOURNEY: from_journeys, PASSAGE: from_passages, HITS: from_hits}[source]
    answers = read(view, rows, plain)
    view.surely_complete(answers.stops, plain)
    return _counted(np.flatnonzero(plain), plain, answers)


def _counted(chosen: Ints, plain: Bits, answers: Answers) -> tuple[Ints, Any]:
    """Return the verdicts on plain ids: what was delivered, and acknowledged."""
    size = len(plain)
    group = answers.delivered[0]
    received = np.bincount(group, minlength=size)
    # One true delivery is enough: the verdict is wrong only if all of them are false answers.
    wrong = np.ones(size)
    np.multiply.at(wrong, group, answers.doubts)
    taken, answered_for = triples(answers.delivered), triples(answers.acknowledged)
    answered = np.bincount(group[np.isin(taken, answered_for)], minlength=size)
    verdict = np.where(answered == received, Verdict.ACKNOWLEDGED.value, Verdict.DELIVERED.value).astype(object)
    verdict[received == 0] = Verdict.MATCHED_NOBODY.value
    certainty = answers.surety * np.where(received > 0, 1 - wrong, 1)
    place = np.full(size, -1)
    place[chosen] = np.arange(len(chosen))
    return chosen, _table(
        verdict[chosen],
        certainty[chosen],
        _RowLists.of(place, len(chosen), *answers.stops),
        _RowLists.of(place, len(chosen), *answers.delivered, answers.doubts),
        _RowLists.of(place, len(chosen), *answers.acknowledged, np.zeros(len(answered_for))),
    )


# --- tables of verdicts ---------------------------------------------------------------------------------------------


class _RowLists(NamedTuple):
    """Lists of rows: those of list i are at offsets[i] to offsets[i + 1], sorted."""

    offsets: Ints
    columns: tuple[Any, ...]

    @classmethod
    def empty(cls, count: int) -> _RowLists:
        return cls(np.zeros(count + 1, np.int64), ())

    @classmethod
    def of(cls, place: Ints, count: int, group: Ints, *columns: Any) -> _RowLists:
        """Build lists by the place of each group; groups without a place are left out."""
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


def _table(
    verdict: Any, certainty: Floats, brokers: _RowLists, subscriptions: _RowLists, acknowledged: _RowLists
) -> Any:
    nothing = _RowLists.empty(len(verdict))
    lists = [brokers, subscriptions, acknowledged, *(nothing for _ in _ANSWER_NAMES[5:])]
    kinds = [_ANSWERS.field(name).type for name in _ANSWER_NAMES[2:]]
    arrays = [rows.array(kind) for rows, kind in zip(lists, kinds, strict=True)]
    return pa.Table.from_arrays([pa.array(verdict, pa.string()), pa.array(certainty), *arrays], schema=_ANSWERS)


def _one_by_one(view: View, groups: Ints) -> Any:
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
    def hits_of(kind: str) -> list[dict[str, Any]]:
        hits = [(stop.broker, hit) for stop in journey.stops for hit in getattr(stop.findings, kind)]
        rows = [{"broker": broker, "subscription": hit.number, "doubt": hit.doubt} for broker, hit in hits]
        return sorted(rows, key=lambda row: (row["broker"], row["subscription"]))

    return {
        "verdict": journey.verdict.value,
        "certainty": journey.certainty,
        "brokers": sorted(stop.broker for stop in journey.stops),
        "delivered": hits_of("delivered"),
        "acknowledged": hits_of("acknowledged"),
        "lost": [hop._asdict() for hop in journey.lost],
        "pruned": [hop._asdict() for hop in journey.pruned],
        "gaps": [{"broker": broker, **gap._asdict()} for broker, gap in journey.gaps],
        "silent": list(journey.silent),
        "open": [hop._asdict() for hop in journey.open],
    }


def _for_each_question(view: View, verdicts: Any, order: Ints) -> Any:
    """Return one row for each question: an id may have been asked for under several names."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    questions = np.flatnonzero(view.source == ASKED)
    answers = verdicts.take(pa.array(place[view.group[questions]]))
    asked = view.rows.select(["asked", *ID]).take(pa.array(questions))
    return pa.Table.from_arrays([*asked.columns, *answers.columns], schema=VERDICT_SCHEMA)
