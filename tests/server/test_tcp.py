"""A broker on a real socket of this machine."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Limits
from postroad.config import BrokerConfig, FrameConfig
from postroad.protocols.stomp import encode_frame
from postroad.server import ListenError, Service
from postroad.sessions.stomp import StompConversation
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path


def test_subscriber_gets_what_its_selector_wants_and_sender_gets_its_id(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            subscriber, publisher = await Client.connect(broker.port), await Client.connect(broker.port)
            await subscriber.subscribe("s1", "quotes.>", selector="price > 20")
            publisher.publish("quotes.a", b"low", price="10")
            publisher.publish("quotes.a", b"high", price="30", receipt="r1")
            receipt, message = await publisher.frame(), await subscriber.frame()
            assert message.body == b"high"
            assert message.headers["destination"] == "/topic/quotes.a"
            assert message.headers["price"] == "30"
            assert receipt.headers["message-id"] == message.headers["message-id"]
            assert (broker.statistics().accepted, broker.statistics().matched_nobody) == (2, 1)
            await publisher.close()
            await subscriber.close()

    run(talk)


def test_a_mistake_closes_its_own_connection_with_the_reason_and_no_other(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            good, bad = await Client.connect(broker.port), await Client.connect(broker.port)
            bad.send("SUBSCRIBE", id="s1", destination="/topic/a", selector="price >")
            error = await bad.frame()
            assert error.command == "ERROR"
            assert "price >" in error.headers["message"] + error.body.decode()
            assert await bad.at_end()
            await bad.close()
            await good.subscribe("s1", "a")
            await good.close()

    run(talk)


def test_publisher_numbers_are_not_used_again_after_a_restart(tmp_path: Path) -> None:
    publishers: list[str] = []

    async def publish_once() -> None:
        async with service(tmp_path) as broker:
            publisher = await Client.connect(broker.port)
            publisher.publish("a", receipt="r")
            publishers.append((await publisher.frame()).headers["message-id"][:8])
            await publisher.close()

    for _ in range(3):
        run(publish_once)
    assert publishers == ["00000001", "000003e9", "000007d1"]


def test_a_client_that_only_closes_its_sending_side_still_gets_its_receipts(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port)
            client.publish("a", receipt="last words")
            client.writer.write_eof()
            assert (await client.frame()).headers["receipt-id"] == "last words"
            assert await client.at_end()
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.statistics().sessions_now == 0
            await client.close()

    run(talk)


def test_disconnect_with_a_receipt_is_answered_before_the_connection_closes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port)
            client.send("DISCONNECT", receipt="bye")
            assert (await client.frame()).headers["receipt-id"] == "bye"
            assert await client.at_end()
            assert broker.statistics().sessions_now == 0
            await client.close()

    run(talk)


def test_the_error_arrives_although_the_client_goes_on_sending(tmp_path: Path) -> None:
    """Closing a socket with unread data would reset the connection and could lose the ERROR."""

    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.open(broker.port)
            client.writer.write(b"NONSENSE\n" + b"x" * 3_000_000)
            assert (await client.frame()).command == "ERROR"
            assert await client.at_end()
            await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(talk)


def test_a_connection_that_is_reset_leaves_nothing_behind(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            good = await Client.connect(broker.port)
            await good.subscribe("s", "a")
            for _ in range(5):
                client = await Client.connect(broker.port)
                await client.subscribe("s", "a")
                linger = struct.pack("ii", 1, 0)
                client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                good.publish("a", b"x" * 100_000)
                client.writer.transport.abort()
                good.publish("a", b"y")
            await until(lambda: broker.server_statistics().connections_now == 1)
            assert broker.statistics().sessions_now == broker.statistics().subscriptions_now == 1
            assert [len((await good.frame()).body) for _ in range(10)] == [100_000, 1] * 5
            await good.close()

    run(talk)


def test_a_defect_in_one_conversation_closes_that_one_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = StompConversation.received

    def received(self: StompConversation, data: bytes | memoryview) -> None:
        if b"trigger" in bytes(data):
            raise ZeroDivisionError("a defect")
        taken(self, data)

    monkeypatch.setattr(StompConversation, "received", received)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            good, unlucky = await Client.connect(broker.port), await Client.connect(broker.port)
            unlucky.publish("trigger")
            error = await unlucky.frame()
            assert error.headers["message"].startswith("internal error")
            assert await unlucky.at_end()
            await unlucky.close()
            await good.subscribe("s", "a")
            assert broker.server_statistics().internal_errors == 1
            assert broker.statistics().sessions_now == 1
            await good.close()

    run(talk)


def test_connections_beyond_the_limit_are_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(sessions=2)) as broker:
            first, second = await Client.connect(broker.port), await Client.connect(broker.port)
            third = await Client.open(broker.port)
            third.send("CONNECT", **{"accept-version": "1.2", "host": "here"})
            error = await third.frame()
            assert "2 connections, its limit (limits.sessions)" in error.headers["message"]
            assert await third.at_end()
            await third.close()
            await first.subscribe("s", "a")
            assert broker.server_statistics().connections_turned_away == 1
            await second.close()
            await until(lambda: broker.server_statistics().connections_now == 1)
            await (await Client.connect(broker.port)).close()
            await first.close()

    run(talk)


def test_a_connection_that_says_nothing_is_closed_in_time(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, connect_seconds=0.2) as broker:
            silent = await Client.open(broker.port)
            error = await silent.frame()
            assert "(setting connect_seconds)" in error.headers["message"]
            assert await silent.at_end()
            await silent.close()

    run(talk)


def test_heart_beats_go_both_ways_over_a_socket(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, heart_beat_ms=400) as broker:
            client = await Client.connect(broker.port, **{"heart-beat": "400,400"})
            for _ in range(3):
                client.writer.write(b"\n")
                assert set(await client.reader.read(100)) == {ord("\n")}
            error = await client.frame()
            assert "nothing heard" in error.headers["message"]
            await client.close()

    run(talk)


def test_a_stop_tells_every_client_why(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            clients = [await Client.connect(broker.port) for _ in range(3)]
            port = broker.port
            stopping = asyncio.create_task(broker.stop())
            for client in clients:
                error = await client.frame()
                assert "this broker is stopping" in error.headers["message"]
                assert await client.at_end()
                await client.close()
            await stopping
            assert broker.server_statistics().connections_now == 0
            with pytest.raises(ConnectionError):
                await Client.open(port)

    run(talk)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path / "one") as broker:
            second = Service(BrokerConfig(port=broker.port, admin_port=0, data=str(tmp_path / "two")))
            with pytest.raises(ListenError, match=f"port: cannot listen on port {broker.port} .*; choose another one"):
                await second.start()
            assert not second.is_ready
            # An address for documentation (RFC 5737), which no machine has.
            elsewhere = Service(BrokerConfig(port=0, host="192.0.2.1", data=str(tmp_path / "three")))
            with pytest.raises(ListenError, match="is its host one of this machine"):
                await elsewhere.start()

    run(talk)


def test_frames_cut_anywhere_are_read_as_one_stream(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port)
            await client.subscribe("s", "a")
            data = b"".join(encode_frame("SEND", {"destination": "/topic/a"}, b"%d" % n) for n in range(3))
            for place in range(len(data)):
                client.writer.write(data[place : place + 1])
                await client.writer.drain()
                await asyncio.sleep(0)
            assert [(await client.frame()).body for _ in range(3)] == [b"0", b"1", b"2"]
            await client.close()

    run(talk)


def test_a_frame_over_the_limit_of_the_settings_is_refused_and_others_go_on(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, frames=FrameConfig(body_bytes=10)) as broker:
            large, small = await Client.connect(broker.port), await Client.connect(broker.port)
            large.publish("a", b"x" * 11)
            refusal = await large.frame()
            assert refusal.command == "ERROR"
            assert "10 bytes" in refusal.headers["message"]
            small.publish("a", b"x" * 10, receipt="r")
            assert (await small.frame()).command == "RECEIPT"
            for client in (large, small):
                await client.close()

    run(talk)
