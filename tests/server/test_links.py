"""Brokers linked over real sockets: messages go where they are wanted, over any way there is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from postroad.errors import PostroadError
from postroad.server import BrokerConfig, Service
from postroad.server.network import Neighbouring, NetworkConfig, NetworkStrategy, check_network
from postroad.server.status import status
from postroad.topology import Graph, line, ring
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class LiveNetwork:
    """Services on loopback, linked as a graph says."""

    def __init__(
        self, graph: Graph, path: Path, strategy: NetworkStrategy, secret: str | None, **settings: Any
    ) -> None:
        self.settings = settings
        self.graph = graph
        self.path = path
        self.strategy = strategy
        self.secrets = dict.fromkeys(graph.brokers, secret)
        self.ports = dict(zip(graph.brokers, free_ports(len(graph.brokers)), strict=True))
        self.services: dict[int, Service] = {}

    async def start(self, number: int) -> Service:
        neighbours = [
            Neighbouring(number=other, port=self.ports[other], cost=cost)
            for other, cost in self.graph.neighbours(number).items()
        ]
        network = NetworkConfig(
            port=self.ports[number], secret=self.secrets[number], strategy=self.strategy, neighbours=neighbours
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
            await until(lambda links=links, wanted=wanted: links.statistics()["links_up"] >= len(wanted))  # type: ignore[misc]
        await asyncio.sleep(0.4)


@contextlib.asynccontextmanager
async def live(
    graph: Graph,
    path: Path,
    strategy: NetworkStrategy = NetworkStrategy.DRP,
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


@pytest.mark.parametrize("strategy", [NetworkStrategy.DRP, NetworkStrategy.FLOOD])
def test_a_message_reaches_subscribers_at_other_brokers_by_content(tmp_path: Path, strategy: NetworkStrategy) -> None:
    async def talk() -> None:
        async with live(line(3), tmp_path, strategy, "a secret that all brokers share") as network:
            far = await subscriber(network.services[3], selector="price > 20")
            middle = await subscriber(network.services[2])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            for price in (10, 30, 20, 40):
                sender.publish("quotes", str(price).encode(), price=str(price))
            assert [(await far.frame()).body for _ in range(2)] == [b"30", b"40"]
            assert [(await middle.frame()).body for _ in range(4)] == [b"10", b"30", b"20", b"40"]
            for client in (far, middle, sender):
                await client.close()

    run(talk)


def test_messages_go_the_other_way_round_when_a_broker_stops_and_it_is_used_again_when_it_returns(
    tmp_path: Path,
) -> None:
    async def talk() -> None:
        async with live(ring(4), tmp_path) as network:
            far = await subscriber(network.services[3])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            sender.publish("quotes", b"one")
            assert (await far.frame()).body == b"one"
            await network.services.pop(2).stop()
            await network.converged()
            sender.publish("quotes", b"two")
            assert (await far.frame()).body == b"two"
            await network.start(2)
            await network.converged()
            told = status(network.services[2]).network
            assert told is not None
            assert (told.name, told.strategy, told.links["links_up"], told.routing["reached"]) == (
                "postroad",
                "drp",
                2,
                3,
            )
            newcomer = await Client.connect(network.services[2].port)
            newcomer.publish("quotes", b"three")
            assert (await far.frame()).body == b"three"
            for client in (far, sender, newcomer):
                await client.close()

    run(talk)


def test_a_broker_with_another_secret_does_not_join(tmp_path: Path) -> None:
    async def talk() -> None:
        network = LiveNetwork(line(2), tmp_path, NetworkStrategy.DRP, "the secret of this network")
        network.secrets[2] = "the secret of another one"
        try:
            for number in (1, 2):
                await network.start(number)
            await asyncio.sleep(1)
            for service in network.services.values():
                assert service.links is not None
                assert service.links.statistics()["links_up"] == 0
        finally:
            for service in network.services.values():
                await service.stop()

    run(talk)


def test_links_to_other_machines_need_a_secret() -> None:
    neighbours = [Neighbouring(number=2, host="192.0.2.1", port=1)]
    with pytest.raises(PostroadError, match=r"192\.0\.2\.1 is another machine, so links need a secret"):
        check_network(NetworkConfig(neighbours=neighbours))
    check_network(NetworkConfig(neighbours=neighbours, secret="s"))
