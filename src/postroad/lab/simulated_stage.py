"""Plays a scenario in virtual time, and records what happens."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from postroad.broker import Limits, planned_strategy, scheme_of
from postroad.lab.performance import offers
from postroad.lab.raw_events import LinkSample
from postroad.simulation import SimulatedNetwork
from postroad.topology import HIERARCHICAL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker import Subscription
    from postroad.lab.performance import Offer, Performance, Tell
    from postroad.lab.raw_events import RawEvents
    from postroad.messages import Batch
    from postroad.simulation import Direction, Observer

__all__ = ["play_simulated", "simulated_network"]

# Virtual time until subscriptions are known everywhere, if brokers have to tell each other.
SETTLING_MS = 5_000
# Experiments have more clients at a broker than one client may have subscriptions; they do not study the limits.
LAB_LIMITS = Limits(sessions=1_000_000, matching_ms=1_000_000)


class _Watcher:
    """Records what a simulated network reports."""

    def __init__(self, events: RawEvents) -> None:
        self._events = events
        self.begun = 0
        self.offers: dict[int, Offer] = {}

    def accepted(self, broker: int, client: int, batch: Batch, offered: int) -> None:
        offer = self.offers.pop(client)
        self._events.accepted(offer.at, broker, offer.clients, batch.ids, offer.wanted, offer.wanted_brokers)

    def delivered(
        self, broker: int, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], now: int
    ) -> None:
        self._events.delivered(now - self.begun, broker, int(subscription.key), batch.ids[rows])


def simulated_network(
    performance: Performance, observer: Observer | None = None, *, subscribed: bool = True
) -> SimulatedNetwork:
    """Return the network with its subscribers, settled."""
    plan = performance.plan
    # Strategies without link state have nothing to agree on at once; what they spread has to travel.
    agreed = performance.agreed and plan.strategy not in HIERARCHICAL
    net = SimulatedNetwork(
        plan.graph(),
        planned_strategy(plan),
        random.Random(performance.seed),
        quality=performance.quality,
        custody=plan.delivery == "custody",
        limits=LAB_LIMITS,
        scheme=scheme_of(plan.settings),
        service=performance.service,
        observer=observer,
        silent=agreed,
    )
    if not agreed:
        net.run(SETTLING_MS)
    if subscribed:
        for place, one in enumerate(performance.scenario.subscribers()):
            net.subscribe(one.broker, str(place), one.topic, one.selector, net.attach(one.broker))
        if not agreed:
            net.run(SETTLING_MS)
    if agreed:
        net.agree()
    return net


def play_simulated(performance: Performance, events: RawEvents, tell: Tell = lambda _: None) -> SimulatedNetwork:
    """Play a scenario in virtual time.

    Args:
        performance: what is played, and where.
        events: records what happens.
        tell: called with the share of the messages that has been offered.
    """
    watcher = _Watcher(events)
    net = simulated_network(performance, watcher)
    begun = watcher.begun = net.timeline.now
    for ends, way in net.links().items():
        events.skip_links(ends, _sample(way))
    for broker in net.running:
        events.broker(0, broker, net.host(broker).busy_us, 0)
    sampler = _Sampler(net, events, performance.sample_ms * 1_000, begun)
    happenings = deque(performance.happenings)
    for token, offer in enumerate(offers(performance, tell)):
        while happenings and happenings[0][0] * 1_000 <= offer.due:
            when, happen = happenings.popleft()
            sampler.run_until(begun + when * 1_000)
            happen(net)
        sampler.run_until(begun + offer.due)
        if offer.broker in net.running:
            watcher.offers[token] = offer
            net.offer(offer.broker, offer.batch, token)
    for when, happen in happenings:
        sampler.run_until(begun + when * 1_000)
        happen(net)
    sampler.run_until(net.timeline.now + round(performance.drain_seconds * 1e6))
    sampler.sample()
    events.measure("broker events", net.events, "events")
    events.measure("messages not taken", sum(len(offer.batch) for offer in watcher.offers.values()), "messages")
    tell(1.0)
    return net


class _Sampler:
    """Lets virtual time pass, and samples links and processors at regular times."""

    def __init__(self, net: SimulatedNetwork, events: RawEvents, every_us: int, begun: int) -> None:
        self._net = net
        self._events = events
        self._every = every_us
        self._begun = begun
        self._next = begun + every_us

    def run_until(self, time_us: int) -> None:
        while self._next <= time_us:
            self._net.timeline.run_until(self._next)
            self.sample()
            self._next += self._every
        self._net.timeline.run_until(time_us)

    def sample(self) -> None:
        at = self._net.timeline.now - self._begun
        for ends, way in self._net.links().items():
            self._events.link(at, ends, _sample(way), way.held_bytes)
        for broker in self._net.running:
            host = self._net.host(broker)
            self._events.broker(at, broker, host.busy_us, len(host.tasks) + len(host.offered))


def _sample(way: Direction) -> LinkSample:
    return LinkSample(way.messages, way.bytes - way.control_bytes, way.control_bytes, way.control_frames, way.busy)
