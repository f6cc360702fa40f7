"""The way of one message, put together from what brokers know (spec: message tracking, steps 8, 9 and 14).

`Reconstruction` asks no broker itself: it says whom to ask and is told the answers, so that a reader of files, a client
of a running network and a test drive the same rules.

A broker counts as passed when its own record says so *and* a broker already on the way says that it handed the message
to it. A false answer of one filter alone therefore adds no hop; both must be wrong at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from postroad.tracking.reasons import DETOURS, is_held
from postroad.tracking.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from postroad.messages import MessageId
    from postroad.tracking.findings import Drop, Findings, Gap, Hit

__all__ = ["BELIEVED_DOUBT", "Exploration", "Journey", "LostHop", "PrunedHop", "Reconstruction", "Stop"]

# A neighbour's claim that the next broker denies is either a loss or a false answer. Below this doubt it is reported as
# a loss: networks lose far less than one message in a thousand hops, so above it a false answer is the likelier reason.
BELIEVED_DOUBT = 1e-3

# How brokers are chosen: those that a broker on the way says it handed the message to, or all its neighbours.
Exploration = Literal["next-hops", "neighbours"]


class Stop(NamedTuple):
    """A broker that the message passed.

    Attributes:
        broker: its number.
        parent: the broker it came from; 0 for the origin, and where the way to it is not known.
        depth: hops from the origin.
        doubt: the probability that the answers putting it here are all false.
        window: the id times of the record that answered: from, to.
        findings: all that the broker knows.
    """

    broker: int
    parent: int
    depth: int
    doubt: float
    window: tuple[int, int]
    findings: Findings


class LostHop(NamedTuple):
    """One broker says it handed the message to another, which has a complete record of that time without it."""

    broker: int
    neighbour: int
    doubt: float


class PrunedHop(NamedTuple):
    """An answer that was not believed, and why."""

    broker: int
    neighbour: int
    doubt: float
    reason: str


class Journey(NamedTuple):
    """Where a message went.

    Attributes:
        id: the message.
        verdict: the answer in a word.
        certainty: the probability that the verdict does not rest on false answers; 1 where the record is exact.
        stops: the brokers it passed, the origin first, each after the one it came from.
        lost: hops after which it was gone.
        pruned: answers not believed.
        gaps: (broker, gap) where the record is not complete.
        silent: brokers that were asked and did not answer.
        queries: how many brokers were asked.
        probes: filters probed and rows looked up by all of them.
    """

    id: MessageId
    verdict: Verdict
    certainty: float
    stops: tuple[Stop, ...]
    lost: tuple[LostHop, ...]
    pruned: tuple[PrunedHop, ...]
    gaps: tuple[tuple[int, Gap], ...]
    silent: tuple[int, ...]
    queries: int
    probes: int

    @property
    def delivered(self) -> list[tuple[int, Hit]]:
        """(broker, subscriber) for each delivery."""
        return [(stop.broker, hit) for stop in self.stops for hit in stop.findings.delivered]

    @property
    def dropped(self) -> list[tuple[int, Drop]]:
        """(broker, drop) wherever it went no further."""
        return [(stop.broker, drop) for stop in self.stops for drop in stop.findings.dropped]


class Reconstruction:
    """Finds the way of one message.

    Ask each broker in `to_ask()` and `tell` its answer, until there are none; then read `journey()`.

    Args:
        id: the message.
        exploration: whom to ask next.
        topology: the neighbours of brokers at the message's time, used around brokers that cannot say themselves.
    """

    def __init__(
        self,
        id: MessageId,
        exploration: Exploration = "next-hops",
        topology: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        self.id = id
        self._exploration = exploration
        # Not by its truth: to know whether it is empty, one that is read when needed would have to be read.
        self._topology = {} if topology is None else topology
        self._answers: dict[int, Findings | None] = {}
        self._wanted: list[int] = [id.broker]

    def to_ask(self) -> list[int]:
        """The brokers whose answers are needed next."""
        return [broker for broker in self._wanted if broker not in self._answers]

    def tell(self, broker: int, findings: Findings | None) -> None:
        """A broker's answer; None when it does not answer."""
        self._answers[broker] = findings
        for other in self._next(broker, findings):
            if other not in self._wanted:
                self._wanted.append(other)

    def _next(self, broker: int, findings: Findings | None) -> list[int]:
        if findings is None:
            return sorted(self._topology.get(broker, ()))
        passed = _own(findings, self.id.broker) is not None
        if passed and self._exploration == "next-hops":
            return [hit.number for hit in findings.next_hops]
        if findings.gaps:
            return sorted({*findings.neighbours, *self._topology.get(broker, ())})
        if passed:
            return sorted(findings.neighbours)
        return []

    # --- putting it together ---------------------------------------------------------------------------------------

    def journey(self) -> Journey:
        """The way as far as the answers go."""
        stops, lost, pruned = self._walk()
        silent = tuple(sorted(broker for broker, answer in self._answers.items() if answer is None))
        known = [answer for answer in self._answers.values() if answer is not None]
        on_the_way = {stop.broker for stop in stops} | self._claimed(stops) | {self.id.broker}
        gaps = tuple((one.broker, gap) for one in known if one.broker in on_the_way for gap in one.gaps)
        verdict, certainty = self._verdict(stops, lost, gaps, [broker for broker in silent if broker in on_the_way])
        return Journey(
            self.id,
            verdict,
            certainty,
            tuple(stops),
            tuple(lost),
            tuple(pruned),
            gaps,
            silent,
            len(self._answers),
            sum(one.probes for one in known),
        )

    def _claimed(self, stops: list[Stop]) -> set[int]:
        return {hit.number for stop in stops for hit in stop.findings.next_hops}

    def _walk(self) -> tuple[list[Stop], list[LostHop], list[PrunedHop]]:
        """Depth first from the origin, along hops that both ends confirm."""
        lost: list[LostHop] = []
        pruned: list[PrunedHop] = []
        stops: list[Stop] = []
        seen: set[int] = set()
        waiting = self._roots()
        while waiting:
            stop = waiting.pop()
            if stop.broker in seen:
                continue
            seen.add(stop.broker)
            stops.append(stop)
            onward: list[Stop] = []
            for hit in stop.findings.next_hops:
                self._follow(stop, hit, onward, lost, pruned)
            onward += self._beyond(stop, {one.broker for one in onward})
            waiting += reversed(onward)
        pruned += self._unclaimed(seen)
        reached = {stop.broker for stop in stops}
        return stops, [hop for hop in lost if hop.neighbour not in reached], pruned

    def _roots(self) -> list[Stop]:
        """The origin; where it cannot tell, the brokers nearest to it that can."""
        origin = self._answers.get(self.id.broker)
        if origin is not None and origin.published is not None:
            hit = origin.published
            return [Stop(origin.broker, 0, 0, hit.doubt, (hit.time_from, hit.time_to), origin)]
        if origin is not None and not origin.gaps:
            return []
        return self._from({self.id.broker}, 1)[::-1]

    def _follow(self, stop: Stop, claim: Hit, onward: list[Stop], lost: list[LostHop], pruned: list[PrunedHop]) -> None:
        """A broker on the way says that it handed the message to a neighbour."""
        if claim.number not in self._answers:
            return
        there = self._answers[claim.number]
        if there is None or claim.number == stop.parent:
            return
        own = _own(there, self.id.broker)
        if own is not None:
            doubt = claim.doubt * own.doubt
            onward.append(Stop(there.broker, stop.broker, stop.depth + 1, doubt, (own.time_from, own.time_to), there))
        elif there.gaps or _came_back(stop.findings, claim.number):
            return
        elif claim.doubt <= BELIEVED_DOUBT:
            lost.append(LostHop(stop.broker, claim.number, claim.doubt))
        else:
            pruned.append(PrunedHop(stop.broker, claim.number, claim.doubt, "the neighbour never had it"))

    def _beyond(self, stop: Stop, found: set[int]) -> list[Stop]:
        """Brokers that say they got it from this one, though its own record is not complete or it is silent."""
        gone = {hit.number for hit in stop.findings.next_hops if self._is_blind(hit.number)}
        if stop.findings.gaps:
            gone.add(stop.broker)
        return [one for one in self._from(gone, stop.depth + 1) if one.broker not in found]

    def _from(self, gone: set[int], depth: int) -> list[Stop]:
        """Brokers that say they got it from one of these."""
        stops = []
        for one in self._answers.values():
            if one is None or one.routed is None:
                continue
            came = [hit for hit in one.arrived_from if hit.number in gone]
            if came:
                window = (one.routed.time_from, one.routed.time_to)
                stops.append(Stop(one.broker, came[0].number, depth, one.routed.doubt * came[0].doubt, window, one))
        return stops

    def _is_blind(self, broker: int) -> bool:
        answer = self._answers.get(broker)
        return broker in self._answers and (answer is None or (answer.routed is None and bool(answer.gaps)))

    def _unclaimed(self, seen: set[int]) -> list[PrunedHop]:
        """Brokers that say they had it, and none on the way says it handed it to them."""
        return [
            PrunedHop(one.broker, one.broker, one.routed.doubt, "no broker on the way handed it on")
            for one in self._answers.values()
            if one is not None and one.routed is not None and one.broker not in seen
        ]

    def _verdict(
        self, stops: list[Stop], lost: list[LostHop], gaps: tuple[tuple[int, Gap], ...], silent: list[int]
    ) -> tuple[Verdict, float]:
        if not stops:
            return self._verdict_of_the_origin()
        here = 1.0 - stops[0].doubt
        if lost:
            return Verdict.LOST_AFTER_HOP, here * (1.0 - max(hop.doubt for hop in lost))
        drops = [drop for stop in stops for drop in stop.findings.dropped if drop.reason not in DETOURS]
        if any(not drop.subscriber for drop in drops):
            return Verdict.DROPPED, here
        if drops:
            return Verdict.SHED, here
        if gaps or silent:
            return Verdict.RECORDED_IN_PART, here
        return _fate(stops, here)

    def _verdict_of_the_origin(self) -> tuple[Verdict, float]:
        origin = self._answers.get(self.id.broker)
        if origin is None:
            return Verdict.UNANSWERED, 1.0
        if self.id.time < origin.retained_since:
            return Verdict.OUTSIDE_RETENTION, 1.0
        if origin.gaps:
            return Verdict.NOT_RECORDED, 1.0
        return Verdict.NEVER_ACCEPTED, 1.0


