"""What the encodings refuse."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["EncodingError"]


class EncodingError(PostroadError):
    """An encoded predicate list, its scheme or an exact advertisement is malformed; the text names the place."""
