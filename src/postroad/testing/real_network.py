"""A network in real time: services of this process on the loopback address, and clients that speak STOMP to them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from postroad.client import connect
from postroad.config import broker_config
from postroad.errors import PostroadError
from postroad.messages import Draft
from postroad.server import Service
from postroad.testing.cuttable_links import Wiring
from postroad.testing.network_contract import NotSettled
from postroad.topology import HIERARCHICAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from postroad.client import Client, Subscription
    from postroad.config import BrokerConfig
    from postroad.messages import MessageId, Value
    from postroad.testing.network_contract import LinkTraffic
    from postroad.topology import Plan

__all__ = ["RealNetwork"]

STEP_SECONDS = 0.05
# Brokers tell news within a tick of 25 ms, and all of them share this process: when it was busy, so was this clock.
QUIET_SECONDS = 0.4
MOST_SECONDS = 60.0


class RealNetwork:
    """`BrokerNetwork` over services of this process.

    Args:
        plan: the network; its hosts and ports are not used, free ones are.
        data: a directory for what survives the restart of a broker.
        watch: called for each message that a subscriber gets, with its name and the id.
    """

    def __init__(self, plan: Plan, data: Path, watch: Callable[[str, MessageId], None] | None = None) -> None:
        self._watch = watch
        self._plan = plan
        self._graph = plan.graph()
        self._data = data
        self._wiring = Wiring()
        self._services: dict[int, Service] = {}
        self._publishers: dict[int, Client] = {}
        self._subscribers: dict[str, _Subscriber] = {}
        self._delivered: dict[str, list[MessageId]] = {}

    @property
    def plan(self) -> Plan:
        """What was planned."""
        return self._plan

    @property
    def running(self) -> frozenset[int]:
        """The brokers that run now."""
        return frozenset(self._services)

    def service(self, broker: int) -> Service:
        """A broker that runs.

        Raises:
            PostroadError: it does not.
        """
        if broker not in self._services:
            raise PostroadError(f"broker {broker} does not run; those that do: {sorted(self._services)}")
        return self._services[broker]

    # --- begin and end ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start all brokers."""
        numbers = [broker.number for broker in self._plan.brokers]
        for number in numbers:
            for neighbour in self._planned(number):
                await self._wiring.lay(number, neighbour)
        for number in numbers:
            await self.start(number)

    async def close(self) -> None:
        """Stop all brokers and clients."""
        for subscriber in list(self._subscribers.values()):
            await subscriber.close()
        for client in self._publishers.values():
            with contextlib.suppress(PostroadError):
                await client.__aexit__(None, None, None)
        await asyncio.gather(*(service.stop() for service in self._services.values()))
        await self._wiring.close()

    def _planned(self, number: int) -> list[int]:
        network = broker_config(self._plan, number, self._data).network
        assert network is not None
        return [neighbour.number for neighbour in network.neighbours]

    def _config(self, number: int) -> BrokerConfig:
        config = broker_config(self._plan, number, self._data / str(number))
        assert config.network is not None
        neighbours = [
            msgspec.structs.replace(each, host="127.0.0.1", port=self._wiring.port(number, each.number))
            for each in config.network.neighbours
        ]
        network = msgspec.structs.replace(config.network, host="127.0.0.1", port=0, neighbours=neighbours)
        return msgspec.structs.replace(config, host="127.0.0.1", port=0, log_level="warning", network=network)

    # --- clients ---------------------------------------------------------------------------------------------------

    async def subscribe(self, broker: int, topic: str, where: str = "", *, name: str | None = None) -> str:
        """A subscriber at a broker, over a connection of its own; returns its name."""
        name = name or f"subscriber-{len(self._delivered) + 1}"
        if name in self._subscribers:
            raise PostroadError(f"there is a subscriber {name!r} already; choose another name")
        client = await self._client(broker)
        subscription = client.subscribe(topic, where)
        await subscription.start()
        got = self._delivered.setdefault(name, [])
        watch = None if self._watch is None else partial(self._watch, name)
        self._subscribers[name] = _Subscriber(broker, client, subscription, got, watch)
        return name

    async def unsubscribe(self, name: str) -> None:
        """A subscriber leaves."""
        if (subscriber := self._subscribers.pop(name, None)) is not None:
            await subscriber.close()

    async def publish(
        self, broker: int, topic: str, attributes: Mapping[str, Value] | None = None, body: bytes | str = b""
    ) -> MessageId:
        """Publish a message at a broker."""
        data = body.encode() if isinstance(body, str) else body
        return (await self.publish_many(broker, [Draft(topic, attributes or {}, body=data)]))[0]

    async def publish_many(self, broker: int, drafts: Iterable[Draft]) -> list[MessageId]:
        """Publish many messages at a broker."""
        if broker not in self._publishers:
            self._publishers[broker] = await self._client(broker)
        return await self._publishers[broker].publish_many(drafts, receipt=True)

    def delivered(self, name: str) -> list[MessageId]:
        """What a subscriber got, in order."""
        return list(self._delivered.get(name, ()))

    async def _client(self, broker: int) -> Client:
        client = connect(f"stomp://127.0.0.1:{self.service(broker).port}")
        return await client.__aenter__()

    # --- what happens ----------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def cut(self, one: int, other: int) -> None:
        """The link between two brokers breaks."""
        self._wiring.cut(one, other)

    async def join(self, one: int, other: int) -> None:
        """A link that was cut works again, as soon as the broker that dials tries again."""
        self._wiring.join(one, other)

    async def crash(self, broker: int) -> None:
        """A broker is gone at once; no neighbour gets a word of its farewell."""
        service = self.service(broker)
        self._wiring.unplug(broker)
        del self._services[broker]
        await service.abort()
        gone = [name for name, subscriber in self._subscribers.items() if subscriber.broker == broker]
        for name in gone:
            await self._subscribers.pop(name).close()
        if (client := self._publishers.pop(broker, None)) is not None:
            with contextlib.suppress(PostroadError):
                await client.__aexit__(None, None, None)
        await service.stop()

    async def start(self, broker: int) -> None:
        """A broker starts, with what it kept on disk."""
        if broker in self._services:
            raise PostroadError(f"broker {broker} is running")
        service = Service(self._config(broker))
        await service.start()
        self._services[broker] = service
        self._wiring.plug(broker, service.link_port)

    async def settled(self) -> None:
        """Wait until nothing happens any more."""
        loop = asyncio.get_running_loop()
        begun = calm_since = loop.time()
        last = self._happened()
        while loop.time() - calm_since < QUIET_SECONDS:
            if loop.time() - begun > MOST_SECONDS:
                raise NotSettled(f"the network has not come to rest in {MOST_SECONDS:g} s: {self._restless()}")
            await asyncio.sleep(STEP_SECONDS)
            happened = self._happened()
            if happened != last or self._restless():
                calm_since = loop.time()
            last = happened

    def _happened(self) -> tuple[int, ...]:
        traffic = self._wiring.traffic().values()
        routed = sum(each.data_bytes + each.control_bytes for each in traffic)
        accepted = sum(service.statistics().accepted for service in self._services.values())
        return routed, accepted, sum(map(len, self._delivered.values()))

    def _restless(self) -> str:
        """Which links that could be up are down, or which messages wait; empty when there are none."""
        waiting = sum(service.statistics().waiting_messages_now for service in self._services.values())
        if waiting:
            return f"{waiting} messages wait for subscribers"
        for number, service in self._services.items():
            expected = [
                other
                for other in self._graph.neighbours(number)
                if other in self._services and not self._wiring.is_cut(number, other)
            ]
            links = service.links
            if links is not None and self._holds_to_plan() and links.statistics()["links_up"] < len(expected):
                return f"broker {number} has {links.statistics()['links_up']} of {len(expected)} links"
        return ""

    def _holds_to_plan(self) -> bool:
        """In a tree or a cluster that lost a broker, the brokers decide which links there are."""
        return self._plan.strategy not in HIERARCHICAL or len(self._services) == len(self._plan.brokers)

    def traffic(self) -> dict[tuple[int, int], LinkTraffic]:
        """(from, to) -> what was sent since the beginning."""
        return self._wiring.traffic()


class _Subscriber:
    """One client with one subscription, and what it got."""

    def __init__(
        self,
        broker: int,
        client: Client,
        subscription: Subscription,
        got: list[MessageId],
        watch: Callable[[MessageId], None] | None,
    ) -> None:
        self.broker = broker
        self._client = client
        self._watch = watch
        self._task = asyncio.create_task(self._collect(subscription, got))

    async def _collect(self, subscription: Subscription, got: list[MessageId]) -> None:
        # It ends with the connection; a crash of the broker is part of the test.
        with contextlib.suppress(PostroadError):
            async for message in subscription:
                # One by one: the test looks at the list meanwhile.
                got.append(message.id)
                if self._watch is not None:
                    self._watch(message.id)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(PostroadError):
            await self._client.__aexit__(None, None, None)
