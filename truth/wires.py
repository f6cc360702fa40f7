"""A link between two brokers as a relay on loopback, which can be cut, or carry nothing."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["Wire"]

_CHUNK = 65_536


class Wire:
    """Carries connections to a port."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._whole = True
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the port that the dialling broker is told."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Both ends lose their connection, and new ones end at once."""
        self._whole = False
        for task in self._tasks:
            task.cancel()

    def join(self) -> None:
        """Connections hold again."""
        self._whole = True

    async def stop(self) -> None:
        """Close the port and all connections."""
        self.cut()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Task[None]] = []
        try:
            if self._whole:
                back, other = await asyncio.open_connection("127.0.0.1", self._target)
                pumps = [asyncio.create_task(_pump(reader, other)), asyncio.create_task(_pump(back, writer))]
                # Whoever ends first, the other end hears of it at once.
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, other):
                if end is not None:
                    end.transport.abort()
            self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
