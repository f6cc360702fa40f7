"""What can go wrong for a client."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["ClientError", "ConnectionLost", "HttpError", "StrangerError"]


class ClientError(PostroadError):
    """The server refused something, or this client cannot do what was asked.

    Attributes:
        details: what else the server said, for people; empty when it said nothing more, and for errors of the client.
    """

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details


class HttpError(ClientError):
    """The other end of an HTTP request does not speak HTTP, or sends too much."""


class StrangerError(HttpError):
    """The program that answers at an admin endpoint does not know its token."""


class ConnectionLost(ClientError):
    """The connection could not be made, or is gone. What was under way may or may not have been done."""
