"""The errors of this room."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["SecurityError"]


class SecurityError(PostroadError):
    """A user, a passcode or a record of one cannot be used."""
