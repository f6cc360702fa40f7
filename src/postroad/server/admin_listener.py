"""The admin endpoint over TLS: connections are counted before their TLS handshake."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from postroad.server.accept_loop import AcceptLoop
from postroad.server.http import MOST_REQUEST_BYTES, REQUEST_SECONDS

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable

__all__ = ["AdminListener"]

# Scrapers, operators and their browsers, each with a few connections; beyond this the oldest handshake is aborted.
MOST_HANDSHAKES = 32


class AdminListener(AcceptLoop):
    """Listens for operators over TLS.

    Args:
        serve: serves a connection after its handshake.
        tls: the TLS settings.
    """

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], tls: ssl.SSLContext
    ) -> None:
        super().__init__(logging.getLogger("postroad.server"), "admin connection")
        self._serve = serve
        self._tls = tls
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}

    def take_context(self, tls: ssl.SSLContext) -> None:
        """Use these TLS settings for new connections."""
        self._tls = tls

    def accepted(self, connection: socket.socket, peer: tuple[object, ...]) -> None:
        while len(self._handshakes) >= MOST_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest).cancel()
        self._handshakes[connection] = self.keep(self._shake_hands(connection))

    async def _shake_hands(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(MOST_REQUEST_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve, loop)
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=REQUEST_SECONDS
            )
        except (OSError, EOFError):
            # Also what TLS refuses: another protocol, no certificate, or one of an unknown authority.
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._handshakes.pop(accepted, None)
