"""Networks of services on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from postroad.config import (
    BrokerConfig,
    Neighbouring,
    NetworkConfig,
)
from postroad.server import Service
from tests.server.fleet import free_ports
from tests.server.scene import Client, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from postroad.server.links import Links
    from postroad.topology import Graph, StrategyName
    from tests.server.papers import Papers


def _has_links(links: Links, count: int) -> bool:
    return links.statistics()["links_up"] >= count


class LiveNetwork:
    """Services on loopback, linked as a graph says."""

    def __init__(self, graph: Graph, path: Path, strategy: StrategyName, secret: str | None, **settings: Any) -> None:
        self.settings = settings
        self.graph = graph
        self.path = path
        self.strategy = strategy
        self.secrets = dict.fromkeys(graph.brokers, secret)
        self.papers: dict[int, Papers] = {}
        self.ports = dict(zip(graph.brokers, free_ports(len(graph.brokers)), strict=True))
        self.services: dict[int, Service] = {}

    async def start(self, number: int) -> Service:
        neighbours = [
            Neighbouring(number=other, port=self.ports[other], cost=cost)
            for other, cost in self.graph.neighbours(number).items()
        ]
        network = NetworkConfig(
            port=self.ports[number],
            secret=self.secrets[number],
            tls=self.papers[number].for_links() if number in self.papers else None,
            strategy=self.strategy,
            neighbours=neighbours,
        )
        data = str(self.path / str(number))
        service = Service(BrokerConfig(number=number, port=0, data=data, network=network, **self.settings))
        await service.start()
        self.services[number] = service
        return service

    async def converged(self) -> None:
        """Every broker has all its links, and has had time to tell what it wants."""
        for service in self.services.values():
            wanted = [number for number in self.graph.neighbours(service.config.number) if number in self.services]
            links = service.links
            assert links is not None
            await until(partial(_has_links, links, len(wanted)))
        await asyncio.sleep(0.4)


@contextlib.asynccontextmanager
async def live(
    graph: Graph,
    path: Path,
    strategy: StrategyName = "drp",
    secret: str | None = None,
    **settings: Any,
) -> AsyncIterator[LiveNetwork]:
    network = LiveNetwork(graph, path, strategy, secret, **settings)
    try:
        for number in graph.brokers:
            await network.start(number)
        yield network
    finally:
        for service in network.services.values():
            await service.stop()


async def subscriber(service: Service, **headers: str) -> Client:
    client = await Client.connect(service.port)
    await client.subscribe("s", "quotes", **headers)
    return client
