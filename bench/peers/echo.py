"""A yardstick: what is read from anyone goes to all readers as it is. No broker can be faster in this language.

It shows the ceiling of the load generator, of Python's sockets and of the machine together.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

from bench.peers.loops import run
from bench.processes import Contender, Launch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ECHO", "Echo", "main"]


def launch(port: int, directory: Path) -> Launch:
    return Launch([sys.executable, "-c", "from bench.peers.echo import main; main()", str(port)])


ECHO = Contender("echo", "raw", launch)


class Echo(asyncio.Protocol):
    """One connection. A single plus makes it a reader, and is answered by one."""

    readers: set[Echo] = set()  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.readers.discard(self)

    def data_received(self, data: bytes) -> None:
        if data == b"+":
            self.readers.add(self)
            self.transport.write(b"+")
            return
        for reader in self.readers:
            reader.transport.write(data)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """The process: the port to listen on is its first argument."""
    run(serve(int(sys.argv[1])))
