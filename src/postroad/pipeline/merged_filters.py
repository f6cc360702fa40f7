"""Rows of the table of filters with fewer filters in them (`postroad.tracking.merge_filters`)."""

from __future__ import annotations

from typing import Any

from postroad.filters import FilterError
from postroad.tracking import merge_filters
from postroad.trail import TrailDamageError, filter_segment, tabulate

__all__ = ["merged_rows"]


def merged_rows(rows: Any, path: str = "") -> Any:
    """Rows of `filters` of one broker, merged where they can be.

    Raises:
        TrailDamageError: a filter is damaged; a merge must not hide that.
    """
    try:
        segments = [filter_segment(row) for row in rows.to_pylist()]
        return tabulate(merge_filters(segments))["filters"]
    except (FilterError, TrailDamageError) as error:
        raise TrailDamageError(path, f"a filter in it is damaged: {error}") from None
