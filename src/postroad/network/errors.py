"""What can go wrong with a whole network."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["NetworkError"]


class NetworkError(PostroadError):
    """A network cannot be started, found or stopped.

    Attributes:
        details: what helps to see why, such as the end of a log; empty when there is nothing.
    """

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details
