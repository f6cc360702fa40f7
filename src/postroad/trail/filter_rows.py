"""From rows of `filters` to what they say of an id, leaving out what is damaged."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from postroad.filters import FilterError
from postroad.tracking import FilterSegment
from postroad.tracking.filter_probe import FilterEvidence, evidence_of
from postroad.trail.errors import TrailDamageError
from postroad.trail.packed_lists import unpack_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.messages import MessageId

__all__ = ["ask_filters", "matching_filters"]


def matching_filters(rows: Any, identity: MessageId) -> tuple[list[FilterSegment], int]:
    """The filters of some rows whose range, or late ids, have the id's time; and how many of them are damaged."""
    found: list[FilterSegment] = []
    damaged = 0
    here = rows.column("origin").to_numpy() == identity.broker
    for row in rows.filter(here).to_pylist():
        try:
            singles = unpack_words(row["singles"])
        except TrailDamageError:
            damaged += 1
            continue
        if not (row["time_from"] <= identity.time <= row["time_to"] or (singles == identity.time).any()):
            continue
        if zlib.crc32(row["data"]) != row.pop("crc"):
            damaged += 1
            continue
        row["singles"] = singles
        found.append(FilterSegment(**row))
    return found, damaged


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
