"""Large messages for many subscribers: in memory once, and given to a transport in pieces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroad.config import BrokerConfig
from postroad.server import Service, tcp
from postroad.server.tcp import TcpConnection
from postroad.server.write_backlog import PIECE_BYTES, WriteBacklog
from postroad.sessions import SharedBytes
from postroad.sessions.stomp import StompConversation
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BODY = bytes(range(256)) * (16 * 1024 * 1024 // 256)
# What the system and a transport may hold of a message for one connection, besides what is shared.
OWN_BYTES = 4 * PIECE_BYTES


def test_pieces_come_in_order_and_a_shared_buffer_counts_until_the_socket_of_the_last_holder_has_it() -> None:
    shared = SharedBytes(3 * PIECE_BYTES)
    data = memoryview(bytes(range(3)) * PIECE_BYTES)
    one, other = WriteBacklog(), WriteBacklog()
    assert one.append(memoryview(b"head"), None) == 4
    assert one.append(data, shared) == shared.size
    assert other.append(data, shared) == 0
    assert (one.parts, one.share, other.share) == (2, 4 + shared.size // 2, shared.size // 2)
    taken = [one.take() for _ in range(4)]
    assert [len(piece) for piece in taken] == [4, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES]
    assert b"".join(taken) == b"head" + data
    # The transport may hold a view of the last byte, and so all of it.
    assert one.let_go(unsent=len(data)) == 4
    assert one.let_go(unsent=1) == 0
    assert (one.parts, one.share, other.share) == (0, shared.size // 2, shared.size // 2)
    assert one.let_go(unsent=0) == 0
    assert (one.is_lent, one.share, other.share) == (False, 0, shared.size)
    other.take()
    assert other.clear() == shared.size
    assert (other.parts, other.share) == (0, 0)


def test_what_is_written_behind_a_buffer_does_not_keep_it() -> None:
    backlog = WriteBacklog()
    assert backlog.append(memoryview(bytes(PIECE_BYTES)), None) == PIECE_BYTES
    backlog.take()
    backlog.given += 100
    assert backlog.let_go(unsent=101) == 0
    assert backlog.let_go(unsent=100) == PIECE_BYTES


def test_own_bytes_count_as_a_whole_until_the_last_of_them_is_sent() -> None:
    backlog = WriteBacklog()
    assert backlog.append(memoryview(bytes(2 * PIECE_BYTES)), None) == 2 * PIECE_BYTES
    backlog.take()
    assert backlog.let_go(unsent=0) == 0
    assert backlog.share == 2 * PIECE_BYTES
    backlog.take()
    assert backlog.let_go(unsent=0) == 2 * PIECE_BYTES


async def large_message(broker: Service, count: int, **subscribe: str) -> list[Client]:
    """Publish a large message to subscribers that do not read yet."""
    subscribers = [await Client.connect(broker.port) for _ in range(count)]
    for client in subscribers:
        await client.subscribe("s", "a", **subscribe)
        client.stall()
    publisher = await Client.connect(broker.port)
    publisher.publish("a", BODY, receipt="r")
    assert (await publisher.frame()).command == "RECEIPT"
    await until(lambda: broker.statistics().delivered == count)
    await publisher.close()
    return subscribers


def test_a_large_message_for_many_that_do_not_read_is_held_once_and_closes_nobody(tmp_path: Path) -> None:
    count = 12

    async def talk() -> None:
        async with service(tmp_path) as broker:
            subscribers = await large_message(broker, count)
            held = broker.server_statistics().held_bytes_now
            # The shared rendering of the first turn, and that of later ones, which work on a copy.
            assert len(BODY) < held < 3 * len(BODY) + count * OWN_BYTES
            assert broker.server_statistics().connections_relieved == 0
            for client in subscribers:
                client.read_on()
            for client in subscribers:
                assert (await client.frame()).body == BODY
                await client.close()
            await until(lambda: broker.server_statistics().held_bytes_now == 0)

    run(talk)


def test_what_a_client_that_stops_reading_left_is_let_go_with_its_connection(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            one, other = await large_message(broker, 2)
            one.writer.transport.abort()
            await until(lambda: broker.server_statistics().connections_now == 1)
            assert broker.server_statistics().held_bytes_now > len(BODY)
            other.writer.transport.abort()
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.server_statistics().held_bytes_now == 0

    run(talk)


def test_a_client_that_disconnects_behind_a_large_message_gets_all_of_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            (client,) = await large_message(broker, 1)
            client.send("DISCONNECT", receipt="bye")
            await until(lambda: broker.statistics().sessions_now == 0)
            client.read_on()
            assert (await client.frame()).body == BODY
            assert (await client.frame()).headers["receipt-id"] == "bye"
            assert await client.at_end()
            await client.close()

    run(talk)


def test_a_client_that_ends_its_sending_side_gets_what_was_written(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            (client,) = await large_message(broker, 1)
            client.writer.write_eof()
            await asyncio.sleep(0)
            client.read_on()
            assert (await client.frame()).body == BODY
            assert await client.at_end()
            await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(talk)


def test_a_client_that_ends_its_sending_side_gets_nothing_that_comes_later(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            (client,) = await large_message(broker, 1)
            client.writer.write_eof()
            # What is left of the large message is still to be written.
            await until(lambda: broker.statistics().sessions_now == 0)
            assert broker.server_statistics().connections_now == 1
            client.read_on()
            assert (await client.frame()).body == BODY
            publisher = await Client.connect(broker.port)
            publisher.publish("a", b"later", receipt="r")
            assert (await publisher.frame()).command == "RECEIPT"
            assert await client.at_end()
            assert broker.server_statistics().internal_errors == 0
            for each in (client, publisher):
                await each.close()

    run(talk)


def test_a_client_that_ends_its_sending_side_and_reads_nothing_keeps_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "CLOSE_SECONDS", 0.1)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            client, publisher = await Client.connect(broker.port), await Client.connect(broker.port)
            await client.subscribe("s", "a", overflow="drop-oldest")
            client.stall()
            while not broker.statistics().waiting_messages_now:
                publisher.publish("a", bytes(PIECE_BYTES // 2), receipt="r")
                assert (await publisher.frame()).command == "RECEIPT"
            client.writer.write_eof()
            await until(lambda: broker.server_statistics().connections_now == 1)
            for each in (client, publisher):
                each.writer.transport.abort()

    run(talk)


class SlowTransport(asyncio.Transport):
    """Keeps what it is given; the test says what the socket has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)


def test_client_that_has_read_a_large_message_and_gets_nothing_more_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "COUNT_SECONDS", 0.01)

    async def talk() -> None:
        broker = Service(BrokerConfig(data=str(tmp_path)))
        slow, transport = TcpConnection(broker.clients, StompConversation), SlowTransport()
        slow.connection_made(transport)
        slow.write(bytes(PIECE_BYTES))
        slow.write(bytes(2 * PIECE_BYTES))
        slow.pause_writing()
        transport.unsent = 100
        slow.resume_writing()
        assert broker.server_statistics().held_bytes_now == 2 * PIECE_BYTES + 100
        # The loop reports nothing when the socket takes the rest.
        transport.unsent = 0
        await until(lambda: broker.server_statistics().held_bytes_now == 0)
        slow.connection_lost(None)

    run(talk)
