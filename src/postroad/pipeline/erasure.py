"""Erasure from the record: one subscription, or all that a principal did. The fact of each delivery stays.

In exact records the number of the subscription is replaced by `ERASED`. Its rows in `subscriptions` are deleted, and
with them its name, topic and selector. Filters that are its own are deleted. In shared filters its keys cannot be
separated, but without a row in `subscriptions` nobody asks for them again. If no other subscription of the same name is
left, the name is deleted from `names` too, together with the aliases it gave to its messages. Ids of messages keep the
number of the publisher, which then belongs to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.tracking import LEFT_OUT, HistoryKind, Lists
from postroad.trail import pack_lists, unpack_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["ERASED", "Erased", "Erasure", "erased", "without"]

# The largest number; no subscription ever gets it. 0 would not do: in `shed` it stands for links.
ERASED = 2**32 - 1
_KINDS = (HistoryKind.DELIVERED, HistoryKind.ACKNOWLEDGED, HistoryKind.REFUSED, HistoryKind.QUEUED)
_LISTS = ("delivered", "acknowledged", "refused", "queued")
_PAIRS = ("delivered", "acknowledged", "refused")


class Erasure(NamedTuple):
    """A subscription to erase."""

    broker: int
    subscription: int


class Erased(NamedTuple):
    """All that is to be erased.

    Attributes:
        subscriptions: these become `ERASED`.
        names: principals whose name is deleted from `names`.
        publishers: (broker, number): the numbers under which they published; aliases of their messages are deleted.
        kept: principals that have other subscriptions, so that their name stays.
    """

    subscriptions: frozenset[Erasure]
    names: frozenset[str] = frozenset()
    publishers: frozenset[tuple[int, int]] = frozenset()
    kept: frozenset[str] = frozenset()


def without(table: str, broker: int, rows: Any, what: Erased) -> Any:
    """Return the rows of a broker's table without all that is to be erased; the same rows if nothing changes."""
    for who in sorted(what.subscriptions):
        rows = erased(table, broker, rows, who)
    if table == "names" and what.names:
        return rows.filter(pc.invert(pc.is_in(rows.column("name"), pa.array(sorted(what.names), pa.string()))))
    if table == "aliases" and what.publishers:
        ours = np.zeros(rows.num_rows, np.bool_)
        origin, publisher = (rows.column(name).to_numpy() for name in ("origin", "publisher"))
        for whose, number in what.publishers:
            ours |= (origin == whose) & (publisher == number)
        # That some were left out is no alias of theirs: without it, others would be said never to have been there.
        ours &= pc.not_equal(rows.column("alias"), LEFT_OUT).to_numpy()
        return rows.filter(pa.array(~ours))
    return rows


def erased(table: str, broker: int, rows: Any, who: Erasure) -> Any:
    """Return the rows of a broker's table without the subscription; the same rows if it does not occur."""
    if table == "journeys":
        return _in_lists(rows, _PAIRS, who, paired=True)
    if broker != who.broker:
        return rows
    if table == "passages":
        return _in_lists(rows, _LISTS, who, paired=False)
    if table == "subscriptions":
        return rows.filter(pc.not_equal(rows.column("subscription"), who.subscription))
    if table == "shed":
        numbers = rows.column("subscription").to_numpy()
        return _with(rows, "subscription", pa.array(np.where(numbers == who.subscription, ERASED, numbers)))
    if table == "records":
        about = np.isin(rows.column("kind").to_numpy(), _KINDS)
        numbers = rows.column("subject").to_numpy()
        return _with(rows, "subject", pa.array(np.where(about & (numbers == who.subscription), ERASED, numbers)))
    if table == "filters":
        about = np.isin(rows.column("kind").to_numpy(), _KINDS)
        return rows.filter(pa.array(~(about & (rows.column("subject").to_numpy() == who.subscription))))
    return rows


def _with(rows: Any, name: str, column: Any) -> Any:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)


def _in_lists(rows: Any, names: tuple[str, ...], who: Erasure, *, paired: bool) -> Any:
    for name in names:
        offsets, numbers = unpack_lists(rows.column(name))
        width = 2 if paired else 1
        values = numbers.reshape(-1, width)
        row = np.repeat(np.arange(rows.num_rows), np.diff(offsets) // width)
        hit = values[:, -1] == who.subscription
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
    """Pack the lists again, ascending and each value once."""
    width = values.shape[1]
    known = np.unique(np.concatenate([row[:, None], values], axis=1), axis=0)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(width * np.bincount(known[:, 0], minlength=count), out=offsets[1:])
    return pack_lists(Lists(offsets, np.ascontiguousarray(known[:, 1:]).ravel()))
