"""Thousands of connections that speak almost STOMP, while a well-behaved client watches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING

from postroad.broker import Limits
from postroad.config import BrokerConfig, Neighbouring, NetworkConfig
from postroad.server.extras import loop_factory
from tests.server import linkstreams
from tests.server.fleet import free_ports
from tests.server.scene import PATIENCE, Client, run, service, until
from tests.server.streams import stream

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from postroad.server import Service

STREAMS = 10_000
AT_ONCE = 10
WEB_STREAMS = 500
LINK_STREAMS = 1_000

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

# Small limits, so that they are met.
LIMITS = Limits(queue_messages=50, queue_bytes=100_000, unacknowledged=5, subscriptions_per_session=3)


async def pour(port: int, data: bytes, rude: bool) -> None:
    """Send a stream, and read until the broker closes; or hang up in the middle of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        if rude:
            writer.transport.abort()
        else:
            writer.write_eof()
            await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def masked(payload: bytes, opcode: int) -> bytes:
    """A WebSocket frame of a client, with a mask of zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


async def fuzz(port: int, count: int, seed: int, web: bool = False) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        data = stream(rng)
        if web:
            frames = masked(data[:60_000], rng.choice([0, 1, 2, 2, 2, 8, 9, 10, 11]))
            data = HANDSHAKE + (data if rng.random() < 0.2 else frames)
        await pour(port, data, rude=rng.random() < 0.1)


async def watch(broker: Service, done: asyncio.Event) -> int:
    """Publish and get back, one by one; returns how many."""
    client = await Client.connect(broker.port)
    await client.subscribe("watch", "watched", ack="client-individual")
    count = 0
    while not done.is_set():
        client.publish("watched", b"%d" % count, receipt=f"r{count}")
        message, receipt = await client.frame(), await client.frame()
        assert message.body == b"%d" % count
        assert receipt.headers["receipt-id"] == f"r{count}"
        client.send("ACK", id=message.headers["ack"])
        count += 1
        await asyncio.sleep(0)
    assert broker.statistics().sessions_now >= 1
    await client.close()
    return count


async def storm(path: Path) -> None:
    async with service(path, limits=LIMITS, websocket_port=0) as broker:
        done = asyncio.Event()
        watching = asyncio.create_task(watch(broker, done))
        await until(lambda: broker.statistics().subscriptions_now == 1)
        files = len(os.listdir("/proc/self/fd"))
        share = STREAMS // AT_ONCE
        pouring = [fuzz(broker.port, share, seed) for seed in range(AT_ONCE)]
        await asyncio.gather(*pouring, fuzz(broker.websocket_port, WEB_STREAMS, AT_ONCE, web=True))
        assert not watching.done()
        done.set()
        watched = await watching
        assert watched > 100
        await until(lambda: broker.server_statistics().connections_now == 0)
        counts, server = broker.statistics(), broker.server_statistics()
        assert server.internal_errors == 0
        assert server.connections == STREAMS + WEB_STREAMS + 1
        assert (counts.sessions_now, counts.subscriptions_now, counts.waiting_messages_now) == (0, 0, 0)
        assert counts.paused_publishers_now == 0
        # Without the watcher's own messages: the streams themselves came as far as the core, in every way it counts.
        poured = (counts.accepted - watched, counts.delivered - watched, counts.shed_expired, counts.matched_nobody)
        assert min(poured) > 100, poured
        assert len(os.listdir("/proc/self/fd")) <= files


def test_fuzzed_streams_crash_nothing_leak_nothing_and_do_not_touch_a_good_client(tmp_path: Path) -> None:
    run(lambda: storm(tmp_path), patience=240)


async def watch_link(here: Service, there: Service, done: asyncio.Event) -> int:
    """Publish at one broker and get it at another, one by one; returns how many."""
    sender, reader = await Client.connect(here.port), await Client.connect(there.port)
    await reader.subscribe("watch", "linked")
    await asyncio.sleep(0.5)
    count = 0
    while not done.is_set():
        sender.publish("linked", b"%d" % count)
        assert (await reader.frame()).body == b"%d" % count
        count += 1
        await asyncio.sleep(0)
    await asyncio.gather(sender.close(), reader.close())
    return count


async def storm_of_links(path: Path) -> None:
    """Broker 5 has a good neighbour 2, which dials it, and expects a neighbour 1, which the streams say they are."""
    (port,) = free_ports(1)
    expected = [Neighbouring(number=number, port=1) for number in (2, linkstreams.STRANGER)]
    network = NetworkConfig(port=port, neighbours=expected)
    other = NetworkConfig(neighbours=[Neighbouring(number=linkstreams.BROKER, port=port)])
    async with (
        service(path / "5", number=linkstreams.BROKER, network=network) as broker,
        service(path / "2", number=2, network=other) as good,
    ):
        links = broker.links
        assert links is not None
        await until(lambda: links.statistics()["links_up"] == 1)
        done = asyncio.Event()
        watching = [
            asyncio.create_task(watch(broker, done)),
            asyncio.create_task(watch_link(broker, good, done)),
        ]
        await until(lambda: good.statistics().subscriptions_now == 1 and broker.statistics().subscriptions_now == 1)
        files = len(os.listdir("/proc/self/fd"))

        async def fuzz_links(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(LINK_STREAMS // AT_ONCE):
                await pour(port, linkstreams.stream(rng), rude=rng.random() < 0.1)

        await asyncio.gather(*(fuzz_links(seed) for seed in range(AT_ONCE)))
        done.set()
        assert min(await asyncio.gather(*watching)) > 20
        await until(lambda: links.statistics()["links_up"] == 1 and not len(links.strangers))
        assert links.statistics()["internal_errors"] == 0
        assert [each.up_now for each in links.neighbours()] == [False, True]
        # The streams came as far as the core, and nothing of theirs is left.
        assert links.neighbours()[0].received_frames > 100
        assert len(os.listdir("/proc/self/fd")) <= files


def test_fuzzed_streams_on_links_crash_nothing_leak_nothing_and_touch_no_good_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or most streams would meet a closed door.
    monkeypatch.setattr("postroad.server.quarantine.LONGEST_MS", 0)
    run(lambda: storm_of_links(tmp_path), patience=240)


def test_a_part_of_the_streams_does_no_harm_on_uvloop_either(tmp_path: Path) -> None:
    async def part() -> None:
        async with service(tmp_path, limits=LIMITS) as broker:
            await asyncio.gather(*(fuzz(broker.port, 100, seed) for seed in range(AT_ONCE)))
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.server_statistics().internal_errors == 0
            assert broker.statistics().sessions_now == 0

    with asyncio.Runner(loop_factory=loop_factory(BrokerConfig(event_loop="uvloop"))) as runner:
        runner.run(asyncio.wait_for(part(), 120))
