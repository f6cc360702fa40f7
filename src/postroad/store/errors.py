"""Errors of the store."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["DamageError", "StoreError", "StoreFullError", "StoreReadError", "StoreWriteError"]


class StoreError(PostroadError):
    """The store refuses something."""


class StoreFullError(StoreError):
    """A limit of the store is reached; what is stored stays readable."""


class StoreReadError(StoreError):
    """The disk does not return what was written. Nothing was changed on it."""


class StoreWriteError(StoreError):
    """The disk refuses a write; what is stored stays readable."""


class DamageError(StoreError):
    """Bytes on disk differ from what was written."""
