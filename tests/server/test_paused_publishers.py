"""Publishers that are paused and hang up: they hold their places only as long as nobody else needs them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.server import Service

PLACES = 5


async def paused_publisher(broker: Service) -> Client:
    """Connect a publisher, and have it paused; what it sends after that stays in its socket."""
    paused = broker.dispatcher.core.statistics().paused_publishers_now
    publisher = await Client.connect(broker.port)
    publisher.publish("a", b"read")
    await until(lambda: broker.dispatcher.core.statistics().paused_publishers_now == paused + 1)
    publisher.publish("a", b"unread")
    await publisher.writer.drain()
    return publisher


async def turned_away(port: int) -> bool:
    """Connect once more; return whether that is refused."""
    newcomer = await Client.open(port)
    newcomer.send("CONNECT", **{"accept-version": "1.2", "host": "here"})
    answer = await newcomer.frame()
    await newcomer.close()
    assert answer.command == "CONNECTED" or "connections" in answer.headers["message"]
    return answer.command == "ERROR"


@pytest.mark.parametrize(
    "limits",
    [Limits(connections_per_address=PLACES, queue_messages=10), Limits(sessions=PLACES, queue_messages=10)],
    ids=["places of an address", "places of all"],
)
@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_paused_publishers_that_hung_up_give_way_to_newcomers_and_lose_nothing(
    limits: Limits, event_loop: str, tmp_path: Path
) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=limits) as broker:
            reader = await Client.connect(broker.port)
            await reader.subscribe("1", "a", ack="client-individual", overflow="push-back", **{"prefetch-count": "1"})
            first = await Client.connect(broker.port)
            # One is delivered, the others fill the queue.
            for _ in range(limits.queue_messages + 2):
                first.publish("a", b"read")
            statistics = broker.dispatcher.core.statistics
            await until(lambda: statistics().paused_publishers_now == 1)
            others = [await paused_publisher(broker) for _ in range(PLACES - 2)]
            # All are there, and nobody gives way.
            assert [await turned_away(broker.port) for _ in range(2)] == [True, True]
            assert statistics().paused_publishers_now == PLACES - 1
            for each in others:
                each.writer.close()
            await until_admitted(broker.port)
            await until(lambda: statistics().paused_publishers_now == 1)
            got: list[bytes] = []
            while len(got) < limits.queue_messages + 2 + 2 * len(others):
                frame = await reader.frame()
                got.append(frame.body)
                reader.send("ACK", id=frame.headers["ack"])
            assert got.count(b"unread") == len(others)
            await first.close()
            await reader.close()

    async def until_admitted(port: int) -> None:
        for _ in range(100):
            if not await turned_away(port):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("those that hung up hold their places")

    if event_loop == "asyncio":
        run(talk, patience=60)
    else:
        uvloop = pytest.importorskip("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(talk(), 60))
