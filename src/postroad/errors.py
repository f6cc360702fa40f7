"""The one base of every error Postroad raises on purpose.

Each room derives its own errors from `PostroadError`, so that a caller can tell "Postroad refuses this, and says why"
from a defect. The text of an error says what was wrong, where, and what to do about it.
"""

from __future__ import annotations

__all__ = ["LimitError", "PostroadError"]


class PostroadError(Exception):
    """Postroad refused something; the text says what, where, and what would be accepted."""


class LimitError(PostroadError):
    """Something is larger than a named limit allows."""

    def __init__(self, what: str, size: int, limit: int, advice: str = "") -> None:
        self.what = what
        self.size = size
        self.limit = limit
        text = f"{what} is {size:,}; the limit is {limit:,}"
        super().__init__(f"{text} ({advice})" if advice else text)
