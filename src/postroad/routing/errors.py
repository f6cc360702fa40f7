"""What the routing room refuses."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["RoutingError"]


class RoutingError(PostroadError):
    """A control frame, a set of destinations or a setting cannot be used; the text says why."""
