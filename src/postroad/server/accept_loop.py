"""A port whose connections are accepted one by one, so that they count from their first packet on.

The event loop's own servers report a connection only after its TLS handshake. A client that never finishes one would
hold a socket and a TLS session that no limit counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine
    from typing import Self

__all__ = ["AcceptLoop"]

# The pause when no file can be opened: other connections must close first.
OUT_OF_FILES_SECONDS = 0.5


class AcceptLoop(ABC):
    """Listens and accepts; to be closed like a server of the event loop.

    Args:
        log: for connections that cannot be accepted.
        what: their name in the log.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self.sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def accepted(self, connection: socket.socket, peer: tuple[object, ...]) -> None:
        """A connection was accepted; nothing has been read from it yet."""

    async def listen(self, host: str, port: int, backlog: int) -> Self:
        """Open the port.

        Raises:
            OSError: it cannot be opened.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self.sockets.append(_opened(family, address, backlog))
        except OSError:
            self.close()
            raise
        for each in self.sockets:
            self.keep(self._accept(each))
        return self

    def close(self) -> None:
        """Stop accepting, and drop connections that are in their TLS handshake."""
        for task in list(self._tasks):
            task.cancel()
        for each in self.sockets:
            each.close()

    def keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task until it is done or the port is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                if listening.fileno() < 0:
                    return
                self._log.warning(f"{self._what} not accepted", extra={"reason": str(error)})
                await asyncio.sleep(OUT_OF_FILES_SECONDS)
                continue
            self.accepted(connection, peer)


def _opened(family: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(backlog)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
