"""What the store refuses, and why."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["DamageError", "StoreError", "StoreFullError", "StoreReadError", "StoreWriteError"]


class StoreError(PostroadError):
    """The store refuses something."""


class StoreFullError(StoreError):
    """A limit of the store is reached; what is stored stays readable."""


class StoreReadError(StoreError):
    """The disk does not give what was written. Nothing was changed on it."""


class StoreWriteError(StoreError):
    """The disk does not take what is written; what is stored stays readable."""


class DamageError(StoreError):
    """Bytes on disk are not what was written."""
