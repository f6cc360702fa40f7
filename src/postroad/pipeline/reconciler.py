"""Reconciliation: what became of all messages that entered, by origin, link and subscription.

Every id of the exact record is judged like a requested one. Workers count the verdicts where the evidence is, so only
sums travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.evidence import ASKED
from postroad.pipeline.judgement import judged
from postroad.pipeline.plain_evidence import first_rows, whole_ids
from postroad.tracking.verdicts import OPEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.pipeline.context import Context

__all__ = ["COUNTS_SCHEMA", "Reconciler", "asked_once", "counts_of"]

# What is counted: `about` says what the numbers are of.
#   origin      number = origin;                       outcome = the verdict
#   link        number = from, other = to;             outcome = "lost"
#   subscription  number = broker, other = subscription;   outcome = "delivered" or "acknowledged"
COUNTS_SCHEMA = pa.schema(
    [
        ("about", pa.string()),
        ("number", pa.int64()),
        ("other", pa.int64()),
        ("outcome", pa.string()),
        ("messages", pa.int64()),
        # How many of them are expected to rest on false answers of filters, and the variance of that.
        ("doubtful", pa.float64()),
        ("variance", pa.float64()),
    ]
)


class Reconciler:
    """Counts verdicts of sorted evidence, batch by batch; made by the driver, run by the workers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield partial counts, for `mapInArrow`."""
        for rows in whole_ids(batches):
            yield from counts_of(judged(self._context, asked_once(rows))).to_batches()


def asked_once(rows: Any) -> Any:
    """Return sorted evidence with one question for each id, however often the record says that the message entered.

    A journal that is replayed after a crash says it twice, as does a journey beside the passages it was made of.
    """
    again = np.zeros(rows.num_rows, np.bool_)
    asked = rows.column("source").to_numpy() == ASKED
    again[1:] = asked[1:] & asked[:-1]
    again[first_rows(rows)] = False
    return rows.filter(pa.array(~again)) if again.any() else rows


def counts_of(verdicts: Any) -> Any:
    """Return the counts of some verdicts."""
    # An undecided verdict rests on no answer, so not on a false one.
    is_open = pc.is_in(verdicts.column("verdict"), pa.array([one.value for one in OPEN]))
    doubt = pc.if_else(is_open, 0.0, pc.subtract(1.0, verdicts.column("certainty")))
    parts = [
        _counted("origin", verdicts.column("origin"), None, verdicts.column("verdict"), doubt),
        _from_lists(verdicts, "lost", "link", "broker", "neighbour", "lost"),
        _from_lists(verdicts, "delivered", "subscription", "broker", "subscription", "delivered"),
        _from_lists(verdicts, "acknowledged", "subscription", "broker", "subscription", "acknowledged"),
    ]
    return pa.concat_tables([part for part in parts if part is not None])


def _from_lists(verdicts: Any, column: str, about: str, number: str, other: str, outcome: str) -> Any:
    rows = pc.list_flatten(verdicts.column(column).combine_chunks())
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks()
    if not len(rows):
        return None
    outcomes = pa.array(np.full(len(rows), outcome, object), pa.string())
    return _counted(
        about, pc.struct_field(rows, number), pc.struct_field(rows, other), outcomes, pc.struct_field(rows, "doubt")
    )


def _counted(about: str, number: Any, other: Any, outcome: Any, doubt: Any) -> Any:
    count = len(number)
    zero = pa.array(np.zeros(count, np.int64))
    rows = pa.table(
        {
            "number": number,
            "other": zero if other is None else other,
            "outcome": outcome,
            "doubt": doubt,
            "spread": pc.multiply(doubt, pc.subtract(1.0, doubt)),
        }
    )
    sums = rows.group_by(["number", "other", "outcome"]).aggregate(
        [([], "count_all"), ("doubt", "sum"), ("spread", "sum")]
    )
    columns = [
        pa.array(np.full(sums.num_rows, about, object), pa.string()),
        *(sums.column(name) for name in ("number", "other", "outcome", "count_all", "doubt_sum", "spread_sum")),
    ]
    return pa.Table.from_arrays(columns, names=COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)
