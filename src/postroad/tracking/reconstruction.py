"""The way of one message, put together from what brokers know (spec: message tracking, steps 8, 9 and 14).

`Reconstruction` asks no broker itself: it says whom to ask and takes the answers, so that a reader of files, a client
of a running network and a test drive the same rules.

A broker counts as passed when its own record says so *and* a broker already on the way says that it relayed the message
to it. A false answer of one filter alone therefore adds no hop; both must be wrong at once.

A broker that cannot say itself (it is silent, or its record has a gap) counts as passed when a neighbour says that the
message came from it. Where no neighbour does, the hop to it is *open*: relayed, and it is not known whether it arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from postroad.tracking.findings import Findings, Hit
from postroad.tracking.reasons import DETOURS, came_back, is_held, is_kept_for
from postroad.tracking.verdicts import OPEN, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from postroad.messages import MessageId
    from postroad.tracking.findings import Drop, Gap

__all__ = ["BELIEVED_DOUBT", "Exploration", "Journey", "LostHop", "OpenHop", "PrunedHop", "Reconstruction", "Stop"]

# A neighbour's claim that the next broker denies is either a loss or a false answer. Below this doubt it is reported as
# a loss: networks lose far less than one message in a thousand hops, so above it a false answer is the likelier reason.
BELIEVED_DOUBT = 1e-3

# How brokers are chosen: those that a broker on the way says it relayed the message to, or all its neighbours.
Exploration = Literal["relayed", "neighbours"]


# What a gap may hide of a message, by what else is known about it there.
HIDES_ALL = "whether the message came here, where it went on to and who got it"
HIDES_ACCEPTANCE = "whether the message entered here, where it went on to and who got it"
HIDES_DELIVERIES = "deliveries here, and hops to brokers that cannot say themselves"
HIDES_MORE = "that it was handled here another time, with other deliveries and hops"
HIDES_LATER = "what became of it here later"

SILENT = "the broker does not answer, and its files are not here"
BEHIND_GAP = "the record of the broker is not complete for that time"
SENDER_ENDED = "the record of the sender ends soon after, and it may have sent it another way"


class Stop(NamedTuple):
    """A broker that the message passed.

    Attributes:
        broker: its number.
        parent: the broker it came from; 0 for the origin, and where the way to it is not known.
        depth: hops from the origin.
        doubt: the probability that the answers putting it here are all false.
        window: the id times of the record that answered: from, to.
        findings: all that the broker knows.
        recorded: whether its own record says so; otherwise only its neighbours' records do.
    """

    broker: int
    parent: int
    depth: int
    doubt: float
    window: tuple[int, int]
    findings: Findings
    recorded: bool = True


class LostHop(NamedTuple):
    """One broker says it relayed the message to another, which has a complete record of that time without it."""

    broker: int
    neighbour: int
    doubt: float


class OpenHop(NamedTuple):
    """One broker says it relayed the message to another, and it is not known whether it arrived."""

    broker: int
    neighbour: int
    doubt: float
    reason: str


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
        certainty: the probability that the verdict does not rest on false answers; 1 where the record is exact, 0 where
            the verdict leaves open what became of the message.
        stops: the brokers it passed, the origin first, each after the one it came from.
        lost: hops after which it was gone.
        pruned: answers that were not believed.
        gaps: (broker, gap) where the record may hide something of this message.
        silent: brokers that were asked and did not answer.
        queries: how many brokers were asked.
        probes: filters probed and rows looked up by all of them.
        open: hops of which it is not known whether the message arrived.
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
    open: tuple[OpenHop, ...] = ()

    @property
    def delivered(self) -> list[tuple[int, Hit]]:
        """(broker, subscription) for each delivery."""
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
        exploration: Exploration = "relayed",
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
        claimed = [hit.number for hit in findings.relayed_to] if passed else []
        if findings.gaps or findings.ends:
            return [*claimed, *sorted({*findings.neighbours, *self._topology.get(broker, ())})]
        if passed and self._exploration == "neighbours":
            return sorted(findings.neighbours)
        return claimed

    # --- putting it together ---------------------------------------------------------------------------------------

    def journey(self) -> Journey:
        """The journey as far as the answers go."""
        way = _KnownWay(self.id, self._answers)
        way.walk()
        gaps = tuple((broker, gap) for broker, found in sorted(way.gaps().items()) for gap in found)
        silent = tuple(sorted(broker for broker, answer in self._answers.items() if answer is None))
        verdict, certainty = self._verdict(way, bool(gaps) or any(broker in way.concerned for broker in silent))
        return Journey(
            self.id,
            verdict,
            0.0 if verdict in OPEN else certainty,
            tuple(way.stops),
            tuple(way.lost),
            tuple(way.pruned),
            gaps,
            silent,
            len(self._answers),
            sum(one.probes for one in self._answers.values() if one is not None),
            tuple(way.open),
        )

    def _verdict(self, way: _KnownWay, is_partial: bool) -> tuple[Verdict, float]:
        stops = way.stops
        if not stops:
            return self._verdict_of_the_origin()
        here = 1.0 - stops[0].doubt
        if way.lost:
            return Verdict.LOST_AFTER_HOP, here * (1.0 - max(hop.doubt for hop in way.lost))
        drops = [drop for stop in stops for drop in stop.findings.dropped if drop.reason not in DETOURS]
        if any(not drop.subscription for drop in drops):
            return Verdict.DROPPED, here
        if drops:
            return Verdict.SHED, here
        if is_partial or way.open:
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


class _KnownWay:
    """The journey of a message as far as some answers go."""

    def __init__(self, id: MessageId, answers: Mapping[int, Findings | None]) -> None:
        self.id = id
        self._answers = answers
        self._late = _late_brokers(answers)
        self.stops: list[Stop] = []
        self.lost: list[LostHop] = []
        self.open: list[OpenHop] = []
        self.pruned: list[PrunedHop] = []

    def walk(self) -> None:
        """Depth first from the origin, along hops that both ends confirm, and around brokers that cannot say."""
        seen: set[int] = set()
        self._walk_from(self._roots(), seen)
        if self.stops or self._is_blind(self.id.broker):
            # Behind several brokers in a row that cannot say: who relayed it to the last of them is not known.
            for one in self._answers.values():
                if one is not None and one.arrived is not None and one.broker not in seen:
                    blind = [hit for hit in one.arrived_from if self._is_blind(hit.number) and hit.number not in seen]
                    stops = [self._inferred(hit.number, 0, 0, hit.doubt * one.arrived.doubt) for hit in blind[:1]]
                    self._walk_from(stops, seen)
        self.pruned += self._unclaimed(seen)
        self.lost = [hop for hop in self.lost if hop.neighbour not in seen]
        self.open = [hop for hop in self.open if hop.neighbour not in seen]

    def _walk_from(self, roots: list[Stop], seen: set[int]) -> None:
        waiting = roots
        while waiting:
            stop = waiting.pop()
            if stop.broker in seen:
                continue
            seen.add(stop.broker)
            self.stops.append(stop)
            onward: list[Stop] = []
            for hit in stop.findings.relayed_to:
                self._follow(stop, hit, onward)
            onward += self._beyond(stop, {one.broker for one in onward})
            waiting += reversed(onward)

    def _roots(self) -> list[Stop]:
        """The origin, by its own record or by its neighbours'."""
        origin = self._answers.get(self.id.broker)
        if origin is not None and origin.accepted is not None:
            hit = origin.accepted
            return [Stop(origin.broker, 0, 0, hit.doubt, (hit.time_from, hit.time_to), origin)]
        if origin is not None and not origin.gaps:
            return []
        came = self._witnesses(self.id.broker)
        return [self._inferred(self.id.broker, 0, 0, min(doubt for _, doubt in came))] if came else []

    def _follow(self, stop: Stop, claim: Hit, onward: list[Stop]) -> None:
        """A broker on the way says that it relayed the message to a neighbour."""
        if claim.number not in self._answers or claim.number == stop.parent:
            return
        there = self._answers[claim.number]
        own = None if there is None else _own(there, self.id.broker)
        if there is not None and own is not None:
            doubt = claim.doubt * own.doubt
            onward.append(Stop(there.broker, stop.broker, stop.depth + 1, doubt, (own.time_from, own.time_to), there))
        elif there is None or there.gaps or (stop.broker in self._late and there.ends):
            # Also where the link gave it back: the neighbour may have had it before that.
            doubts = [doubt for _, doubt in self._witnesses(claim.number)] + _doubts_of_traces(there)
            if doubts:
                doubt = claim.doubt * min(doubts)
                onward.append(self._inferred(claim.number, stop.broker, stop.depth + 1, doubt))
            else:
                why = SILENT if there is None else BEHIND_GAP
                self.open.append(OpenHop(stop.broker, claim.number, claim.doubt, why))
        elif came_back(stop.findings.dropped, claim.number) or is_kept_for(stop.findings.dropped, claim.number):
            return
        elif claim.doubt > BELIEVED_DOUBT:
            self.pruned.append(PrunedHop(stop.broker, claim.number, claim.doubt, "the neighbour never had it"))
        elif stop.findings.gaps or stop.findings.ends:
            self.open.append(OpenHop(stop.broker, claim.number, claim.doubt, SENDER_ENDED))
        else:
            self.lost.append(LostHop(stop.broker, claim.number, claim.doubt))

    def _beyond(self, stop: Stop, found: set[int]) -> list[Stop]:
        """Brokers that say they got it from this one, whose own record does not say so and is not complete."""
        if stop.recorded and not stop.findings.gaps and not stop.findings.ends:
            return []
        stops = []
        for one, doubt in self._witnesses(stop.broker):
            if one.broker not in found and one.arrived is not None:
                window = (one.arrived.time_from, one.arrived.time_to)
                stops.append(Stop(one.broker, stop.broker, stop.depth + 1, doubt, window, one))
        return stops

    def _witnesses(self, broker: int) -> list[tuple[Findings, float]]:
        """Brokers that say they got the message from this one, and the doubt that they did."""
        return [
            (one, one.arrived.doubt * hit.doubt)
            for one in self._answers.values()
            if one is not None and one.arrived is not None and one.broker != self.id.broker
            for hit in one.arrived_from
            if hit.number == broker
        ]

    def _inferred(self, broker: int, parent: int, depth: int, doubt: float) -> Stop:
        """A broker that only its neighbours' records say it passed."""
        known = self._answers.get(broker)
        findings = known if known is not None else _nothing(broker)
        return Stop(broker, parent, depth, doubt, (self.id.time, self.id.time), findings, recorded=False)

    def _is_blind(self, broker: int) -> bool:
        """Whether a broker cannot say that it never had the message."""
        answer = self._answers.get(broker)
        blind = answer is None or (_own(answer, self.id.broker) is None and bool(answer.gaps))
        return broker in self._answers and blind

    def _unclaimed(self, seen: set[int]) -> list[PrunedHop]:
        """Brokers that say they had it, and none on the way says it relayed it to them."""
        return [
            PrunedHop(one.broker, one.broker, one.arrived.doubt, "no broker on the way relayed it")
            for one in self._answers.values()
            if one is not None and one.arrived is not None and one.broker not in seen
        ]

    @property
    def concerned(self) -> set[int]:
        """The brokers whose records matter: where it passed, or may have passed, and where it entered."""
        return {self.id.broker, *(stop.broker for stop in self.stops), *(hop.neighbour for hop in self.open)}

    def gaps(self) -> dict[int, list[Gap]]:
        """Where records may hide something of the message, and what."""
        found: dict[int, list[Gap]] = {}
        stops = {stop.broker: stop for stop in self.stops}
        senders = {hop.broker for hop in self.open}
        # Replays are of interest as long as nobody is known to have got the message: otherwise it was delivered.
        unclaimed = not any(stop.findings.delivered or stop.findings.queued for stop in self.stops)
        late = {hop.neighbour for hop in self.open if hop.broker in self._late}
        for broker in self.concerned:
            answer = self._answers.get(broker)
            if answer is None:
                continue
            stop = stops.get(broker)
            hides = HIDES_ACCEPTANCE if broker == self.id.broker else HIDES_ALL
            if stop is not None:
                hides = HIDES_MORE if stop.recorded else HIDES_DELIVERIES
            found[broker] = [gap._replace(hides=hides) for gap in answer.gaps]
            if stop is None and broker in late:
                found[broker] += [gap._replace(hides=hides) for gap in answer.ends]
            is_open = answer.waits or broker in senders or (unclaimed and answer.may_be_replayed)
            if stop is not None and is_open:
                found[broker] += [gap._replace(hides=HIDES_LATER) for gap in answer.ends]
        return found


