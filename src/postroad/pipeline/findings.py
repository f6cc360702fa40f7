"""From rows of evidence to what each broker knows of one id, and on to the verdict: the general way, one id at a time.

Most ids have plain evidence and are judged in bulk (`judging.py`). This is for the rest: losses, drops, gaps, late rows,
false answers of filters. It ends in the same `Reconstruction` that `postroad trace` drives.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.messages import MessageId
from postroad.pipeline.evidence import HITS, JOURNEY, PASSAGE, RECORD, SHED
from postroad.tracking import ADDENDUM, HERE, Drop, Findings, HistoryKind, Hit, Reconstruction
from postroad.trail import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from postroad.pipeline.context import Context
    from postroad.tracking import Journey

__all__ = ["HIT", "findings_of", "journey_of"]

# One answer of a broker's filters, packed.
HIT = np.dtype([("kind", "<i4"), ("number", "<i8"), ("doubt", "<f8"), ("time_from", "<i8"), ("time_to", "<i8")])

_LISTS = {
    HistoryKind.FORWARDED: "next_hops",
    HistoryKind.DELIVERED: "subscribers",
    HistoryKind.ACKNOWLEDGED: "acknowledged",
    HistoryKind.REFUSED: "refused",
    HistoryKind.QUEUED: "queued",
}


class _Known:
    """What one broker knows, as rows of evidence add to it."""

    def __init__(self, time: int) -> None:
        self._time = time
        self.hits: dict[int, dict[int, Hit]] = defaultdict(dict)
        self.drops: list[Drop] = []
        self.probes = 0

    def add(self, kind: int, number: int, doubt: float = 0.0, window: tuple[int, int] | None = None) -> None:
        since, until = window or (self._time, self._time)
        known = self.hits[kind].get(number)
        # The surest answer counts: an exact row beats a filter.
        if known is None or doubt < known.doubt:
            self.hits[kind][number] = Hit(number, doubt, since, until)

    def passage(self, row: Mapping[str, Any]) -> None:
        self.probes += 1
        came = row["arrived_from"]
        if came == HERE:
            self.add(HistoryKind.PUBLISHED, 0)
        elif came != ADDENDUM:
            self.add(HistoryKind.ROUTED, 0)
            self.add(HistoryKind.ARRIVED, came)
        for kind, column in _LISTS.items():
            for number in unpack(row[column]):
                self.add(kind, number)

    def answers(self, packed: bytes) -> None:
        for kind, number, doubt, since, until in np.frombuffer(packed, HIT).tolist():
            self.probes += 1
            self.add(kind, number, doubt, (since, until))

    def one(self, kind: int) -> Hit | None:
        return next(iter(self.hits[kind].values()), None)

    def many(self, kind: int) -> tuple[Hit, ...]:
        return tuple(self.hits[kind][number] for number in sorted(self.hits[kind]))


def _pairs(packed: bytes | None) -> Iterable[tuple[int, int]]:
    numbers = unpack(packed)
    return zip(numbers[::2], numbers[1::2], strict=True)


def _journey(known: defaultdict[int, _Known], row: Mapping[str, Any], origin: int) -> None:
    known[origin].add(HistoryKind.PUBLISHED, 0)
    for start, end in _pairs(row["next_hops"]):
        known[start].add(HistoryKind.FORWARDED, end)
        known[end].add(HistoryKind.ROUTED, 0)
        known[end].add(HistoryKind.ARRIVED, start)
    for kind, column in _LISTS.items():
        if kind != HistoryKind.FORWARDED:
            for broker, subscriber in _pairs(row[column]):
                known[broker].add(kind, subscriber)


def _gathered(id: MessageId, rows: Iterable[Mapping[str, Any]]) -> dict[int, _Known]:
    known: defaultdict[int, _Known] = defaultdict(lambda: _Known(id.time))
    for row in rows:
        if row["source"] == JOURNEY:
            _journey(known, row, id.broker)
        elif row["source"] == PASSAGE:
            known[row["broker"]].passage(row)
        elif row["source"] == SHED:
            known[row["broker"]].drops.append(Drop(row["subscriber"], row["link"], row["reason"], row["at"]))
        elif row["source"] == HITS:
            known[row["broker"]].answers(row["hits"])
        elif row["source"] == RECORD:
            known[row["broker"]].add(row["link"], row["subscriber"])
    return known


def findings_of(context: Context, id: MessageId, rows: Iterable[Mapping[str, Any]]) -> dict[int, Findings]:
    """What each broker of the trail knows of an id."""
    known = _gathered(id, rows)
    nothing = _Known(id.time)
    found = {}
    for broker in context.brokers:
        one = known.get(broker, nothing)
        found[broker] = Findings(
            broker=broker,
            published=one.one(HistoryKind.PUBLISHED),
            routed=one.one(HistoryKind.ROUTED),
            arrived_from=one.many(HistoryKind.ARRIVED),
            next_hops=one.many(HistoryKind.FORWARDED),
            delivered=one.many(HistoryKind.DELIVERED),
            acknowledged=one.many(HistoryKind.ACKNOWLEDGED),
            refused=one.many(HistoryKind.REFUSED),
            queued=one.many(HistoryKind.QUEUED),
            dropped=tuple(sorted(one.drops)),
            gaps=context.gaps_at(broker, id.time),
            retained_since=context.retained_since[broker],
            neighbours=context.neighbours_at(broker, id.time),
            probes=one.probes,
        )
    return found


def journey_of(context: Context, id: MessageId, rows: Sequence[Mapping[str, Any]]) -> Journey:
    """Where a message went, by the same steps that ask one broker after the other."""
    answers = findings_of(context, id, rows)
    reconstruction = Reconstruction(id)
    while wanted := reconstruction.to_ask():
        for broker in wanted:
            reconstruction.tell(broker, answers.get(broker))
    return reconstruction.journey()
