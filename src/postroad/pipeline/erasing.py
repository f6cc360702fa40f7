"""Erasure of one subscriber from the record: that messages were delivered stays, to whom does not.

In exact records the subscriber's number becomes that of nobody. Its attachments go, and with them its names. Filters of
its own go; in filters that several share its keys cannot be picked out, but without an attachment nobody asks for them
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.tracking import HistoryKind, Lists
from postroad.trail import pack_lists, unpack_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["ERASED", "Erasure", "erased"]

# The largest number there is; no subscriber ever gets it. 0 would not do: in `shed` it stands for links.
ERASED = 2**32 - 1
_KINDS = (HistoryKind.DELIVERED, HistoryKind.ACKNOWLEDGED, HistoryKind.REFUSED, HistoryKind.QUEUED)
_LISTS = ("subscribers", "acknowledged", "refused", "queued")
_PAIRS = ("deliveries", "acknowledged", "refused")


class Erasure(NamedTuple):
    """Whom to erase."""

    broker: int
    subscriber: int


def erased(table: str, broker: int, rows: Any, who: Erasure) -> Any:
    """Rows of a table of a broker without the subscriber; the same rows where it is not in them."""
    if table == "journeys":
        return _in_lists(rows, _PAIRS, who, paired=True)
    if broker != who.broker:
        return rows
    if table == "passages":
        return _in_lists(rows, _LISTS, who, paired=False)
    if table == "attachments":
        return rows.filter(pc.not_equal(rows.column("subscriber"), who.subscriber))
    if table == "shed":
        numbers = rows.column("subscriber").to_numpy()
        return _with(rows, "subscriber", pa.array(np.where(numbers == who.subscriber, ERASED, numbers)))
    if table == "records":
        about = np.isin(rows.column("kind").to_numpy(), _KINDS)
        numbers = rows.column("subject").to_numpy()
        return _with(rows, "subject", pa.array(np.where(about & (numbers == who.subscriber), ERASED, numbers)))
    if table == "filters":
        about = np.isin(rows.column("kind").to_numpy(), _KINDS)
        return rows.filter(pa.array(~(about & (rows.column("subject").to_numpy() == who.subscriber))))
    return rows


def _with(rows: Any, name: str, column: Any) -> Any:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)


def _in_lists(rows: Any, names: tuple[str, ...], who: Erasure, *, paired: bool) -> Any:
    for name in names:
        offsets, numbers = unpack_lists(rows.column(name))
        width = 2 if paired else 1
        values = numbers.reshape(-1, width)
        row = np.repeat(np.arange(rows.num_rows), np.diff(offsets) // width)
        hit = values[:, -1] == who.subscriber
        if paired:
            hit &= values[:, 0] == who.broker
        if hit.any():
            rows = _with(rows, name, _packed(rows.num_rows, row, np.where(hit[:, None], _blank(values), values)))
    return rows


def _blank(values: Ints) -> Ints:
    blank = values.copy()
    blank[:, -1] = ERASED
    return blank


def _packed(count: int, row: Ints, values: Ints) -> Any:
    """The lists again, ascending and each value once."""
    width = values.shape[1]
    known = np.unique(np.concatenate([row[:, None], values], axis=1), axis=0)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(width * np.bincount(known[:, 0], minlength=count), out=offsets[1:])
    return pack_lists(Lists(offsets, np.ascontiguousarray(known[:, 1:]).ravel()))
