"""Why something cannot be archived."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["ArchiveError"]


class ArchiveError(PostroadError):
    """An archive cannot be written; the text says why, and what to do."""
