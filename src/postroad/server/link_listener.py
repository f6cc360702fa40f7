"""The port for links: accepts connections one by one, so that strangers count from their first packet on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from postroad.server.link_connection import TLS_SECONDS, LinkConnection

if TYPE_CHECKING:
    import ssl

    from postroad.server.links import Links
    from postroad.server.strangers import Strangers

__all__ = ["Accepted", "LinkListener"]

log = logging.getLogger("postroad.links")

# Connections that the kernel may hold until they are accepted.
BACKLOG = 128
# When no file can be opened: others must close theirs first.
OUT_OF_FILES_SECONDS = 0.5


class Accepted:
    """One connection from its acceptance until it has proved who it is, or is gone."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.opening: asyncio.Task[None] | None = None
        self.connection: LinkConnection | None = None

    def evict(self) -> None:
        """Another connection needs the place."""
        if self.connection is not None:
            self.connection.turn_away()
        elif self.opening is not None:
            self.opening.cancel()


class LinkListener:
    """Listens for links.

    Args:
        links: whose port it is.
        strangers: who has not proved anything yet.
        tls: how to wrap connections; None for none.
    """

    def __init__(self, links: Links, strangers: Strangers[Accepted], tls: ssl.SSLContext | None) -> None:
        self._links = links
        self._strangers = strangers
        self._tls = tls
        self.sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> LinkListener:
        """Open the port.

        Raises:
            OSError: it cannot be opened.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self.sockets.append(_opened(family, address))
        except OSError:
            self.close()
            raise
        for each in self.sockets:
            self._keep(loop.create_task(self._accept(each)))
        return self

    def close(self) -> None:
        """Accept nobody any more, and leave those who are not through their TLS handshake."""
        for task in list(self._tasks):
            task.cancel()
        for each in self.sockets:
            each.close()

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                if listening.fileno() < 0:
                    return
                log.warning("link not accepted", extra={"reason": str(error)})
                await asyncio.sleep(OUT_OF_FILES_SECONDS)
                continue
            stranger = Accepted(str(address[0]))
            evicted = self._strangers.admit(stranger, stranger.address)
            if evicted is not None:
                self._links.count_turned_away()
                evicted.evict()
            stranger.opening = self._keep(loop.create_task(self._open(accepted, stranger)))

    async def _open(self, accepted: socket.socket, stranger: Accepted) -> None:
        """Shake hands over TLS, if it is asked for; the connection goes on by itself."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: LinkConnection(self._links, stranger=stranger),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else TLS_SECONDS,
            )
        except (OSError, EOFError):
            # Also what TLS refuses: no certificate, or one that nobody here vouches for.
            self._strangers.leave(stranger)
        except BaseException:
            # Cancelled, or a defect: the place is free in any case.
            self._strangers.leave(stranger)
            raise


def _opened(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
