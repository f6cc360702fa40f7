"""Rows of `filters`: as segments, and what they say about an id. What is damaged is left out, and counted."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.filters import FilterError
from postroad.tracking import FilterEvidence, FilterSegment, evidence_of
from postroad.trail.errors import TrailDamageError
from postroad.trail.packed_lists import unpack_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.messages import MessageId

__all__ = ["ask_filters", "filter_segment", "matching_filters"]


def filter_segment(row: dict[str, Any]) -> FilterSegment:
    """The segment in a row of `filters`, read with or without the column `keys`.

    Raises:
        TrailDamageError: its bytes are not those that were written.
    """
    if zlib.crc32(row["data"]) != row["crc"]:
        raise TrailDamageError("a filter", "the checksum is wrong: damaged")
    fields = {name: row[name] for name in FilterSegment._fields if name in row}
    fields["singles"] = unpack_words(row["singles"])
    if row.get("keys") is not None:
        fields["keys"] = unpack_words(row["keys"]).view(np.uint64)
    return FilterSegment(**fields)


def matching_filters(rows: Any, identity: MessageId) -> tuple[list[FilterSegment], int]:
    """The filters of some rows whose range, or late ids, have the id's time; and how many of them are damaged."""
    found: list[FilterSegment] = []
    damaged = 0
    here = rows.column("origin").to_numpy() == identity.broker
    for row in rows.filter(here).to_pylist():
        try:
            if _covers(row, identity.time):
                found.append(filter_segment(row))
        except TrailDamageError:
            damaged += 1
    return found, damaged


def _covers(row: dict[str, Any], time: int) -> bool:
    return row["time_from"] <= time <= row["time_to"] or bool((unpack_words(row["singles"]) == time).any())


def ask_filters(
    filters: Sequence[FilterSegment], identity: MessageId, neighbours: Sequence[int], subscriptions: Sequence[int]
) -> tuple[FilterEvidence, int]:
    """What filters say, and how many of them are of a kind that this Postroad cannot ask."""
    try:
        return evidence_of(filters, identity, neighbours, subscriptions), 0
    except FilterError:
        good = [one for one in filters if _can_be_asked(one, identity)]
        return evidence_of(good, identity, neighbours, subscriptions), len(filters) - len(good)


def _can_be_asked(one: FilterSegment, identity: MessageId) -> bool:
    try:
        evidence_of([one], identity)
    except FilterError:
        return False
    return True
