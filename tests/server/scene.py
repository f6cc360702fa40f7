"""What the tests of the server share: a conversation without sockets, and a broker with them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any, cast

from postroad.broker import Broker, Limits, PublisherNumbers
from postroad.config import BrokerConfig
from postroad.protocols.stomp import Frame, FrameReader, Version, encode_frame
from postroad.server import Service
from postroad.sessions import Dispatcher, Terms
from postroad.sessions.stomp import StompConversation

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from postroad.sessions import SharedBytes

# A test that waits this long hangs, also on a machine that is ten times slower than most. Nobody waits for its end.
PATIENCE = 60


class Clock:
    """Virtual time, in ms."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class FakeTransport:
    """A connection that keeps what is written."""

    peer = "test:1"
    address = "test"
    shares = True

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.wakes_at: int | None = None
        # What the next write raises; every one, if it is broken for good.
        self.defect: Exception | None = None
        self.is_broken = False

    def write(self, data: bytes | memoryview, shared: SharedBytes | None = None) -> None:
        assert not self.is_closed
        if self.defect is not None:
            defect = self.defect
            if not self.is_broken:
                self.defect = None
            raise defect
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def wake_at(self, when: int) -> None:
        self.wakes_at = when

    def close(self) -> None:
        self.is_closed = True

    def connected(self) -> str:
        return ""


class Scene:
    """A dispatcher in virtual time, and clients that talk to it."""

    def __init__(self, limits: dict[str, int] | None = None, **terms: Any) -> None:
        blocks = itertools.count(1, 1_000)
        self.clock = Clock()
        self.core = Broker(1, PublisherNumbers(lambda: next(blocks)), Limits(**(limits or {})))
        self.dispatcher = Dispatcher(self.core, self.clock, self.clock)
        self.terms = Terms(**terms)
        self.talkers: list[Talker] = []

    def talker(self) -> Talker:
        """A client whose connection is open and who has said nothing."""
        self.talkers.append(Talker(self))
        return self.talkers[-1]

    def client(self, version: str = "1.2", **headers: str) -> Talker:
        """A client that is connected."""
        talker = self.talker()
        talker.say("CONNECT", {"accept-version": version, "host": "here", **headers})
        (connected,) = talker.heard()
        assert connected.command == "CONNECTED", connected
        return talker

    def wait(self, ms: int) -> None:
        """Let time pass; everybody is woken when it asked to be."""
        end = self.clock.now + ms
        while True:
            due = [each.line.wakes_at for each in self.talkers if each.line.wakes_at is not None]
            if not due or min(due) > end:
                break
            self.clock.now = max(self.clock.now, min(due))
            for talker in self.talkers:
                if talker.line.wakes_at is not None and talker.line.wakes_at <= self.clock.now:
                    talker.line.wakes_at = None
                    talker.conversation.tick(self.clock.now)
        self.clock.now = end


class Talker:
    """One client."""

    def __init__(self, scene: Scene) -> None:
        self.line = FakeTransport()
        self.conversation = StompConversation(scene.dispatcher, self.line, scene.terms)
        self.reader = FrameReader()

    def say(self, command: str, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.conversation.received(encode_frame(command, headers or {}, body, self.reader.version or Version.V1_2))

    def heard(self) -> list[Frame]:
        """The frames that came since the last call."""
        data, self.line.written = self.line.written, bytearray()
        return self.reader.receive(data)

    def ask(self, command: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Frame:
        """Say something and get the one answer."""
        self.say(command, headers, body)
        (frame,) = self.heard()
        return frame

    def subscribe(self, key: str, topic: str, **headers: str) -> None:
        answer = self.ask("SUBSCRIBE", {"id": key, "destination": f"/topic/{topic}", "receipt": "r", **headers})
        assert answer.command == "RECEIPT", answer

    def send(self, topic: str, body: bytes = b"", **headers: str) -> None:
        self.say("SEND", {"destination": f"/topic/{topic}", **headers}, body)

    def error(self) -> str:
        """What the ERROR says that is the last thing heard; the connection is closed."""
        *_, last = self.heard()
        assert last.command == "ERROR", last
        assert self.line.is_closed
        return last.headers["message"]


def bodies(talker: Talker) -> list[bytes]:
    """The bodies of the messages that came since the last look."""
    return [frame.body for frame in talker.heard() if frame.command == "MESSAGE"]


# --- with sockets -----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def service(path: Path, **settings: Any) -> AsyncIterator[Service]:
    running = Service(BrokerConfig(**{"port": 0, "data": str(path), **settings}))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


class Client:
    """Frames over a socket; `connected` is the answer to CONNECT."""

    connected: Frame

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader()
        self.waiting: list[Frame] = []

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    @classmethod
    async def connect(cls, port: int, tls: Any = None, **headers: str) -> Client:
        client = await cls.open(port, tls)
        try:
            client.send("CONNECT", **{"accept-version": "1.2", "host": "here", **headers})
            client.connected = connected = await client.frame()
            assert connected.command == "CONNECTED", connected
        except BaseException:
            client.writer.transport.abort()
            raise
        return client

    def send(self, command: str, body: Any = b"", **headers: str) -> None:
        self.writer.write(encode_frame(command, headers, body))

    def publish(self, topic: str, body: bytes = b"", **headers: str) -> None:
        self.send("SEND", body, destination=f"/topic/{topic}", **headers)

    async def frame(self) -> Frame:
        while not self.waiting:
            data = await asyncio.wait_for(self.reader.read(2**16), PATIENCE)
            if not data:
                raise EOFError("the broker closed the connection")
            self.waiting += self.frames.receive(data)
        return self.waiting.pop(0)

    async def subscribe(self, key: str, topic: str, **headers: str) -> None:
        self.send("SUBSCRIBE", id=key, destination=f"/topic/{topic}", receipt="ready", **headers)
        answer = await self.frame()
        assert answer.command == "RECEIPT", answer

    async def at_end(self) -> bool:
        """Whether the broker has closed the connection, with nothing more said."""
        return not (await asyncio.wait_for(self.reader.read(), PATIENCE)).strip(b"\n") and not self.waiting

    def stall(self) -> None:
        """Take nothing more from the socket."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def read_on(self) -> None:
        """Take what comes again."""
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens soon, or else fail."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition belongs to the broker, which sets no event for tests
            await asyncio.sleep(0.005)


async def until_it_says(ask: Callable[[], Awaitable[Any]], text: str) -> Any:
    """Ask until the answer has a text, as JSON; return the answer."""
    async with asyncio.timeout(PATIENCE):
        while text not in json.dumps(answer := await ask()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)
    return answer


def run(test: Callable[[], Awaitable[None]], patience: float = 2 * PATIENCE) -> None:
    """Run a test; an exception that nobody catches, also in a callback, fails it."""
    stray: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: stray.append(context))
        async with asyncio.timeout(patience):
            await test()

    asyncio.run(guarded())
    assert stray == []
