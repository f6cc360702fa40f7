"""STOMP over WebSocket, spoken to with the client of the `websockets` library."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from postroad.broker import Limits
from postroad.protocols.stomp import Frame, FrameReader, encode_frame
from postroad.server.tcp import TcpConnection
from postroad.sessions.stomp.renderers import MESSAGE_BYTES
from tests.protocols.websocket.reference import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from websockets.asyncio.client import ClientConnection

HELLO = encode_frame("CONNECT", {"accept-version": "1.2", "host": "here"})


class Talk:
    """Frames over a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.reader = FrameReader()
        self.waiting: list[Frame] = []
        self.kinds: list[type] = []

    async def frame(self) -> Frame:
        while not self.waiting:
            data = await self.socket.recv()
            self.kinds.append(type(data))
            self.waiting += self.reader.receive(data.encode() if isinstance(data, str) else data)
        return self.waiting.pop(0)

    async def say(self, command: str, body: Any = b"", binary: Any = False, **headers: str) -> None:
        data = encode_frame(command, headers, body)
        await self.socket.send(data if binary else data.decode())


def address(port: int) -> str:
    return f"ws://127.0.0.1:{port}/"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["v10.stomp", "v12.stomp"], "v12.stomp"), (["v11.stomp", "other"], "v11.stomp"), (["v10.stomp"], "v10.stomp")],
)
def test_broker_chooses_the_newest_subprotocol(tmp_path: Path, offered: list[str], chosen: str) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            protocols = [Subprotocol(name) for name in offered]
            async with connect(address(broker.websocket_port), subprotocols=protocols) as socket:
                assert socket.subprotocol == chosen

    run(talk)


