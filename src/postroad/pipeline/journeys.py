"""Joins what the brokers recorded of a message into one row: its journey.

Only plain messages become journeys: both ends of every hop agree, nothing was dropped or still waits, and the record of
every broker on the way is complete for the time. All others stay as they were recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.pipeline.evidence import PASSAGE
from postroad.pipeline.plain_evidence import View, from_passages
from postroad.tracking import Lists
from postroad.trail import SCHEMAS, pack_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.pipeline.context import Context

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

__all__ = ["LEFT", "joined"]

# The columns of a row that stays a passage.
LEFT = ("broker", *SCHEMAS["passages"].names)


def joined(context: Context, rows: Any) -> tuple[Any, Any]:
    """Return the journeys in sorted evidence, and the passages of messages that do not become journeys.

    Args:
        context: of the trail.
        rows: evidence of whole ids: passages and shed rows.
    """
    view = View.of(context, rows)
    counts = view.counts()
    plain: Bits = (counts[:, PASSAGE] > 0) & (counts.sum(axis=1) == counts[:, PASSAGE])
    chosen = view.chosen(np.flatnonzero(plain), PASSAGE)
    answers = from_passages(view, chosen, plain)
    view.surely_complete(answers.stops, plain)
    left = np.flatnonzero(~plain[view.group] & (view.source == PASSAGE))
    groups = np.flatnonzero(plain)
    place = np.full(len(plain), -1)
    place[groups] = np.arange(len(groups))
    pairs = [answers.hops, answers.delivered, answers.acknowledged, answers.refused]
    arrays = [
        pa.array(view.at["origin"][groups]),
        pa.array(view.at["time"][groups]),
        pa.array(view.at["publisher"][groups]),
        pa.array(view.at["counter"][groups].astype(np.int32)),
        *(_packed(place, len(groups), *one) for one in pairs),
        pa.array(np.ones(len(groups), np.int32)),
    ]
    journeys = pa.Table.from_arrays(arrays, schema=SCHEMAS["journeys"])
    return journeys, view.rows.select(list(LEFT)).take(pa.array(left))


def _packed(place: Ints, count: int, group: Ints, one: Ints, other: Ints) -> Any:
    """Pack pairs of numbers as lists, ascending; groups without a place are left out."""
    row = place[group]
    kept = np.flatnonzero(row >= 0)
    kept = kept[np.lexsort((other[kept], one[kept], row[kept]))]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(2 * np.bincount(row[kept], minlength=count), out=offsets[1:])
    return pack_lists(Lists(offsets, np.stack([one[kept], other[kept]], axis=1).ravel()))