def _own(findings: Findings, origin: int) -> Hit | None:
    """The broker's own word that it had the message: at the origin, that it entered there."""
    return findings.published if findings.broker == origin else findings.routed


def _came_back(findings: Findings, neighbour: int) -> bool:
    """A link gave the message back before the neighbour had it, and it went another way, or was dropped."""
    return any(drop.link == neighbour for drop in findings.dropped)


def _fate(stops: list[Stop], certainty: float) -> tuple[Verdict, float]:
    delivered = [(stop.broker, hit) for stop in stops for hit in stop.findings.delivered]
    taken = {(broker, hit.number) for broker, hit in delivered}
    queued = [(stop.broker, hit) for stop in stops for hit in stop.findings.queued]
    waits = [hit.doubt for broker, hit in queued if (broker, hit.number) not in taken]
    if waits:
        return Verdict.WAITING, certainty * (1.0 - min(waits))
    if any(is_held(stop.findings.dropped) for stop in stops):
        return Verdict.WAITING, certainty
    if not delivered:
        return Verdict.MATCHED_NOBODY, certainty
    # One true delivery is enough: all of them must be false answers for the verdict to be wrong.
    wrong = 1.0
    for _, hit in delivered:
        wrong *= hit.doubt
    acknowledged = {(stop.broker, hit.number) for stop in stops for hit in stop.findings.acknowledged}
    verdict = Verdict.ACKNOWLEDGED if taken <= acknowledged else Verdict.DELIVERED
    return verdict, certainty * (1.0 - wrong)
