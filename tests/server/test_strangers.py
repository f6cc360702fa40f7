"""Strangers over real sockets: what they can make a broker keep, and that they keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect

from postroad.broker import Limits
from postroad.protocols.stomp.limits import MAX_CONNECT_HEADER_BYTES
from postroad.server.websocket import MAX_STRANGER_BYTES
from postroad.server.write_backlog import PIECE_BYTES
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.server import Service

MIB = 1024 * 1024


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT\naccept-version:1.2\nhost:h\ncontent-length:16777216\n\n",
        b"CONNECT\naccept-version:1.2\nhost:h\n\n",
        b"SEND\ndestination:/topic/a\ncontent-length:16777216\n\n",
        b"CONNECT\npasscode:",
    ],
)
def test_a_stranger_cannot_make_the_broker_keep_a_large_frame(tmp_path: Path, head: bytes) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(head + b"x" * MIB)
            most = 0
            answer = b""
            while not answer:
                most = max(most, broker.server_statistics().held_bytes_now)
                with contextlib.suppress(TimeoutError):
                    answer = await asyncio.wait_for(reader.read(1_000), 0.01)
            assert answer.startswith(b"ERROR\n")
            assert most <= MAX_CONNECT_HEADER_BYTES + len(head)
            writer.close()

    run(talk)


def test_a_websocket_stranger_cannot_make_the_broker_keep_much(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            endless = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 8_000) for n in range(100))
            upgrade = (
                b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            # A text message of 8 MiB, of which nearly all is missing.
            begun = upgrade + b"\x81\xff" + (8 * MIB).to_bytes(8, "big") + b"mask" + b"x" * MIB
            for stream in (endless, begun):
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.websocket_port)
                writer.write(stream)
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 20)
                await until(lambda: broker.server_statistics().connections_now == 0)
                writer.close()
            assert broker.server_statistics().held_bytes_now == 0
            assert MAX_STRANGER_BYTES < MIB

    run(talk)


def test_idle_strangers_do_not_use_up_the_places_of_clients(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(sessions=2, strangers=5)
        async with service(tmp_path, limits=limits) as broker:
            idle = [await Client.open(broker.port) for _ in range(20)]
            await until(lambda: broker.server_statistics().connections_now == 5)
            first, second = await Client.connect(broker.port), await Client.connect(broker.port)
            await first.subscribe("s", "a")
            second.publish("a", b"through")
            assert (await first.frame()).body == b"through"
            counts = broker.server_statistics()
            assert (counts.strangers_evicted, counts.strangers_now <= 5) == (16, True)
            with contextlib.suppress(ConnectionError):
                error = await idle[0].frame()
                assert "limits.strangers" in error.headers["message"]
            for client in (*idle, first, second):
                await client.close()

    run(talk)


def test_one_address_has_a_limit_of_its_own_and_others_are_let_in(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, host="0.0.0.0", limits=Limits(connections_per_address=3)) as broker:
            ours = [await Client.connect(broker.port) for _ in range(3)]
            refused = await Client.open(broker.port)
            assert "connections_per_address" in (await refused.frame()).headers["message"]
            await refused.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=("127.0.0.2", 0))
            other = Client(reader, writer)
            other.send("CONNECT", **{"accept-version": "1.2", "host": "here"})
            assert (await other.frame()).command == "CONNECTED"
            await ours[0].close()
            await until(lambda: broker.server_statistics().connections_now == 3)
            await (await Client.connect(broker.port)).close()
            for client in (*ours[1:], other):
                await client.close()
            assert broker.server_statistics().connections_turned_away == 1

    run(talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_when_memory_is_used_up_whoever_holds_the_most_goes_and_the_others_go_on(
    tmp_path: Path, event_loop: str
) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(memory_bytes=3 * MIB + 65_536)) as broker:
            good, publisher = await Client.connect(broker.port), await Client.connect(broker.port)
            await good.subscribe("s", "small")
            greedy = [await Client.connect(broker.port) for _ in range(3)]
            head = b"SEND\ndestination:/topic/a\ncontent-length:9000000\n\n"
            for number, client in enumerate(greedy):
                client.writer.write(head + b"x" * (number + 1) * 512 * 1024)
                await client.writer.drain()
            await until(lambda: broker.server_statistics().held_bytes_now >= 3 * MIB)
            assert broker.server_statistics().connections_relieved == 0
            greedy[0].writer.write(b"x" * 200_000)
            error = await greedy[2].frame()
            assert "memory_bytes" in error.headers["message"]
            assert broker.server_statistics().connections_relieved == 1
            assert broker.server_statistics().held_bytes_now < 2 * MIB
            publisher.publish("small", b"still here")
            assert (await good.frame()).body == b"still here"
            for client in (good, publisher, *greedy):
                await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.server_statistics().held_bytes_now == 0

    if event_loop == "asyncio":
        run(talk)
    else:
        uvloop = pytest.importorskip("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(talk(), 40))


def test_slow_subscribers_are_cut_off_when_their_queues_use_up_the_memory(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(memory_bytes=8 * MIB)) as broker:
            publisher, honest = await Client.connect(broker.port), await Client.connect(broker.port)
            await honest.subscribe("s", "b")
            slow = [await Client.connect(broker.port) for _ in range(2)]
            for client in slow:
                await client.subscribe("s", "a", overflow="drop-oldest")
                client.stall()
            while not broker.server_statistics().connections_relieved:
                publisher.publish("a", b"x" * 256 * 1024, receipt="r")
                assert (await publisher.frame()).command == "RECEIPT"
                # Receipts come before the loop has counted: the budget may be passed by one message.
                assert broker.server_statistics().held_bytes_now < 9 * MIB
            publisher.publish("b", b"fine")
            assert (await honest.frame()).body == b"fine"
            for client in (publisher, honest, *slow):
                client.writer.transport.abort()

    run(talk)


async def publish_to_slow_subscribers(broker: Service, publisher: Client, honest: Client) -> list[int]:
    """Publish 15 MB for 20 who take nothing; return what was held after each turn of the loop."""
    held: list[int] = []
    publisher.publish("a", b"x" * 15_000_000, receipt="r")
    while broker.statistics().delivered < 20:
        await asyncio.sleep(0)
        held.append(broker.server_statistics().held_bytes_now)
    assert (await publisher.frame()).command == "RECEIPT"
    publisher.publish("b", b"fine")
    assert (await honest.frame()).body == b"fine"
    return held


def test_one_large_message_for_many_slow_subscribers_is_held_once_and_nobody_is_closed(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(memory_bytes=64 * MIB)) as broker:
            publisher, honest = await Client.connect(broker.port), await Client.connect(broker.port)
            await honest.subscribe("s", "b")
            slow = [await Client.connect(broker.port) for _ in range(20)]
            for client in slow:
                await client.subscribe("s", "a")
                client.stall()
            held = await publish_to_slow_subscribers(broker, publisher, honest)
            # The frame, the message while it waits for a turn, its rendering, and a piece for each transport.
            assert max(held) < 3 * 15_000_000 + 20 * PIECE_BYTES
            assert not broker.server_statistics().connections_relieved
            for client in (publisher, honest, *slow):
                client.writer.transport.abort()

    run(talk)


def test_what_one_large_message_makes_of_many_slow_subscribers_is_counted_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.broker.residents.MAX_TURN_BYTES", 8 * MIB)

    async def talk() -> None:
        async with service(tmp_path, websocket_port=0, limits=Limits(memory_bytes=64 * MIB)) as broker:
            publisher, honest = await Client.connect(broker.port), await Client.connect(broker.port)
            await honest.subscribe("s", "b")
            slow = [await connect(f"ws://127.0.0.1:{broker.websocket_port}") for _ in range(20)]
            for client in slow:
                await client.send("CONNECT\naccept-version:1.2\nhost:here\n\n\0")
                assert str(await client.recv()).startswith("CONNECTED")
                await client.send("SUBSCRIBE\nid:s\ndestination:/topic/a\nreceipt:ready\n\n\0")
                assert str(await client.recv()).startswith("RECEIPT")
                client.transport.pause_reading()
            held = await publish_to_slow_subscribers(broker, publisher, honest)
            # Frames over WebSocket are not shared: each counts as a whole until it is sent. At once, it would have been
            # 20 times 15 MB.
            assert max(held) < 120 * MIB
            assert broker.server_statistics().connections_relieved
            publisher.writer.transport.abort()
            honest.writer.transport.abort()
            for client in slow:
                client.transport.abort()
                await client.wait_closed()

    run(talk)