def test_a_client_that_offers_no_subprotocol_may_talk_and_one_with_strange_ones_may_not(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            async with connect(address(broker.websocket_port)) as socket:
                await socket.send(HELLO.decode())
                assert str(await socket.recv()).startswith("CONNECTED\n")
            with pytest.raises(InvalidStatus) as refused:
                await connect(address(broker.websocket_port), subprotocols=[Subprotocol("mqtt")])
            assert refused.value.response.status_code == 400

    run(talk)


@pytest.mark.parametrize("binary", [False, True])
def test_messages_go_from_tcp_to_websocket_and_back_in_the_kind_the_client_uses(tmp_path: Path, binary: bool) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            plain = await Client.connect(broker.port)
            await plain.subscribe("s", "to.tcp")
            async with connect(address(broker.websocket_port)) as socket:
                web = Talk(socket)
                await web.say("CONNECT", binary=binary, **{"accept-version": "1.2", "host": "here"})
                assert (await web.frame()).command == "CONNECTED"
                await web.say("SUBSCRIBE", binary=binary, id="w", destination="/topic/to.web", receipt="r")
                assert (await web.frame()).command == "RECEIPT"
                plain.publish("to.web", "grüße".encode())
                assert (await web.frame()).body == "grüße".encode()
                assert set(web.kinds) == {bytes if binary else str}
                await web.say("SEND", b"hello", binary=binary, destination="/topic/to.tcp")
                assert (await plain.frame()).body == b"hello"
            await plain.close()

    run(conversation)


def test_a_body_that_is_no_text_comes_as_a_binary_message(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            plain = await Client.connect(broker.port)
            async with connect(address(broker.websocket_port)) as socket:
                web = Talk(socket)
                await socket.send(HELLO.decode())
                await web.frame()
                await web.say("SUBSCRIBE", id="w", destination="/topic/a", receipt="r")
                await web.frame()
                plain.publish("a", b"\xff\0\n\xfe")
                assert (await web.frame()).body == b"\xff\0\n\xfe"
                assert web.kinds[-1] is bytes
            await plain.close()

    run(conversation)


def test_frames_may_be_cut_into_messages_and_fragments_anywhere(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with (
            service(tmp_path, websocket_port=0) as broker,
            connect(address(broker.websocket_port)) as socket,
        ):
            web = Talk(socket)
            await socket.send([HELLO[:9].decode(), HELLO[9:20].decode()])
            await socket.send(HELLO[20:])
            assert (await web.frame()).command == "CONNECTED"
            await web.say("SUBSCRIBE", id="w", destination="/topic/a")
            data = b"".join(encode_frame("SEND", {"destination": "/topic/a"}, b"%d" % n) for n in range(20))
            for place in range(0, len(data), 7):
                await socket.send(data[place : place + 7])
            assert [(await web.frame()).body for _ in range(20)] == [b"%d" % n for n in range(20)]

    run(conversation)


def test_many_messages_are_sent_in_pieces_that_a_client_takes(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            plain = await Client.connect(broker.port)
            async with connect(address(broker.websocket_port), max_size=2 * MESSAGE_BYTES) as socket:
                web = Talk(socket)
                await socket.send(HELLO)
                await web.frame()
                await web.say("SUBSCRIBE", id="w", destination="/topic/a", receipt="r")
                await web.frame()
                for number in range(300):
                    plain.publish("a", b"%d " % number + b"x" * 3_000)
                for number in range(300):
                    assert (await web.frame()).body.startswith(b"%d " % number)
            await plain.close()

    run(conversation)


def test_an_error_comes_before_the_websocket_closes(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            async with connect(address(broker.websocket_port)) as socket:
                web = Talk(socket)
                await socket.send("NONSENSE\n\n\0")
                assert (await web.frame()).command == "ERROR"
                with pytest.raises(ConnectionClosed):
                    await web.frame()
                assert socket.close_code == 1000
            await until(lambda: broker.server_statistics().connections_now == 0)

    run(conversation)


def test_a_client_that_closes_is_forgotten(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            async with connect(address(broker.websocket_port)) as socket:
                await socket.send(HELLO)
                await socket.recv()
                await (await socket.ping())
                assert broker.statistics().sessions_now == 1
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.statistics().sessions_now == 0

    run(conversation)


def test_pages_from_elsewhere_are_kept_out_when_origins_are_named(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0, websocket_origins=["https://ours.example"]) as broker:
            for origin, lets_in in (("https://ours.example", True), (None, True), ("https://other.example", False)):
                given = None if origin is None else Origin(origin)
                if lets_in:
                    async with connect(address(broker.websocket_port), origin=given):
                        continue
                with pytest.raises(InvalidStatus) as refused:
                    await connect(address(broker.websocket_port), origin=given)
                assert refused.value.response.status_code == 403

    run(conversation)


def test_pages_from_other_hosts_are_kept_out_by_default(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            async with connect(address(broker.websocket_port), origin=Origin("http://127.0.0.1:8000")):
                pass
            for stranger in ("https://evil.example", "null"):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(address(broker.websocket_port), origin=Origin(stranger))
                assert refused.value.response.status_code == 403
            assert broker.server_statistics().origins_refused == 2

    run(conversation)


def test_a_full_broker_answers_503_and_plain_http_gets_an_explanation(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0, limits=Limits(sessions=1)) as broker:
            plain = await Client.open(broker.websocket_port)
            plain.writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            answer = await plain.reader.read()
            assert answer.startswith(b"HTTP/1.1 426 ")
            await plain.close()
            await until(lambda: broker.server_statistics().connections_now == 0)
            first = await Client.connect(broker.port)
            with pytest.raises(InvalidStatus) as refused:
                await connect(address(broker.websocket_port))
            assert refused.value.response.status_code == 503
            await first.subscribe("s", "a")
            await first.close()

    run(conversation)


@pytest.mark.parametrize(
    "garbage", [b"\0" * 100, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500, b"\r\n\r\n"], ids=["zeros", "headers", "blank"]
)
def test_garbage_instead_of_a_handshake_ends_its_connection(tmp_path: Path, garbage: bytes) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0, connect_seconds=0.3) as broker:
            client = await Client.open(broker.websocket_port)
            client.writer.write(garbage)
            await client.reader.read()
            await client.close()
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.server_statistics().internal_errors == 0

    run(conversation)


def test_a_frame_that_breaks_the_websocket_protocol_ends_its_connection(tmp_path: Path) -> None:
    async def conversation() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            async with connect(address(broker.websocket_port)) as socket:
                await socket.send(HELLO)
                await socket.recv()
                # A server must refuse a frame that is not masked.
                socket.transport.write(b"\x81\x03abc")
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                assert socket.close_code == 1002
            await until(lambda: broker.server_statistics().connections_now == 0)
            assert broker.server_statistics().internal_errors == 0

    run(conversation)


def calls_of(action: Callable[[], object]) -> int:
    """How many functions of Python an action calls: its work, whatever the machine."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("opcode", [CONTINUATION, PING, PONG])
def test_a_read_of_many_small_frames_is_as_much_work_as_one_of_few(tmp_path: Path, opcode: int) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker, connect(address(broker.websocket_port)) as socket:
            await socket.send(HELLO.decode())
            assert "CONNECTED" in str(await socket.recv())
            (connection,) = broker.clients.connections
            connection.data_received(frame(BINARY, final=False))
            one = frame(opcode, final=opcode != CONTINUATION)
            few, many = one * 10, one * 40_000
            # The first read of a kind may call what later ones find done.
            connection.data_received(few)
            assert calls_of(lambda: connection.data_received(many)) == calls_of(lambda: connection.data_received(few))

    run(talk)


def test_the_last_ping_of_a_read_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker, connect(address(broker.websocket_port)) as socket:
            await socket.send(HELLO.decode())
            assert "CONNECTED" in str(await socket.recv())
            (connection,) = broker.clients.connections
            monkeypatch.setattr(TcpConnection, "write", lambda _, data: written.append(bytes(data)))
            connection.data_received(frame(PING, b"first") + frame(PING, b"last"))
            monkeypatch.undo()

    run(talk)
    assert written == [b"\x8a\x04last"]


def test_the_last_ping_to_a_full_socket_is_answered_when_it_takes_more(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            publisher = await Client.connect(broker.port)
            # A client that gives up when its PING is not answered in time, as many do.
            async with connect(address(broker.websocket_port), max_size=None, max_queue=1) as socket:
                web = Talk(socket)
                await web.say("CONNECT", **{"accept-version": "1.2", "host": "here"})
                assert (await web.frame()).command == "CONNECTED"
                await web.say("SUBSCRIBE", id="w", destination="/topic/a", receipt="r")
                assert (await web.frame()).command == "RECEIPT"
                socket.transport.pause_reading()
                subscriber = broker.dispatcher.core.sessions()[-1]
                count = 0
                while not subscriber.congested:
                    publisher.publish("a", bytes(MESSAGE_BYTES), receipt="r")
                    assert (await publisher.frame()).command == "RECEIPT"
                    count += 1
                received = broker.server_statistics().received_bytes
                answers = [await socket.ping(text) for text in (b"first", b"last")]
                await until(lambda: broker.server_statistics().received_bytes >= received + len(frame(PING) * 2))
                assert subscriber.congested
                socket.transport.resume_reading()
                for _ in range(count):
                    assert (await web.frame()).command == "MESSAGE"
                for answer in answers:
                    async with asyncio.timeout(10):
                        await answer
            await publisher.close()

    run(talk)


def test_nothing_counts_as_delivered_to_a_client_that_has_sent_close(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            publisher = await Client.connect(broker.port)
            async with connect(address(broker.websocket_port)) as socket:
                web = Talk(socket)
                await web.say("CONNECT", **{"accept-version": "1.2", "host": "here"})
                assert (await web.frame()).command == "CONNECTED"
                await web.say("SUBSCRIBE", id="w", destination="/topic/a", receipt="r")
                assert (await web.frame()).command == "RECEIPT"
                # The client neither reads the answer nor closes its side.
                socket.transport.pause_reading()
                received = broker.server_statistics().received_bytes
                socket.transport.write(frame(CLOSE, b"\x03\xe8"))
                await until(lambda: broker.server_statistics().received_bytes > received)
                publisher.publish("a", b"x", receipt="r")
                assert (await publisher.frame()).command == "RECEIPT"
                assert broker.statistics().delivered == 0
                assert broker.statistics().sessions_now == 1
                socket.transport.resume_reading()
            await publisher.close()

    run(talk)


def test_frames_right_after_the_request_are_carried_out(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker:
            client = await Client.open(broker.websocket_port)
            request = (
                b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            client.writer.write(request + frame(TEXT, HELLO) + frame(CLOSE, b"\x03\xe8"))
            answer = await client.reader.read()
            assert answer.startswith(b"HTTP/1.1 101 ")
            # The close frame comes last, with the code that the client gave.
            assert b"CONNECTED" in answer
            assert answer.endswith(b"\x88\x02\x03\xe8")
            await client.close()

    run(talk)


def test_what_comes_in_one_read_is_carried_out_in_order(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, websocket_port=0) as broker, connect(address(broker.websocket_port)) as socket:
            await socket.send(HELLO.decode())
            client = Talk(socket)
            assert (await client.frame()).command == "CONNECTED"
            await client.say("SUBSCRIBE", id="1", destination="/topic/a")
            # More control frames than a turn of the session takes, which pauses the connection as well.
            for number in range(300):
                await client.say("BEGIN", transaction="t")
                await client.say("COMMIT", transaction="t")
                await client.say("SEND", b"%d" % number, destination="/topic/a")
            await client.say("DISCONNECT", receipt="bye")
            for number in range(300):
                assert (await client.frame()).body == b"%d" % number
            assert (await client.frame()).headers["receipt-id"] == "bye"
        await until(lambda: broker.server_statistics().held_bytes_now == 0)

    run(talk)
