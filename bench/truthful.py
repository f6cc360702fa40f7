"""Answers of a bulk trace against the truth of a generated trail, all of them, by array operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.lab.trails import TRUTH

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Judgement", "judge_answers"]

_ID = ["origin", "time", "publisher", "counter"]


class Judgement(NamedTuple):
    """How answers compare with what happened."""

    ids: int
    known: int
    missed: int
    false_brokers: int
    false_subscribers: int
    promised: float

    @property
    def is_within_promise(self) -> bool:
        """Whether false subscribers are as few as filters promise: a count that is Poisson, and four times its spread.

        A false broker takes two false answers, one of each end of a link, or a lost hop: a thousandth of the ids is far
        above what filters of this accuracy give.
        """
        few_subscribers = self.false_subscribers <= self.promised + 4 * self.promised**0.5 + 3
        return few_subscribers and self.false_brokers <= self.ids / 1_000 + 3

    def __str__(self) -> str:
        return (
            f"{self.ids:,} answers, {self.known:,} of messages that were: {self.missed:,} hops or deliveries missed, "
            f"{self.false_brokers:,} false brokers, {self.false_subscribers:,} false subscribers "
            f"({self.promised:.1f} promised)"
        )


def judge_answers(trail: Path, answers: Path, subscribers: int) -> Judgement:
    """Compare brokers and subscribers of every answer with the truth; ids that never were must have none.

    Args:
        trail: a generated one, with its truth.
        answers: the table that the trace wrote.
        subscribers: how many each broker has, for the promise.
    """
    found = pq.read_table(answers, columns=[*_ID, "brokers", "delivered"])
    found = found.append_column("place", pa.array(np.arange(found.num_rows)))
    place, real = _truth_about(trail, found.select([*_ID, "place"]))
    told_brokers = _flat(found.column("brokers"))
    told_subscribers = _subscribers(found.column("delivered"))
    true_brokers = _keys(*_moved(_flat(real.column("path")), place), low=True)
    origins = _keyed(place, found.column("origin").to_numpy()[place])
    brokers = np.union1d(true_brokers, origins)
    deliveries = _pairs(*_moved(_flat(real.column("deliveries")), place))
    mine = _keyed(*told_brokers)
    taken = _pairs(told_subscribers[0], told_subscribers[1] << 32 | told_subscribers[2])
    missed = int((~np.isin(brokers, mine)).sum()) + int((~np.isin(deliveries, taken)).sum())
    false_brokers = int((~np.isin(mine, brokers)).sum())
    wrong = ~np.isin(taken, deliveries)
    # Every subscriber of a broker that had the message was asked about; each may get a false yes.
    doubt = float(told_subscribers[3].mean()) if len(told_subscribers[3]) else 0.0
    promised = doubt * max(0, len(mine) * subscribers - len(deliveries))
    return Judgement(found.num_rows, len(place), missed, false_brokers, int(wrong.sum()), promised)


def _truth_about(trail: Path, found: Any) -> tuple[Any, Any]:
    """What happened to messages that were asked about: their places in the answers, and the rows of the truth.

    One slice of the truth after the other, each with the ids of its times: memory is that of the answers.
    """
    found = found.sort_by("time")
    times = found.column("time").to_numpy()
    places, parts = [], []
    for path in sorted((trail / TRUTH).glob("*.parquet")):
        truth = pq.read_table(path, columns=[*_ID, "path", "deliveries"])
        if not truth.num_rows:
            continue
        span = pc.min_max(truth.column("time")).as_py()
        start, end = np.searchsorted(times, [span["min"], span["max"] + 1])
        rows = truth.select(_ID).append_column("row", pa.array(np.arange(truth.num_rows)))
        there = found.slice(start, end - start).join(rows, _ID, join_type="inner")
        places.append(there.column("place").to_numpy())
        parts.append(truth.select(["path", "deliveries"]).take(there.column("row")))
    return np.concatenate(places), pa.concat_tables(parts)


def _flat(column: Any) -> tuple[Any, Any]:
    """The place of each list's row, and the values."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    lengths = np.diff(array.offsets.to_numpy())
    return np.repeat(np.arange(len(array)), lengths), array.flatten()


def _subscribers(column: Any) -> tuple[Any, Any, Any, Any]:
    place, values = _flat(column)
    return (place, *(pc.struct_field(values, name).to_numpy() for name in ("broker", "subscription", "doubt")))


def _moved(flat: tuple[Any, Any], place: Any) -> tuple[Any, Any]:
    return place[flat[0]], flat[1].to_numpy()


def _keys(place: Any, pair: Any, low: bool) -> Any:
    return _keyed(place, pair & 0xFFFFFFFF if low else pair >> 32)


def _keyed(place: Any, number: Any) -> Any:
    return np.asarray(place, np.int64) << 32 | np.asarray(number, np.int64)


def _pairs(place: Any, pair: Any) -> Any:
    both = np.empty((len(place), 2), np.int64)
    both[:, 0], both[:, 1] = place, pair
    return both.view("V16").ravel()
