"""Errors that a broker reports to clients."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["BrokerError"]


class BrokerError(PostroadError):
    """A client asked for something impossible; the text says what, and what would work."""
