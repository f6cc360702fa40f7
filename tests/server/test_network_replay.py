"""Replays of a retained topic in a network: messages of every broker, once and in order, whatever links do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroad.store import RetainedTopic, StoreSettings
from postroad.topology import Plan, line
from tests.server.planned import planned
from tests.server.scene import Client, run, until

if TYPE_CHECKING:
    from pathlib import Path

# Small enough that history has to be read from disk.
PLAIN = StoreSettings(cache_bytes=20_000, segment_bytes=65_536)
RETAINING = StoreSettings(retain=[RetainedTopic(topic="a.>")], cache_bytes=20_000, segment_bytes=65_536)
KEEPER = 3
COUNT = 150


async def publish(port: int, name: str, pace: float) -> None:
    """Publish numbers one by one, each when the one before it is stored."""
    client = await Client.connect(port)
    for number in range(COUNT):
        client.publish(f"a.{name}", b"%s %d" % (name.encode(), number), receipt=str(number))
        frame = await client.frame()
        assert (frame.command, frame.headers["receipt-id"]) == ("RECEIPT", str(number)), frame
        await asyncio.sleep(pace)
    await client.close()


async def read(port: int, start: float, publishers: int, **headers: str) -> dict[str, list[int]]:
    """Begin after a while, from the first message; return what came until everything had."""
    await asyncio.sleep(start)
    client = await Client.connect(port, **({"client-id": "reader"} if "activemq.subscriptionName" in headers else {}))
    client.send("SUBSCRIBE", id="1", destination="/topic/a.>", ack="client-individual", **{"from": "first"}, **headers)
    got: dict[str, list[int]] = {}
    while sum(map(len, got.values())) < publishers * COUNT:
        frame = await client.frame()
        assert frame.command == "MESSAGE", frame
        name, number = frame.body.decode().split()
        got.setdefault(name, []).append(int(number))
        client.send("ACK", id=frame.headers["ack"])
    # What came twice would come now.
    client.send("SEND", destination="/topic/other", receipt="done")
    assert (await client.frame()).command == "RECEIPT"
    await client.close()
    return got


def test_replays_that_begin_at_any_time_get_every_message_of_every_broker_once_through_cut_links(
    tmp_path: Path,
) -> None:
    async def talk() -> None:
        async with planned(Plan.of(line(3), "replay"), tmp_path, running=()) as network:
            for number in (1, 2, 3):
                network.store = RETAINING if number == KEEPER else PLAIN
                await network.start(number)
            await network.all_ways_are_shortest()
            for number in (1, 2):
                core = network.services[number].dispatcher.core
                await until(lambda core=core: bool(core.peers and core.peers.remote_durables.slots))  # type: ignore[misc]
            ports = {number: one.port for number, one in network.services.items()}
            publishing = [asyncio.create_task(publish(ports[number], f"p{number}", 0.002)) for number in ports]
            durable = {"activemq.subscriptionName": "some"}
            reading = [
                asyncio.create_task(read(ports[KEEPER], start, len(ports), **headers))
                for start, headers in ((0.0, {}), (0.1, durable), (0.3, {}), (0.6, {"prefetch-count": "3"}), (1.5, {}))
            ]
            for wire in ((2, 3), (1, 2), (2, 3)):
                await asyncio.sleep(0.2)
                network.wires[wire].cut()
                await asyncio.sleep(0.1)
                network.wires[wire].mend()
            await asyncio.gather(*publishing)
            wanted = {f"p{number}": list(range(COUNT)) for number in ports}
            for got in await asyncio.gather(*reading):
                assert got == wanted

    run(talk, patience=90)
