"""From rows of `filters` to those that may have an id: of its origin, with its time in their range or late ids."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from postroad.tracking import FilterSegment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroad.messages import MessageId
    from postroad.tracking import Hit

__all__ = ["Probe", "matching_filters"]


class Probe(Protocol):
    """Asks filters about an id, by what their keys mean."""

    def __call__(
        self,
        filters: Sequence[FilterSegment],
        identity: MessageId,
        neighbours: Sequence[int],
        subscribers: Sequence[int],
    ) -> Iterable[tuple[int, Hit]]:
        """(kind of history, hit) for each positive answer.

        Args:
            filters: the matching set: all are of the id's origin and time.
            identity: the message.
            neighbours: the links that the broker had at the time.
            subscribers: who was subscribed there at the time.
        """


def matching_filters(rows: Any, identity: MessageId) -> tuple[list[FilterSegment], int]:
    """The filters of some rows that may have the id, and how many of them are damaged."""
    found: list[FilterSegment] = []
    damaged = 0
    here = rows.column("origin").to_numpy() == identity.broker
    for row in rows.filter(here).to_pylist():
        singles = np.frombuffer(row["singles"] or b"", "<i8").astype(np.int64)
        if not (row["time_from"] <= identity.time <= row["time_to"] or (singles == identity.time).any()):
            continue
        if zlib.crc32(row["data"]) != row.pop("crc"):
            damaged += 1
            continue
        row["singles"] = singles
        found.append(FilterSegment(**row))
    return found, damaged
