"""The port for links: accepts connections one by one, so that strangers count from their first packet on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from postroad.server.accept_loop import AcceptLoop
from postroad.server.link_connection import TLS_SECONDS, LinkConnection

if TYPE_CHECKING:
    import socket
    import ssl

    from postroad.server.links import Links
    from postroad.server.strangers import Strangers
    from postroad.server.tls import LinkTls

__all__ = ["BACKLOG", "Accepted", "LinkListener"]

# Connections that the kernel may hold until they are accepted.
BACKLOG = 128


class Accepted:
    """One connection from its acceptance until it has proved who it is, or is gone.

    Args:
        address: where it comes from.
        certificate: what this broker shows on it; empty without TLS.
    """

    def __init__(self, address: str, certificate: bytes = b"") -> None:
        self.address = address
        self.certificate = certificate
        self.opening: asyncio.Task[None] | None = None
        self.connection: LinkConnection | None = None

    def evict(self) -> None:
        """Close this connection to make room for another."""
        if self.connection is not None:
            self.connection.turn_away()
        elif self.opening is not None:
            self.opening.cancel()


class LinkListener(AcceptLoop):
    """Listens for links.

    Args:
        links: of this broker.
        strangers: bounds the connections that have not proved who they are.
        tls: how to wrap connections; None for none.
    """

    def __init__(self, links: Links, strangers: Strangers[Accepted], tls: LinkTls | None) -> None:
        super().__init__(logging.getLogger("postroad.links"), "link")
        self._links = links
        self._strangers = strangers
        self._tls = tls

    def take_tls(self, tls: LinkTls | None) -> None:
        """Show this certificate to who connects from now on."""
        self._tls = tls

    def accepted(self, connection: socket.socket, peer: tuple[object, ...]) -> None:
        stranger = Accepted(str(peer[0]), b"" if self._tls is None else self._tls.certificate)
        evicted = self._strangers.admit(stranger, stranger.address)
        if evicted is not None:
            self._links.count_turned_away()
            evicted.evict()
        tls = None if self._tls is None else self._tls.listening
        stranger.opening = self.keep(self._open(connection, stranger, tls))

    async def _open(self, accepted: socket.socket, stranger: Accepted, tls: ssl.SSLContext | None) -> None:
        """Make the connection, after a TLS handshake if there is TLS."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: LinkConnection(self._links, stranger=stranger),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else TLS_SECONDS,
            )
        except (OSError, EOFError):
            # Also what TLS refuses: no certificate, or one of an unknown authority.
            self._strangers.leave(stranger)
        except BaseException:
            # Cancelled, or a defect: free the place in any case.
            self._strangers.leave(stranger)
            raise
