"""What one broker's record says about one message: the evidence that a reconstruction is made of."""

from __future__ import annotations

from typing import NamedTuple

from postroad.tracking.reasons import WAITS_LONG, Detour, is_back, is_held

__all__ = ["Drop", "Findings", "Gap", "Hit", "merged"]


class Hit(NamedTuple):
    """A positive answer.

    Attributes:
        number: the neighbour or subscription it is about; 0 if it is about the broker itself.
        doubt: the probability that an id that never was here gets this answer; 0 for an exact record.
        time_from: the window of id times of the record that answered.
        time_to: its end.
    """

    number: int
    doubt: float
    time_from: int
    time_to: int


class Drop(NamedTuple):
    """A message that went no further, from the exact record of these."""

    subscription: int
    link: int
    reason: str
    at: int


class Gap(NamedTuple):
    """A time for which the broker's record is not complete, by the broker's clock.

    Attributes:
        since: from when,
        until: to when, not included.
        reason: why.
        hides: what of the message in question it may hide; empty until a reconstruction has compared all evidence.
    """

    since: int
    until: int
    reason: str
    hides: str = ""


class Findings(NamedTuple):
    """All that one broker knows about one id.

    Attributes:
        broker: whose record it is.
        accepted: it entered the network here.
        arrived: this broker read it from a link.
        arrived_from: the neighbours on whose links.
        relayed_to: the neighbours to whose links it was written.
        delivered: the subscriptions whose sockets got it.
        acknowledged: the subscriptions that acknowledged it.
        refused: the subscriptions that refused it.
        queued: the subscriptions in whose queues it had to wait; it may still wait there.
        dropped: where it went no further, exactly.
        gaps: times around the id's own for which the record is incomplete: a "no" proves nothing then.
        retained_since: the record before this time is deleted; 0 when nothing is.
        neighbours: the links that this broker had at the time.
        probes: filters probed and rows looked up, for accounting.
        ends: times without a complete record after the message was handled here, which is on record as a whole: they
            hide only what became of it later. Of a broker that never had it by its record: times at which it may have
            come, if it waited elsewhere until then.
    """

    broker: int
    accepted: Hit | None
    arrived: Hit | None
    arrived_from: tuple[Hit, ...]
    relayed_to: tuple[Hit, ...]
    delivered: tuple[Hit, ...]
    acknowledged: tuple[Hit, ...]
    refused: tuple[Hit, ...]
    queued: tuple[Hit, ...]
    dropped: tuple[Drop, ...]
    gaps: tuple[Gap, ...]
    retained_since: int
    neighbours: tuple[int, ...]
    probes: int
    ends: tuple[Gap, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the record says that the message came here."""
        return self.accepted is not None or self.arrived is not None

    @property
    def waited(self) -> bool:
        """Whether the message was kept here for any length of time before it went on: in a queue, or for its way."""
        return bool(self.queued) or any(drop.reason in WAITS_LONG for drop in self.dropped)

    @property
    def waits(self) -> bool:
        """Whether the message waits here when the record ends: in a queue, or for a way to another broker."""
        done = {hit.number for hit in self.delivered} | {drop.subscription for drop in self.dropped}
        return any(hit.number not in done for hit in self.queued) or is_held(self.dropped) or self.is_back

    @property
    def may_be_replayed(self) -> bool:
        """Whether nobody got the message here as far as the record goes, and later subscribers may: it is retained."""
        retained = any(drop.reason == Detour.RETAINED for drop in self.dropped)
        return retained and not self.delivered and not self.queued

    @property
    def is_back(self) -> bool:
        """Whether a consumer has given the message back, and it waits to be delivered again when the record ends."""
        # A crash may lose the count that tells a delivery after it from the first one, but no acknowledgement.
        done = {hit.number for hit in self.acknowledged} | {drop.subscription for drop in self.dropped}
        return is_back(self.dropped) and any(hit.number not in done for hit in self.queued)


def merged(first: Findings, second: Findings) -> Findings:
    """What two parts of one broker's record say together: what one knows and the other does not is known."""
    return Findings(
        broker=first.broker,
        accepted=_surer(first.accepted, second.accepted),
        arrived=_surer(first.arrived, second.arrived),
        arrived_from=_union(first.arrived_from, second.arrived_from),
        relayed_to=_union(first.relayed_to, second.relayed_to),
        delivered=_union(first.delivered, second.delivered),
        acknowledged=_union(first.acknowledged, second.acknowledged),
        refused=_union(first.refused, second.refused),
        queued=_union(first.queued, second.queued),
        dropped=tuple(sorted({*first.dropped, *second.dropped}, key=lambda drop: (drop.at, drop))),
        gaps=tuple(sorted({*first.gaps, *second.gaps})),
        retained_since=max(first.retained_since, second.retained_since),
        neighbours=tuple(sorted({*first.neighbours, *second.neighbours})),
        probes=first.probes + second.probes,
        ends=_ends(first, second),
    )


def _ends(first: Findings, second: Findings) -> tuple[Gap, ...]:
    """A part that knows the message has the last word: when the other may have missed its coming is of no interest."""
    parts = [one for one in (first, second) if one.is_known] or [first, second]
    return tuple(sorted({gap for one in parts for gap in one.ends}))


def _surer(one: Hit | None, other: Hit | None) -> Hit | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda hit: hit.doubt)


def _union(some: tuple[Hit, ...], others: tuple[Hit, ...]) -> tuple[Hit, ...]:
    found: dict[int, Hit] = {}
    for hit in (*some, *others):
        found[hit.number] = min(found.get(hit.number, hit), hit, key=lambda one: one.doubt)
    return tuple(found[number] for number in sorted(found))
