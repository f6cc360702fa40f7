"""Services of a plan in this process, on loopback; every link goes through a wire that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from postroad.config import broker_config
from postroad.routing import Drp
from postroad.server import Service
from postroad.topology import Graph, Plan, routes
from tests.server.fleet import free_ports
from tests.server.scene import Client, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from postroad.broker import QueueSettings
    from postroad.routing import Strategy
    from postroad.store import StoreSettings


class End(asyncio.Protocol):
    """One end of a connection through a wire: what comes here goes out at the other."""

    def __init__(self, wire: Wire, other: End | None = None) -> None:
        self.wire = wire
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early = bytearray()
        self.dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.wire.ends.add(self)
        if not self.wire.whole:
            transport.abort()
        elif self.other is None:
            self.dialling = asyncio.get_running_loop().create_task(self._dial())
        else:
            transport.write(self.other.early)

    async def _dial(self) -> None:
        try:
            _, self.other = await asyncio.get_running_loop().create_connection(
                lambda: End(self.wire, self), "127.0.0.1", self.wire.target
            )
        except OSError:
            self.hang_up()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.wire.ends.discard(self)
        if self.other is not None:
            self.other.hang_up()

    def hang_up(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Wire:
    """Carries connections to a port, until it is cut."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.whole = True
        self.ends: set[End] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: End(self), "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        self.whole = False
        for end in list(self.ends):
            assert end.transport is not None
            end.transport.abort()

    def mend(self) -> None:
        self.whole = True

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        await until(lambda: not self.ends)


class PlannedNetwork:
    """The brokers of a plan, those that run, and the wires between them."""

    def __init__(
        self, plan: Plan, path: Path, store: StoreSettings | None = None, queues: QueueSettings | None = None
    ) -> None:
        ports = iter(free_ports(2 * len(plan.brokers)))
        placed = tuple(msgspec.structs.replace(one, port=next(ports), link_port=next(ports)) for one in plan.brokers)
        self.plan = msgspec.structs.replace(plan, brokers=placed)
        self.path = path
        self.store = store
        self.queues = queues
        self.services: dict[int, Service] = {}
        self.wires: dict[tuple[int, int], Wire] = {}

    async def lay_wires(self) -> None:
        ports = {one.number: one.link_port for one in self.plan.brokers}
        for low, high in self.plan.graph().links:
            self.wires[low, high] = Wire(ports[high])
            await self.wires[low, high].start()

    async def start(self, number: int) -> Service:
        secret = "a secret that all brokers share"
        config = broker_config(self.plan, number, self.path / str(number), secret=secret, admin_port=0)
        assert config.network is not None
        # The lower of two numbers dials, so the wire stands where it would.
        neighbours = [
            msgspec.structs.replace(one, port=self.wires[number, one.number].port)
            if (number, one.number) in self.wires
            else one
            for one in config.network.neighbours
        ]
        network = msgspec.structs.replace(config.network, neighbours=neighbours)
        store = config.store if self.store is None else self.store
        queues = config.queues if self.queues is None else self.queues
        service = Service(msgspec.structs.replace(config, network=network, store=store, queues=queues))
        await service.start()
        self.services[number] = service
        return service

    async def stop(self, number: int) -> None:
        await self.services.pop(number).stop()

    def strategy(self, number: int) -> Strategy:
        relay = self.services[number].dispatcher.core.relay
        assert relay is not None
        return relay.strategy

    async def subscriber(self, number: int, topic: str = "quotes", **headers: str) -> Client:
        client = await Client.connect(self.services[number].port)
        await client.subscribe("s", topic, **headers)
        return client

    def graph(self) -> Graph:
        """The brokers that run and the wires between them that are whole."""
        links = {
            ends: cost
            for ends, cost in self.plan.graph().links.items()
            if set(ends) <= self.services.keys() and self.wires[ends].whole
        }
        return Graph(self.services, links)

    async def all_ways_are_shortest(self) -> None:
        """Wait until every broker's ways are those of the graph as it is."""
        graph = self.graph()
        around = {number: dict(graph.neighbours(number)) for number in graph.brokers}

        def agree() -> bool:
            for number in graph.brokers:
                strategy = self.strategy(number)
                assert isinstance(strategy, Drp)
                found, right = strategy.link_state.routes, routes(number, around)
                ways = [(one.neighbours.tolist(), one.masks.tolist()) for one in (found, right)]
                far = [{at: far for at, far in enumerate(one.distances.tolist()) if far >= 0} for one in (found, right)]
                if ways[0] != ways[1] or far[0] != far[1]:
                    return False
            return True

        await until(agree)


@contextlib.asynccontextmanager
async def planned(
    plan: Plan,
    path: Path,
    running: Iterable[int] | None = None,
    store: StoreSettings | None = None,
    queues: QueueSettings | None = None,
) -> AsyncIterator[PlannedNetwork]:
    """Start the brokers of a plan, all or some."""
    network = PlannedNetwork(plan, path, store, queues)
    await network.lay_wires()
    try:
        for number in plan.graph().brokers if running is None else running:
            await network.start(number)
        yield network
    finally:
        for number in list(network.services):
            await network.stop(number)
        for wire in network.wires.values():
            await wire.close()
        # A connection that was accepted last of all is made and closed within a few turns of the loop.
        await asyncio.sleep(0.1)
