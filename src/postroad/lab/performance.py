"""A scenario on a network, and its messages divided into reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from postroad.lab.scenarios import Truth
from postroad.simulation import LinkQuality

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from postroad.lab.scenarios import Publications, Scenario
    from postroad.simulation import ServiceTimes, SimulatedNetwork
    from postroad.topology import Plan

    Tell = Callable[[float], None]

__all__ = ["Offer", "Performance", "offers"]

# Messages that are made at once, together with who wants them.
_BLOCK = 1_000
_USUAL = LinkQuality()


@dataclass(frozen=True)
class Performance:
    """What is played, and where.

    Attributes:
        plan: the network.
        scenario: the load.
        quality: simulated: how good the links are.
        service: simulated: how long brokers work on what arrives; None for no time.
        agreed: simulated: at the beginning, every broker knows everything.
        seed: simulated: of the delays of links.
        drain_seconds: how long to wait, after the last publication, for what is still under way.
        gather_us: messages that enter at one broker within this time are offered to it as one read.
        sample_ms: how often to sample links and brokers.
        happenings: simulated: (virtual ms from the beginning, what to do then), in order of time.
    """

    plan: Plan
    scenario: Scenario
    quality: LinkQuality = _USUAL
    service: ServiceTimes | None = None
    agreed: bool = False
    seed: int = 1
    drain_seconds: float = 2.0
    gather_us: int = 5_000
    sample_ms: int = 250
    happenings: tuple[tuple[int, Callable[[SimulatedNetwork], None]], ...] = field(default=())


class Offer:
    """Messages that go to one broker together, and what is known about them."""

    __slots__ = ("at", "batch", "broker", "clients", "due", "wanted", "wanted_brokers")

    def __init__(self, block: _Block, rows: NDArray[np.int64], broker: int, due: int) -> None:
        self.batch = block.batch.take(rows)
        self.broker = broker
        self.due = due
        self.at = block.at[rows]
        self.clients = block.clients[rows]
        self.wanted, self.wanted_brokers = (counts[rows] for counts in block.counts)


class _Block:
    """Some messages of a scenario in order of time, made together."""

    def __init__(self, publications: Publications, truth: Truth, first: int, last: int) -> None:
        self.at = publications.at[first:last]
        self.brokers = publications.brokers[first:last]
        self.clients = publications.clients[first:last]
        self.batch = publications.batch(range(first, last))
        self.counts = truth.counts(self.batch)

    def offers(self, gather_us: int) -> Iterator[Offer]:
        """Yield what goes to each broker in each slice of time."""
        slices = self.at // gather_us
        order = np.lexsort((np.arange(len(self.at)), self.brokers, slices))
        keys = zip(slices[order].tolist(), self.brokers[order].tolist(), order.tolist(), strict=True)
        for (slice_, broker), rows in groupby(keys, key=lambda key: key[:2]):
            yield Offer(self, np.array([row for *_, row in rows]), broker, (slice_ + 1) * gather_us)


def offers(performance: Performance, tell: Tell) -> Iterator[Offer]:
    """Yield all messages, in order of time; call `tell` with the share of them that has been made."""
    scenario = performance.scenario
    publications, truth = scenario.publications(), Truth(scenario.subscribers())
    for first in range(0, len(publications), _BLOCK):
        tell(first / len(publications))
        block = _Block(publications, truth, first, min(first + _BLOCK, len(publications)))
        yield from block.offers(performance.gather_us)
