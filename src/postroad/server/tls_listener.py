"""A port for clients over TLS: accepts connections one by one, so that they count before their TLS handshake.

The event loop's own servers report a connection when its handshake is done. Whoever never does one would have a socket
and a TLS session that no limit knows of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from postroad.sessions import address_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from postroad.server.service import Service
    from postroad.server.tcp import TcpConnection

__all__ = ["TlsListener"]

log = logging.getLogger("postroad.server")

# When no file can be opened: others must close theirs first.
OUT_OF_FILES_SECONDS = 0.5


class TlsListener:
    """Listens for clients over TLS; to be closed like a server of the event loop.

    Args:
        service: who decides about connections.
        make: makes a connection.
        tls: what is spoken.
        seconds: how long a handshake may take.
    """

    def __init__(
        self, service: Service, make: Callable[[], TcpConnection], tls: ssl.SSLContext, seconds: float
    ) -> None:
        self._service = service
        self._make = make
        self._tls = tls
        self._seconds = seconds
        self.sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, backlog: int) -> TlsListener:
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
            self._keep(loop.create_task(self._accept(each)))
        return self

    def close(self) -> None:
        """Accept nobody any more, and leave those who are in their handshake."""
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
                accepted, peer = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                if listening.fileno() < 0:
                    return
                log.warning("connection not accepted", extra={"reason": str(error)})
                await asyncio.sleep(OUT_OF_FILES_SECONDS)
                continue
            connection = self._make()
            if self._service.arrived(connection, address_of(peer)):
                # Nothing can be said before the handshake.
                accepted.close()
                continue
            connection.handshake = self._keep(loop.create_task(self._shake_hands(accepted, connection)))

    async def _shake_hands(self, accepted: socket.socket, connection: TcpConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=self._seconds
            )
        except (OSError, EOFError):
            # Also what TLS refuses: another protocol, no certificate, or one that nobody here vouches for.
            self._service.left(connection)
        except BaseException:
            # Cancelled, or a defect: the place is free in any case.
            self._service.left(connection)
            raise


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
