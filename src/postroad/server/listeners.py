"""The ports for clients: one row each. A new protocol adds its row here, and changes nothing else in this room."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from postroad.sessions.stomp import WEBSOCKET, StompConversation

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig
    from postroad.sessions import ClientSession, Dispatcher, Terms, Transport, WebSocketProfile

__all__ = ["CLIENT_LISTENERS", "ClientListener", "MakeSession"]

MakeSession: TypeAlias = "Callable[[Dispatcher, Transport, Terms], ClientSession]"


class ClientListener(NamedTuple):
    """A port for clients.

    Attributes:
        name: the protocol, as logs name the port.
        setting: the setting of a broker that holds the port; the port stays closed where that is None.
        sessions: from the settings of a broker to what makes a session for each connection.
        websocket: how the protocol travels in WebSocket messages; None if it travels plainly.
    """

    name: str
    setting: str
    sessions: Callable[[BrokerConfig], MakeSession]
    websocket: WebSocketProfile | None = None


def _stomp_sessions(config: BrokerConfig) -> MakeSession:
    limits = config.frames.limits()
    return lambda dispatcher, transport, terms: StompConversation(dispatcher, transport, terms, limits)


# Opened in this order. The plain port of STOMP comes last: once it is open, all others are.
CLIENT_LISTENERS = (
    ClientListener("websocket", "websocket_port", _stomp_sessions, WEBSOCKET),
    ClientListener("stomp", "port", _stomp_sessions),
)
