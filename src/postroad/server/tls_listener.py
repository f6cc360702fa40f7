"""A port for clients over TLS: connections count before their TLS handshake."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from postroad.server.accept_loop import AcceptLoop
from postroad.sessions import address_of

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from postroad.server.clients import Clients
    from postroad.server.tcp import TcpConnection

__all__ = ["TlsListener"]


class TlsListener(AcceptLoop):
    """Listens for clients over TLS.

    Args:
        clients: who decides about connections.
        make: makes a connection.
        tls: what is spoken.
        seconds: how long a handshake may take.
    """

    def __init__(
        self, clients: Clients, make: Callable[[], TcpConnection], tls: ssl.SSLContext, seconds: float
    ) -> None:
        super().__init__(logging.getLogger("postroad.server"), "connection")
        self._clients = clients
        self._make = make
        self._tls = tls
        self._seconds = seconds

    def take_context(self, tls: ssl.SSLContext) -> None:
        """Speak this with who connects from now on."""
        self._tls = tls

    def accepted(self, connection: socket.socket, peer: tuple[object, ...]) -> None:
        made = self._make()
        if self._clients.arrived(made, address_of(peer)):
            # Nothing can be said before the handshake.
            connection.close()
            return
        made.handshake = self.keep(self._shake_hands(connection, made))

    async def _shake_hands(self, accepted: socket.socket, connection: TcpConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=self._seconds
            )
        except (OSError, EOFError):
            # Also what TLS refuses: another protocol, no certificate, or one of an unknown authority.
            self._clients.left(connection)
        except BaseException:
            # Cancelled, or a defect: the place is free in any case.
            self._clients.left(connection)
            raise
