"""What a broker refuses."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["BrokerError"]


class BrokerError(PostroadError):
    """A client asked for something that cannot be; the text says what, and what would do."""
