"""What the parts of a conversation need once its client is admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Session
    from postroad.protocols.stomp import Version
    from postroad.sessions.contract import Terms
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["ConnectedClient"]


class ConnectedClient(NamedTuple):
    """A client whose CONNECT was answered.

    Attributes:
        dispatcher: the broker's core and its other sessions.
        session: of this client.
        version: of the protocol, as agreed.
        terms: what holds for every session.
        send: sends bytes to the client.
        fail: sends an ERROR to the client, and closes.
        who: names the client in logs.
    """

    dispatcher: Dispatcher
    session: Session
    version: Version
    terms: Terms
    send: Callable[[bytes | memoryview], None]
    fail: Callable[[str], None]
    who: dict[str, object]