def _late_brokers(answers: Mapping[int, Findings | None]) -> set[int]:
    """Brokers that may have had it long after its id's time: where it waited, and all it came to from there."""
    known = [one for one in answers.values() if one is not None]
    hops = {(one.broker, hit.number) for one in known for hit in one.relayed_to}
    hops |= {(hit.number, one.broker) for one in known for hit in one.arrived_from}
    late = {one.broker for one in known if one.waited}
    while further := {there for here, there in hops if here in late} - late:
        late |= further
    return late


def _doubts_of_traces(findings: Findings | None) -> list[float]:
    """Doubts that a broker did what its record says with a message whose arrival it lost the record of."""
    if findings is None:
        return []
    hits = (*findings.relayed_to, *findings.delivered, *findings.queued, *findings.acknowledged, *findings.refused)
    return [hit.doubt for hit in hits] + [0.0 for _ in findings.dropped]


def _nothing(broker: int) -> Findings:
    """What is known from a broker that does not answer."""
    return Findings(broker, None, None, (), (), (), (), (), (), (), (), 0, (), 0)


def _own(findings: Findings, origin: int) -> Hit | None:
    """The broker's own word that it had the message: at the origin, that it entered there."""
    return findings.accepted if findings.broker == origin else findings.arrived


def _fate(stops: list[Stop], certainty: float) -> tuple[Verdict, float]:
    delivered = [(stop.broker, hit) for stop in stops for hit in stop.findings.delivered]
    taken = {(broker, hit.number) for broker, hit in delivered}
    queued = [(stop.broker, hit) for stop in stops for hit in stop.findings.queued]
    waits = [hit.doubt for broker, hit in queued if (broker, hit.number) not in taken]
    if waits:
        return Verdict.WAITING, certainty * (1.0 - min(waits))
    if any(is_held(stop.findings.dropped) or stop.findings.is_back for stop in stops):
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
