"""Batches that hold only the ids of messages, for the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch
from postroad.messages.columns import ENVELOPE_COLUMNS, SPAN_COLUMNS
from postroad.messages.id_columns import WORD_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["ids_alone", "integers_of", "words_of"]


def ids_alone(ids: NDArray[np.uint64]) -> Batch:
    """Return a batch with these ids, uint64[n, 2]."""
    count = len(ids)
    spans, envelopes = np.zeros((count, SPAN_COLUMNS), np.int32), np.zeros((count, ENVELOPE_COLUMNS), np.int64)
    return Batch(np.empty(0, np.uint8), spans, ids, envelopes)


def integers_of(ids: NDArray[np.uint64]) -> list[int]:
    """Return these ids, uint64[n, 2], as 128-bit integers."""
    heads, tails = ids[:, 0].tolist(), ids[:, 1].tolist()
    return [head << WORD_BITS | tail for head, tail in zip(heads, tails, strict=True)]


def words_of(messages: Iterable[int]) -> NDArray[np.uint64]:
    """Return ids given as 128-bit integers in the form of batches: uint64[n, 2]."""
    data = b"".join([message.to_bytes(2 * WORD_BITS // 8, "big") for message in messages])
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)
