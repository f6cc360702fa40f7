"""Names of queues, and which rows of a batch are for which queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.errors import BrokerError
from postroad.messages.columns import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.messages import Batch

    Rows = NDArray[np.int64]

__all__ = ["MAX_NAME_BYTES", "check_name", "rows_by_name"]

# Names are kept in the store, in every checkpoint of it.
MAX_NAME_BYTES = 255


def check_name(name: str) -> None:
    """Refuse a text that is not a name of a queue.

    Raises:
        BrokerError: it is too long.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise BrokerError(f"the name of a queue has at most {MAX_NAME_BYTES} bytes")


def rows_by_name(batch: Batch, rows: Rows) -> list[tuple[str, Rows]]:
    """Return the rows of each name among the given rows of a batch, in order; one pass for any number of names."""
    spans = batch.spans[rows, TOPIC : TOPIC + 2]
    keys = spans[:, 0].astype(np.int64) << 32 | spans[:, 1]
    if not len(keys):
        return []
    if (keys == keys[0]).all():
        return [(_text(batch, int(keys[0])), rows)]
    # Rows that share a destination share its span, or have one each: a text is examined once for each span.
    distinct, which = np.unique(keys, return_inverse=True)
    codes = np.empty(len(distinct), np.int64)
    names: list[str] = []
    for at in _equal_texts(batch, distinct):
        codes[at] = len(names)
        names.append(_text(batch, int(distinct[at[0]])))
    of_row = codes[which.reshape(-1)]
    order = np.argsort(of_row, kind="stable")
    bounds = np.searchsorted(of_row[order], np.arange(1, len(names)))
    return list(zip(names, np.split(rows[order], bounds), strict=True))


def _equal_texts(batch: Batch, keys: Rows) -> Iterator[Rows]:
    """Yield groups of spans with the same text."""
    starts, lengths = keys >> 32, (keys & 0xFFFFFFFF) - (keys >> 32)
    by_length = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[by_length])) + 1
    for at in np.split(by_length, bounds):
        length = int(lengths[at[0]])
        texts = batch.buffer[starts[at][:, None] + np.arange(length)]
        if (texts == texts[0]).all():
            yield at
            continue
        # All have this length, so that zeros at the end make no two of them equal.
        _, codes = np.unique(texts.view(f"S{length}").reshape(-1), return_inverse=True)
        order = np.argsort(codes, kind="stable")
        yield from np.split(at[order], np.flatnonzero(np.diff(codes[order])) + 1)


def _text(batch: Batch, key: int) -> str:
    return batch.buffer[key >> 32 : key & 0xFFFFFFFF].tobytes().decode()
