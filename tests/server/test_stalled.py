"""A subscriber that stops reading hurts nobody, for as long as it stalls."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import TYPE_CHECKING

from postroad.broker import Limits
from postroad.config import BrokerConfig
from postroad.protocols.stomp import encode_frame
from postroad.server import Service
from postroad.server.tcp import HIGH_WATER, TcpConnection
from postroad.sessions.stomp import StompConversation
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

BODY = b"x" * 10_000
ROUNDS = 40
PER_ROUND = 100
QUEUE_BYTES = 500_000


def test_memory_stays_bounded_and_others_get_everything_while_a_subscriber_stalls(tmp_path: Path) -> None:
    """40 MB pass by; what is kept for the one that stalls is its socket's buffer and its queue."""

    async def talk() -> None:
        async with service(tmp_path, limits=Limits(queue_bytes=QUEUE_BYTES)) as broker:
            stalled, good, writer = [await Client.connect(broker.port) for _ in range(3)]
            await stalled.subscribe("s", "a", overflow="drop-oldest")
            await good.subscribe("s", "a")
            stalled.stall()
            held: list[int] = []
            tracemalloc.start()
            for _ in range(ROUNDS):
                for _ in range(PER_ROUND):
                    writer.publish("a", BODY)
                for _ in range(PER_ROUND):
                    assert (await good.frame()).body == BODY
                held.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            counts = broker.statistics()
            assert counts.accepted == ROUNDS * PER_ROUND
            assert counts.shed_queue_full > ROUNDS * PER_ROUND // 2
            assert counts.waiting_bytes_now <= QUEUE_BYTES
            assert max(held) < HIGH_WATER + QUEUE_BYTES + 8_000_000
            # Whatever the first half filled, the second half does not add to it.
            assert max(held[ROUNDS // 2 :]) < max(held[: ROUNDS // 2]) + 2_000_000
            await stalled_reads_on(stalled, counts.waiting_messages_now)
            for client in (stalled, good, writer):
                await client.close()

    run(talk, patience=120)


async def stalled_reads_on(stalled: Client, waiting: int) -> None:
    """When it reads again it gets what was in the socket and what waited, in order, whole."""
    stalled.read_on()
    ids = [(await stalled.frame()).headers["message-id"] for _ in range(waiting)]
    assert ids == sorted(ids)


def test_a_stalled_subscriber_that_is_closed_is_gone_at_once_with_its_queue(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(queue_bytes=QUEUE_BYTES)) as broker:
            stalled, writer = await Client.connect(broker.port), await Client.connect(broker.port)
            await stalled.subscribe("s", "a", overflow="disconnect")
            stalled.stall()
            while broker.statistics().subscriptions_now:
                for _ in range(PER_ROUND):
                    writer.publish("a", BODY)
                writer.publish("a", receipt="r")
                await writer.frame()
            counts = broker.statistics()
            assert (counts.sessions_now, counts.waiting_bytes_now) == (1, 0)
            for client in (stalled, writer):
                await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(talk)


def test_push_back_loses_nothing_while_the_subscriber_stalls(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(queue_bytes=QUEUE_BYTES)) as broker:
            slow, writer, other = [await Client.connect(broker.port) for _ in range(3)]
            await slow.subscribe("s", "a", overflow="push-back")
            await other.subscribe("s", "b")
            slow.stall()
            for number in range(2_000):
                writer.publish("a", b"%d " % number + BODY)
            await until(lambda: broker.statistics().paused_publishers_now == 1)
            assert broker.statistics().waiting_bytes_now < QUEUE_BYTES + 2_000_000
            # Publishers on other topics are not concerned.
            other.publish("b", b"fine")
            assert (await other.frame()).body == b"fine"
            slow.read_on()
            for number in range(2_000):
                assert (await slow.frame()).body.startswith(b"%d " % number)
            assert broker.statistics().shed_queue_full == 0
            for client in (slow, writer, other):
                await client.close()

    run(talk, patience=120)


def test_conversations_are_freed_when_their_connections_end(tmp_path: Path) -> None:

    async def talk() -> None:
        async with service(tmp_path) as broker:
            for _ in range(20):
                client = await Client.connect(broker.port)
                await client.subscribe("s", "a", ack="client")
                await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)
            await asyncio.sleep(0)
            gc.collect()
            assert [each for each in gc.get_objects() if isinstance(each, StompConversation)] == []

    run(talk)


class FakeTransport(asyncio.Transport):
    """Takes everything; the test says when it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        pass


def test_a_socket_that_is_full_again_before_its_turn_comes_gets_nothing_more(tmp_path: Path) -> None:
    """Between a socket's call for more and its turn, what others sent may have filled it again."""

    async def talk() -> None:
        broker = Service(BrokerConfig(data=str(tmp_path)))
        slow, writer = (TcpConnection(broker.clients, StompConversation) for _ in range(2))
        transports = [FakeTransport(), FakeTransport()]
        for connection, transport in zip((slow, writer), transports, strict=True):
            connection.connection_made(transport)
            connection.data_received(encode_frame("CONNECT", {"accept-version": "1.2", "host": "here"}))
        slow.data_received(encode_frame("SUBSCRIBE", {"id": "s", "destination": "/topic/a"}))
        send = encode_frame("SEND", {"destination": "/topic/a"}, b"body")
        transports[0].written.clear()
        slow.pause_writing()
        writer.data_received(send)
        slow.resume_writing()
        slow.pause_writing()
        await asyncio.sleep(0)
        writer.data_received(send)
        assert transports[0].written == b""
        assert broker.statistics().waiting_messages_now == 2
        slow.resume_writing()
        await asyncio.sleep(0)
        assert transports[0].written.count(b"MESSAGE\n") == 2
        for connection in (slow, writer):
            connection.connection_lost(None)
        assert broker.server_statistics().connections_now == 0

    run(talk)
