"""What a sealed history becomes: a filter, with what is known about the history.

The paper gives all histories one shape, made for the busiest, and a history of ten ids then costs as much as one of ten
thousand. Here the keys are known when the filter is made, so it is sized for exactly these: n keys at the error rate
that the settings ask for. A static filter (ribbon) takes a little above log2(1 / rate) bits a key and cannot take more
keys; a Bloom filter takes 1.44 times log2(1 / rate), which is less for some hundred keys and fewer, because a ribbon
has a fixed part. So "smallest" compares the two for this n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.filters import BloomFilter, RibbonFilter, ribbon_bits, shape_for
from postroad.tracking.segments import FilterSegment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.tracking.history import History
    from postroad.tracking.settings import HistorySettings

__all__ = ["Made", "seal_history", "segment_of"]


class Made(NamedTuple):
    """A filter's own columns of `FilterSegment`."""

    method: str
    bits: int
    hashes: int
    seed: int
    ones: int
    data: bytes


def seal_history(history: History, keys: NDArray[np.uint64], settings: HistorySettings, now: int) -> FilterSegment:
    """Build the filter of a history. Heavy; shares nothing that changes."""
    rate, n = settings.rate, len(keys)
    shape = shape_for(n, rate)
    ribbon = settings.method == "ribbon" or (settings.method == "smallest" and ribbon_bits(n, rate) < shape.m)
    if ribbon:
        static = RibbonFilter.build(keys, rate)
        made = Made("ribbon", static.bits, static.columns, 0, 0, bytes(static))
    else:
        bloom = BloomFilter(shape.m, shape.k)
        bloom.add(keys)
        made = Made("bloom", shape.m, shape.k, 0, bloom.ones, bytes(bloom))
    return segment_of(history, n, made, now, keys.copy() if settings.keep_keys and ribbon else None)


def segment_of(
    history: History,
    capacity: int,
    made: Made,
    now: int,
    keys: NDArray[np.uint64] | None = None,
) -> FilterSegment:
    """A filter with what is known about its history."""
    # A history of late ids alone has no range. It is stored as 1 to 0, in which no time lies.
    bounded = history.time_from <= history.time_to
    return FilterSegment(
        *history.name,
        history.time_from if bounded else 1,
        history.time_to if bounded else 0,
        history.singles(),
        history.opened,
        now,
        history.entries,
        capacity,
        made.method,
        made.bits,
        made.hashes,
        made.seed,
        made.ones,
        made.data,
        keys,
    )
