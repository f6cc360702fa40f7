"""Servers for the tests of clients: a broker of ours, and one that says what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from postroad.config import BrokerConfig
from postroad.server import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


def run(test: Awaitable[None]) -> None:
    """Run a test's coroutine; one that hangs fails."""

    async def bounded() -> None:
        await asyncio.wait_for(test, 60)

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def broker(path: Path, **settings: Any) -> AsyncIterator[Service]:
    """A broker on a free port, or on the one given."""
    service = Service(BrokerConfig(data=str(path), **{"port": 0, **settings}))
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def address(service: Service) -> str:
    return f"stomp://127.0.0.1:{service.port}"


class Script:
    """One connection of a scripted server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frame(self) -> str:
        """The next frame, without heart-beats before it."""
        return (await self.reader.readuntil(b"\0")).decode().lstrip("\n").rstrip("\0")

    async def dismiss(self) -> None:
        """Hear the client out until it takes its leave; the connection then closes without a receipt."""
        await self.reader.readuntil(b"DISCONNECT\n")

    def say(self, text: str) -> None:
        self.writer.write(text.encode())


@contextlib.asynccontextmanager
async def scripted(play: Callable[[Script], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that plays a script with each client; gives its address."""

    plays: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plays.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await play(Script(reader, writer))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"stomp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*(play for play in plays if play is not None))
        await server.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something has become true; the bound of the whole test ends it otherwise."""
    # What the tests wait for is a count in a broker, which signals nothing.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
