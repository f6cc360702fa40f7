"""Strategies over real sockets: trees and clusters outlive their controllers, link state finds the shortest ways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from postroad.topology import Graph, Plan, Settings, cluster, tree
from tests.server.planned import planned
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.topology import StrategyName
    from tests.server.planned import PlannedNetwork

# A stopped broker says goodbye, so nobody waits for heart-beats here; a broker that starts late is waited for.
QUICK = Settings(heartbeat_ms=300)


async def reached(network: PlannedNetwork, publisher: int, *subscribers: Client) -> set[bytes]:
    """Publish until a message has come to all: then every way there is works. Nobody may get one twice.

    Returns what came to all.
    """
    sender = await Client.connect(network.services[publisher].port)
    count = 0
    got: dict[Client, list[bytes]] = {one: [] for one in subscribers}

    async def listen(one: Client) -> None:
        while True:
            got[one].append((await one.frame()).body)

    listening = [asyncio.create_task(listen(one)) for one in subscribers]
    try:
        async with asyncio.timeout(20):
            while not set.intersection(*(set(bodies) for bodies in got.values())):
                count += 1
                sender.publish("quotes", f"{publisher} {count}".encode())
                await asyncio.sleep(0.1)
    finally:
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    assert all(len(bodies) == len(set(bodies)) for bodies in got.values())
    await sender.close()
    return set.intersection(*map(set, got.values()))


def test_a_tree_relays_and_its_orphans_find_another_parent(tmp_path: Path) -> None:
    async def talk() -> None:
        plan = Plan.of(tree(5, 2), "five", strategy="tree", settings=QUICK)
        async with planned(plan, tmp_path) as network:
            leaf, other = await network.subscriber(4, "quotes"), await network.subscriber(3, ">")
            assert await reached(network, 5, leaf, other)
            # Broker 2 was the parent of 4 and 5: both go to 1.
            await network.stop(2)
            await until(lambda: all(network.strategy(one).statistics()["parent"] == 1 for one in (4, 5)))
            assert await reached(network, 5, leaf, other)
            await network.start(2)
            await until(lambda: network.strategy(2).statistics()["parent"] == 1)
            assert await reached(network, 2, leaf, other)
            for client in (leaf, other):
                await client.close()

    run(talk)


def test_a_secondary_takes_over_from_a_controller_and_traffic_goes_on(tmp_path: Path) -> None:
    async def talk() -> None:
        # Tops 1 and 2; 3 and 4 below 1 (3 is its secondary), 5 and 6 below 2.
        plan = Plan.of(cluster(2, 2, 0, 0), "six", strategy="cluster", settings=QUICK)
        async with planned(plan, tmp_path) as network:
            below, beyond = await network.subscriber(4), await network.subscriber(6, "*")
            assert await reached(network, 5, below, beyond)
            assert await reached(network, 3, below, beyond)
            await network.stop(1)
            await until(lambda: network.strategy(4).statistics()["parent"] == 3)
            await until(lambda: network.strategy(3).statistics()["peers"] == 1)
            assert await reached(network, 4, below, beyond)
            assert await reached(network, 5, below, beyond)
            # The controller comes back and has its place again.
            await network.start(1)
            await until(lambda: network.strategy(3).statistics()["parent"] == 1)
            assert await reached(network, 1, below, beyond)
            for client in (below, beyond):
                await client.close()

    run(talk)


@pytest.mark.parametrize("strategy", ["drp", "flood", "tree", "cluster"])
def test_only_those_who_want_a_message_get_it_whatever_the_strategy(tmp_path: Path, strategy: StrategyName) -> None:
    async def talk() -> None:
        plan = Plan.of(cluster(1, 2, 1, 0), "five", strategy=strategy, settings=QUICK)
        async with planned(plan, tmp_path) as network:
            dear = await network.subscriber(4, selector="price > 20")
            everything = await network.subscriber(5, ">")
            assert await reached(network, 1, everything)
            await asyncio.sleep(0.5)
            sender = await Client.connect(network.services[2].port)
            for price in (10, 30, 20, 40):
                sender.publish("quotes", str(price).encode(), price=str(price))
            sender.publish("news", b"of something else")
            assert [(await dear.frame()).body for _ in range(2)] == [b"30", b"40"]
            wanted = [b"10", b"30", b"20", b"40", b"of something else"]
            got: list[bytes] = []
            while len(got) < len(wanted):
                body = (await everything.frame()).body
                got += [] if body.startswith(b"1 ") else [body]
            assert got == wanted
            for client in (dear, everything, sender):
                await client.close()

    run(talk)


def test_ways_are_the_shortest_after_joins_leaves_cuts_and_restarts(tmp_path: Path) -> None:
    async def talk() -> None:
        links = {(1, 2): 10, (2, 3): 10, (3, 4): 10, (4, 5): 10, (1, 5): 10, (2, 5): 15, (1, 4): 45}
        plan = Plan.of(Graph(range(1, 6), links), "five", settings=QUICK)
        async with planned(plan, tmp_path, running=(1, 2, 3)) as network:
            await network.all_ways_are_shortest()
            for joins in (4, 5):
                await network.start(joins)
            await network.all_ways_are_shortest()
            for ends in ((1, 2), (4, 5)):
                network.wires[ends].cut()
            await network.all_ways_are_shortest()
            await network.stop(5)
            await network.all_ways_are_shortest()
            network.wires[4, 5].mend()
            await network.start(5)
            await network.all_ways_are_shortest()
            await network.stop(3)
            network.wires[1, 2].mend()
            await network.start(3)
            await network.all_ways_are_shortest()
            far = await network.subscriber(3)
            assert await reached(network, 5, far)
            await far.close()

    run(talk)
