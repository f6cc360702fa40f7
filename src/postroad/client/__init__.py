"""The client: publish, and subscribe by content, from asyncio (`docs/client.md`)."""

from __future__ import annotations

from postroad.client.address import DEFAULT_SERVER
from postroad.client.admin_request import AdminAccess, admin_reply
from postroad.client.backoff import Reconnect
from postroad.client.client import Client, IdsBy, connect
from postroad.client.clock import ClientClock
from postroad.client.errors import ClientError, ConnectionLost, HttpError, StrangerError
from postroad.client.http_request import HttpReply, http_request
from postroad.client.received import ReceivedMessage
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
