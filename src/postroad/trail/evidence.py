"""What is known about one id at one broker, gathered from rows of several tables, and given out as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking import ADDENDUM, HERE, Drop, Findings, Gap, HistoryKind, Hit
from postroad.trail.coverage import GapReason, gaps_around, hides_late_entry
from postroad.trail.packed_lists import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.messages import MessageId
    from postroad.tracking import FilterEvidence
    from postroad.trail.coverage import Hole, Run

__all__ = ["Evidence"]

_LISTS = {
    "relayed_to": HistoryKind.RELAYED,
    "delivered": HistoryKind.DELIVERED,
    "acknowledged": HistoryKind.ACKNOWLEDGED,
    "refused": HistoryKind.REFUSED,
    "queued": HistoryKind.QUEUED,
}


_KINDS = (HistoryKind.ACCEPTED, HistoryKind.ARRIVED, HistoryKind.ARRIVED_FROM, *_LISTS.values())


class Evidence:
    """Hits by kind and number; of several hits for the same, the one with the least doubt counts."""

    def __init__(self, broker: int, identity: MessageId) -> None:
        self.broker = broker
        self.identity = identity
        self.probes = 0
        self.drops: list[Drop] = []
        self.gaps: list[Gap] = []
        self._hits: dict[int, dict[int, Hit]] = {}
        self._told_whole = False
        self._handled: set[int] = set()

    def add(self, kind: int, hit: Hit) -> None:
        """One positive answer of a kind of history."""
        known = self._hits.setdefault(kind, {})
        if hit.number not in known or hit.doubt < known[hit.number].doubt:
            known[hit.number] = hit

    def surely(self, kind: int, number: int) -> None:
        """An answer of the exact record."""
        self.add(kind, Hit(number, 0.0, self.identity.time, self.identity.time))

    def passage(self, row: dict[str, object], run: int = 0) -> None:
        """A row of `passages`, and the run that wrote it; 0 if that is not known."""
        arrived_from = row["arrived_from"]
        assert isinstance(arrived_from, int)
        if arrived_from != ADDENDUM and run:
            self._handled.add(run)
        if arrived_from == HERE:
            self.surely(HistoryKind.ACCEPTED, 0)
        elif arrived_from != ADDENDUM:
            self.surely(HistoryKind.ARRIVED, 0)
            self.surely(HistoryKind.ARRIVED_FROM, arrived_from)
        for column, kind in _LISTS.items():
            self._listed(kind, unpack(row[column]))  # type: ignore[arg-type]

    def journey(self, row: dict[str, object]) -> None:
        """A row of `journeys`, as far as it is about this broker."""
        self._told_whole = True
        if self.broker == self.identity.broker:
            self.surely(HistoryKind.ACCEPTED, 0)
        for sender, receiver in _pairs(row["path"]):
            if sender == self.broker:
                self.surely(HistoryKind.RELAYED, receiver)
            if receiver == self.broker:
                self.surely(HistoryKind.ARRIVED, 0)
                self.surely(HistoryKind.ARRIVED_FROM, sender)
        for column, kind in (
            ("delivered", HistoryKind.DELIVERED),
            ("acknowledged", HistoryKind.ACKNOWLEDGED),
            ("refused", HistoryKind.REFUSED),
        ):
            self._listed(kind, (subscription for broker, subscription in _pairs(row[column]) if broker == self.broker))

    def journalled(self, found: Findings, run: int) -> None:
        """Add what an exact recorder knows after the replay of what a run left in its journal."""
        kinds = {
            HistoryKind.ARRIVED_FROM: found.arrived_from,
            HistoryKind.RELAYED: found.relayed_to,
            HistoryKind.DELIVERED: found.delivered,
            HistoryKind.ACKNOWLEDGED: found.acknowledged,
            HistoryKind.REFUSED: found.refused,
            HistoryKind.QUEUED: found.queued,
            HistoryKind.ACCEPTED: (found.accepted,) if found.accepted else (),
            HistoryKind.ARRIVED: (found.arrived,) if found.arrived else (),
        }
        for kind, hits in kinds.items():
            for hit in hits:
                self.add(kind, hit)
        if found.accepted or found.arrived:
            self._handled.add(run)
        self.drops += found.dropped
        self.probes += found.probes

    def take(self, said: FilterEvidence) -> None:
        """What filters said."""
        self.probes += said.probes
        for kind in _KINDS:
            for hit in said.hits(kind):
                self.add(kind, hit)

    def _listed(self, kind: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.surely(kind, number)

    def findings(
        self,
        runs: Iterable[Run],
        holes: Iterable[Hole],
        window: tuple[int, int],
        retained_since: int,
        neighbours: tuple[int, ...],
    ) -> Findings:
        """All of it; of an id whose record here may be deleted, what is left, and that it is not complete.

        A journey was made of the complete records of all brokers, and says all of it however little these keep.

        Args:
            runs: the lives of the broker.
            holes: times inside of them for which its record is not complete.
            window: when the broker may have seen the message.
            retained_since: id times before this are deleted.
            neighbours: the links of the broker at the time.
        """
        found = self._findings(retained_since, neighbours)
        # A message that waited elsewhere may have come here long after its id's time.
        is_open = found.waits or found.may_be_replayed or not found.is_known
        gaps, ends = gaps_around(runs, holes, self.identity.time, *window, self._handled, is_open)
        if self.broker == self.identity.broker and not found.is_known:
            gaps += tuple(gap for gap in ends if hides_late_entry(gap.reason))
        return found._replace(gaps=tuple(sorted({*found.gaps, *gaps})), ends=ends)

    def _findings(self, retained_since: int, neighbours: tuple[int, ...]) -> Findings:
        if self.identity.time < retained_since and not self._told_whole:
            self.gaps.append(Gap(0, retained_since, GapReason.DELETED))
        return Findings(
            self.broker,
            self._one(HistoryKind.ACCEPTED),
            self._one(HistoryKind.ARRIVED),
            self._all(HistoryKind.ARRIVED_FROM),
            self._all(HistoryKind.RELAYED),
            self._all(HistoryKind.DELIVERED),
            self._all(HistoryKind.ACKNOWLEDGED),
            self._all(HistoryKind.REFUSED),
            self._all(HistoryKind.QUEUED),
            tuple(sorted(set(self.drops))),
            tuple(sorted(set(self.gaps))),
            retained_since,
            neighbours,
            self.probes,
        )

    def _one(self, kind: int) -> Hit | None:
        return self._hits.get(kind, {}).get(0)

    def _all(self, kind: int) -> tuple[Hit, ...]:
        known = self._hits.get(kind, {})
        return tuple(known[number] for number in sorted(known))


def _pairs(packed: object) -> list[tuple[int, int]]:
    numbers = unpack(packed)  # type: ignore[arg-type]
    return list(zip(numbers[::2], numbers[1::2], strict=True))
