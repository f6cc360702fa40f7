"""The ports of a broker: which are open, and what accepts connections there."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, TypeVar

from postroad.errors import PostroadError
from postroad.server.admin_listener import AdminListener
from postroad.server.link_listener import BACKLOG as LINK_BACKLOG
from postroad.server.link_listener import LinkListener
from postroad.server.listeners import CLIENT_LISTENERS
from postroad.server.tcp import TcpConnection
from postroad.server.tls_listener import TlsListener

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence
    from socket import socket

    from postroad.config import BrokerConfig, NetworkConfig
    from postroad.server.admin import Admin
    from postroad.server.clients import Clients
    from postroad.server.links import Links
    from postroad.server.listeners import ClientListener
    from postroad.server.tls import LinkTls

__all__ = ["ListenError", "Ports"]

# Connections that the kernel may hold until they are accepted; a burst of reconnecting clients fits.
BACKLOG = 1024
_ADMIN, _LINK = "admin", "link"

Listening = TypeVar("Listening", bound="asyncio.Server | AdminListener | LinkListener | TlsListener")


class ListenError(PostroadError):
    """A port cannot be opened."""


class Ports:
    """The open ports of one broker, by the names of their listeners.

    Args:
        config: the settings that it starts with.
        clients: its connections.
        tls: for clients; None for none.
        admin_tls: for the admin endpoint; None for none.
    """

    def __init__(
        self, config: BrokerConfig, clients: Clients, tls: ssl.SSLContext | None, admin_tls: ssl.SSLContext | None
    ) -> None:
        self._config = config
        self._clients = clients
        self._tls = tls
        self._admin_tls = admin_tls
        self._open: dict[str, asyncio.Server | AdminListener | LinkListener | TlsListener] = {}

    def number(self, name: str) -> int:
        """Return the port of a listener."""
        return int(self.sockets(name)[0].getsockname()[1])

    def numbers(self) -> dict[str, int]:
        """Return all ports, each under its name in the log."""
        return {f"{name}_port": self.number(name) for name in self._open}

    def sockets(self, name: str) -> Sequence[socket]:
        """Return the sockets that a listener accepts connections from."""
        return self._open[name].sockets

    @property
    def admin_address(self) -> str:
        """How programs of this machine reach the admin endpoint; empty if there is none."""
        if _ADMIN not in self._open:
            return ""
        host = self._config.admin_host
        near = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
        return f"http{'' if self._admin_tls is None else 's'}://{near}:{self.number(_ADMIN)}"

    # --- opening ---------------------------------------------------------------------------------------------------

    async def listen_for_operators(self, admin: Admin) -> None:
        """Open the port of the admin endpoint, if the settings name one.

        Raises:
            ListenError: it cannot be opened.
        """

        async def listen(port: int) -> asyncio.Server | AdminListener:
            return await admin.listen(port, self._config.admin_host, self._admin_tls)

        if self._config.admin_port is not None:
            self._open[_ADMIN] = await _listening("admin_port", self._config.admin_port, listen)

    async def listen_for_links(self, links: Links, network: NetworkConfig, tls: LinkTls | None) -> None:
        """Open the port for other brokers.

        Raises:
            ListenError: it cannot be opened.
        """

        async def listen(port: int) -> LinkListener:
            return await LinkListener(links, links.strangers, tls).listen(network.host, port, LINK_BACKLOG)

        self._open[_LINK] = await _listening("network.port", network.port, listen)

    async def listen_for_clients(self) -> None:
        """Open the ports for clients.

        Raises:
            ListenError: one cannot be opened.
        """
        for listener in CLIENT_LISTENERS:
            port = getattr(self._config, listener.setting)
            if port is not None:
                await self._listen(listener, port)

    async def _listen(self, listener: ClientListener, port: int) -> None:
        connection, config = self._connection(listener), self._config

        async def listen(port: int) -> asyncio.Server | TlsListener:
            if self._tls is not None:
                accepting = TlsListener(self._clients, connection, self._tls, config.connect_seconds)
                return await accepting.listen(config.host, port, BACKLOG)
            return await asyncio.get_running_loop().create_server(connection, config.host, port, backlog=BACKLOG)

        self._open[listener.name] = await _listening(listener.setting, port, listen)

    def _connection(self, listener: ClientListener) -> Callable[[], TcpConnection]:
        """Return what makes the connections of a port."""
        make, profile = listener.sessions(self._config), listener.websocket
        if profile is None:
            return lambda: TcpConnection(self._clients, make)
        # A plain install does not bring its library.
        from postroad.server.websocket import WebSocketConnection

        return lambda: WebSocketConnection(self._clients, make, profile)

    # --- later -----------------------------------------------------------------------------------------------------

    def take_tls(self, tls: ssl.SSLContext | None, admin_tls: ssl.SSLContext | None, links: LinkTls | None) -> None:
        """Show these certificates to who connects from now on."""
        self._tls, self._admin_tls = tls, admin_tls
        for name, server in self._open.items():
            context = admin_tls if name == _ADMIN else tls
            if isinstance(server, LinkListener):
                server.take_tls(links)
            elif isinstance(server, AdminListener | TlsListener) and context is not None:
                server.take_context(context)

    def close_to_clients(self) -> None:
        """Accept no more clients."""
        for name, server in self._open.items():
            if name not in (_ADMIN, _LINK):
                server.close()

    def close_to_links(self) -> None:
        """Accept no more links."""
        if _LINK in self._open:
            self._open[_LINK].close()

    def close(self) -> None:
        """Close all of them."""
        for server in self._open.values():
            server.close()


async def _listening(setting: str, port: int, listen: Callable[[int], Awaitable[Listening]]) -> Listening:
    try:
        return await listen(port)
    except (OSError, UnicodeError) as error:  # the latter for a host name with an empty or an overlong part
        is_port = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
        advice = "choose another one, or stop the other program" if is_port else "is its host one of this machine?"
        raise ListenError(f"{setting}: cannot listen on port {port} ({error}); {advice}") from error
