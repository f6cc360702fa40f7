"""Messages whose way is known, and what brokers with imperfect records say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.messages import MessageId
from postroad.tracking import Drop, Findings, Gap, Hit

if TYPE_CHECKING:
    from random import Random

    from postroad.topology import Graph

TIME = 1_000_000


class Truth(NamedTuple):
    """Where a message really went: (from, to) hops, (broker, subscription) deliveries."""

    id: MessageId
    hops: frozenset[tuple[int, int]]
    deliveries: frozenset[tuple[int, int]]

    @property
    def brokers(self) -> set[int]:
        """The brokers it passed."""
        return {self.id.broker} | {to for _, to in self.hops}


class World:
    """A network whose brokers answer truly, and falsely with probability `doubt` where the truth is no.

    Every broker has the subscriptions broker * 10 + 0..4 attached.
    """

    def __init__(self, graph: Graph, random: Random, doubt: float = 0.0) -> None:
        self.graph = graph
        self.random = random
        self.doubt = doubt
        self.lost: set[tuple[int, int]] = set()
        self.drops: dict[int, tuple[Drop, ...]] = {}
        self.gaps: dict[int, tuple[Gap, ...]] = {}
        self.ends: dict[int, tuple[Gap, ...]] = {}
        self.queued: set[tuple[int, int]] = set()
        self.acknowledged: set[tuple[int, int]] = set()
        self.retained_since = 0

    def send(self, origin: int, share: float = 0.5) -> Truth:
        """A message along a random tree, to some subscriptions."""
        hops: set[tuple[int, int]] = set()
        passed, front = {origin}, [origin]
        while front:
            here = front.pop()
            for there in self.graph.neighbours(here):
                if there not in passed and self.random.random() < share:
                    hops.add((here, there))
                    passed.add(there)
                    front.append(there)
        deliveries = {
            (broker, self.subscription(broker, place))
            for broker in passed
            for place in range(5)
            if self.random.random() < 0.2
        }
        return Truth(MessageId(7, origin, TIME, 0), frozenset(hops), frozenset(deliveries))

    def subscription(self, broker: int, place: int) -> int:
        """The number of a subscription at a broker."""
        return broker * 10 + place

    def hit(self, true: bool, number: int = 0) -> Hit | None:
        """What a record answers."""
        if true or self.random.random() < self.doubt:
            return Hit(number, self.doubt, TIME - 5, TIME + 5)
        return None

    def findings(self, broker: int, truth: Truth) -> Findings:
        """What a broker knows of a message; `lost` hops left the sender and never arrived."""
        arrived = {(a, b) for a, b in truth.hops if b == broker} - self.lost
        gone = bool(self.gaps.get(broker))
        there = (broker == truth.id.broker or bool(arrived)) and not gone
        neighbours = tuple(sorted(self.graph.neighbours(broker)))
        subscriptions = [self.subscription(broker, place) for place in range(5)]
        delivered = {s for b, s in truth.deliveries if b == broker}
        waiting = {s for b, s in self.queued if b == broker}
        acknowledged = {s for b, s in self.acknowledged if b == broker}
        return Findings(
            broker=broker,
            accepted=self.hit(there) if broker == truth.id.broker else None,
            arrived=self.hit(there and bool(arrived)),
            arrived_from=self._hits(neighbours, {a for a, _ in arrived} if there else set()),
            relayed_to=self._hits(neighbours, {b for a, b in truth.hops if a == broker} if there else set()),
            delivered=self._hits(subscriptions, delivered if there else set()),
            acknowledged=self._hits(subscriptions, acknowledged if there else set()),
            refused=(),
            queued=self._hits(subscriptions, waiting if there else set()),
            dropped=self.drops.get(broker, ()),
            gaps=self.gaps.get(broker, ()),
            retained_since=self.retained_since,
            neighbours=neighbours,
            probes=1,
            ends=self.ends.get(broker, ()),
        )

    def _hits(self, numbers: tuple[int, ...] | list[int], true: set[int]) -> tuple[Hit, ...]:
        hits = (self.hit(number in true, number) for number in numbers)
        return tuple(hit for hit in hits if hit is not None)
