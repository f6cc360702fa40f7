"""What can be wrong with a filter."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["FilterError"]


class FilterError(PostroadError):
    """Filters that cannot be joined, bytes that are not a filter, keys no static filter can be built of."""
