"""The client: publish, and subscribe by content, from asyncio (`docs/client.md`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.client.admin_request import AdminAccess, admin_reply
from postroad.client.errors import ClientError, ConnectionLost, HttpError, StrangerError
from postroad.client.http_request import HttpReply, http_request

if TYPE_CHECKING:
    from postroad.client.address import DEFAULT_SERVER
    from postroad.client.backoff import Reconnect
    from postroad.client.client import Client, IdsBy, connect
    from postroad.client.clock import ClientClock
    from postroad.client.received_message import ReceivedMessage
    from postroad.client.subscription import AckMode, Overflow, Subscription
    from postroad.client.transaction import Transaction

__all__ = [
    "DEFAULT_SERVER",
    "AckMode",
    "AdminAccess",
    "Client",
    "ClientClock",
    "ClientError",
    "ConnectionLost",
    "HttpError",
    "HttpReply",
    "IdsBy",
    "Overflow",
    "ReceivedMessage",
    "Reconnect",
    "StrangerError",
    "Subscription",
    "Transaction",
    "admin_reply",
    "connect",
    "http_request",
]

# Imported when they are first used: commands that only ask an admin endpoint start in half the time.
_LATER = {
    "AckMode": "subscription",
    "Client": "client",
    "ClientClock": "clock",
    "DEFAULT_SERVER": "address",
    "IdsBy": "client",
    "Overflow": "subscription",
    "ReceivedMessage": "received_message",
    "Reconnect": "backoff",
    "Subscription": "subscription",
    "Transaction": "transaction",
    "connect": "client",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
