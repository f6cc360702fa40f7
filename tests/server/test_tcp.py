"""A broker on a real socket of this machine, spoken to in raw frames."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from postroad.server import BrokerConfig, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CONNECT = b"CONNECT\naccept-version:1.2\nhost:here\n\n\0"


@contextlib.asynccontextmanager
async def service(path: Path, **settings: object) -> AsyncIterator[Service]:
    running = Service(BrokerConfig(port=0, data=str(path), **settings))  # type: ignore[arg-type]
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


class Client:
    """Raw frames over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, hello: bytes = CONNECT) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.send(hello)
        return client

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        data = await asyncio.wait_for(self.reader.readuntil(b"\0"), 10)
        return data.lstrip(b"\n")

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))  # type: ignore[arg-type]


def test_subscriber_gets_what_its_selector_wants_and_sender_gets_its_id(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            subscriber = await Client.connect(broker.port)
            assert (await subscriber.frame()).startswith(b"CONNECTED\nversion:1.2\n")
            subscriber.send(b"SUBSCRIBE\nid:s1\ndestination:/topic/quotes.>\nselector:price > 20\nreceipt:ready\n\n\0")
            assert b"receipt-id:ready" in await subscriber.frame()
            publisher = await Client.connect(broker.port)
            await publisher.frame()
            publisher.send(
                b"SEND\ndestination:/topic/quotes.a\nprice:10\n\nlow\0SEND\ndestination:/topic/quotes.a\nprice:30\nreceipt:r1\n\nhigh\0"
            )
            receipt = await publisher.frame()
            message = await subscriber.frame()
            assert b"subscription:s1\n" in message
            assert b"destination:/topic/quotes.a\n" in message
            assert b"price:30\n" in message
            assert message.endswith(b"\n\nhigh\0")
            given = next(line for line in receipt.split(b"\n") if line.startswith(b"message-id:"))
            assert given in message.split(b"\n")
            assert broker.statistics().accepted == 2
            assert broker.statistics().matched_nobody == 1
            await publisher.close()
            await subscriber.close()

    run(talk)


def test_a_mistake_closes_its_own_connection_with_the_reason_and_no_other(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            good = await Client.connect(broker.port)
            await good.frame()
            bad = await Client.connect(broker.port)
            await bad.frame()
            bad.send(b"SUBSCRIBE\nid:s1\ndestination:/topic/a\nselector:price >\n\n\0")
            error = await bad.frame()
            assert error.startswith(b"ERROR\n")
            assert b"price >" in error
            assert await bad.reader.read() in (b"", b"\n")
            await bad.close()
            good.send(b"SUBSCRIBE\nid:s1\ndestination:/topic/a\nreceipt:fine\n\n\0")
            assert b"receipt-id:fine" in await good.frame()
            await good.close()

    run(talk)


def test_publisher_numbers_are_not_used_again_after_a_restart(tmp_path: Path) -> None:
    async def first_id() -> bytes:
        async with service(tmp_path) as broker:
            publisher = await Client.connect(broker.port)
            await publisher.frame()
            publisher.send(b"SEND\ndestination:/topic/a\nreceipt:r\n\n\0")
            receipt = await publisher.frame()
            await publisher.close()
            return next(line for line in receipt.split(b"\n") if line.startswith(b"message-id:"))

    publishers = {asyncio.run(first_id())[len(b"message-id:") :][:8] for _ in range(3)}
    assert publishers == {b"00000001", b"000003e9", b"000007d1"}
