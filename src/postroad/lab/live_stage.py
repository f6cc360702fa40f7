"""Plays a scenario on brokers of this process, over loopback sockets, in real time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from postroad.lab.performance import offers
from postroad.lab.raw_events import LinkSample
from postroad.messages import Draft
from postroad.testing.real_network import RealNetwork

if TYPE_CHECKING:
    from postroad.lab.performance import Offer, Performance, Tell
    from postroad.lab.raw_events import RawEvents
    from postroad.messages import Message, MessageId

__all__ = ["play_live"]

# Batches that wait for one broker's publisher: beyond this the generator waits, and publications are late.
_WAITING = 64


def play_live(performance: Performance, events: RawEvents, tell: Tell = lambda _: None) -> None:
    """Play a scenario in real time.

    Args:
        performance: what is played, and where.
        events: records what happens.
        tell: called with the share of the messages that has been offered.
    """
    asyncio.run(_play(performance, events, tell))


async def _play(performance: Performance, events: RawEvents, tell: Tell) -> None:
    subscribers = performance.scenario.subscribers()
    clock = _Clock()

    def got(name: str, message: MessageId) -> None:
        place = int(name)
        ids = np.array([[message.head, message.tail]], np.uint64)
        events.delivered(clock.now_us, subscribers[place].broker, place, ids)

    with tempfile.TemporaryDirectory(prefix="postroad-lab-") as data:
        network = RealNetwork(performance.plan, Path(data), watch=got)
        try:
            await network.open()
            for place, one in enumerate(subscribers):
                await network.subscribe(one.broker, one.topic, one.selector, name=str(place))
            await network.settled()
            for ends, way in network.traffic().items():
                events.skip_links(ends, LinkSample(way.messages, way.data_bytes, way.control_bytes))
            clock.begin()
            await _LivePublishers(network, events).publish(performance, clock, tell)
            await network.settled()
            _sample(network, events, clock)
        finally:
            await network.close()


class _Clock:
    """Real time since the beginning."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def begin(self) -> None:
        self._begun = time.perf_counter()

    @property
    def now_us(self) -> int:
        return round((time.perf_counter() - self._begun) * 1e6)


class _LivePublishers:
    """One publisher for each broker; each sends its batches one after the other."""

    def __init__(self, network: RealNetwork, events: RawEvents) -> None:
        self._network = network
        self._events = events
        self._queues: dict[int, asyncio.Queue[Offer | None]] = {}

    async def publish(self, performance: Performance, clock: _Clock, tell: Tell) -> None:
        """Offer each batch at its time, or as soon as there is room for it."""
        next_sample = performance.sample_ms * 1_000
        async with asyncio.TaskGroup() as group:
            for offer in offers(performance, tell):
                if (wait := offer.due - clock.now_us) > 0:
                    await asyncio.sleep(wait / 1e6)
                if clock.now_us >= next_sample:
                    _sample(self._network, self._events, clock)
                    next_sample += performance.sample_ms * 1_000
                if offer.broker not in self._queues:
                    self._queues[offer.broker] = asyncio.Queue(_WAITING)
                    group.create_task(self._send(self._queues[offer.broker]))
                await self._queues[offer.broker].put(offer)
            for queue in self._queues.values():
                await queue.put(None)
        tell(1.0)

    async def _send(self, queue: asyncio.Queue[Offer | None]) -> None:
        while (offer := await queue.get()) is not None:
            ids = await self._network.publish_many(offer.broker, [_draft(message) for message in offer.batch])
            halves = np.array([[one.head, one.tail] for one in ids], np.uint64).reshape(-1, 2)
            self._events.accepted(offer.at, offer.broker, offer.clients, halves, offer.wanted, offer.wanted_brokers)


def _draft(message: Message) -> Draft:
    return Draft(message.topic, message.attributes, body=message.body)


def _sample(network: RealNetwork, events: RawEvents, clock: _Clock) -> None:
    for ends, way in network.traffic().items():
        events.link(clock.now_us, ends, LinkSample(way.messages, way.data_bytes, way.control_bytes), 0)
