"""Errors of the capacity model."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["CapacityError"]


class CapacityError(PostroadError):
    """A model cannot be fitted to, or computed from, the given data."""
