"""Joining filters of one history afterwards, so that questions ask fewer of them.

Bloom filters of one shape are joined bit by bit, as long as all their entries fit the capacity they were made for: the
error rate stays within what was promised. Static filters cannot be joined; where their keys were kept, one is built of
all. What a merged filter says yes to includes all that its parts said yes to at their times.

The paper names this as future work. Its condition for Bloom filters is here `_alike` and `capacity`: equal m, k and n,
and the sum of the entries within n. A joined range reaches from the first begin to the last end, so it may cover times
at which no part was open; only neighbours in time are joined, which keeps these gaps as small as they were between the
parts. A question at such a time asks one filter more, and gets no other answer than "no", up to the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import RibbonFilter
from postroad.tracking.filter_probe import error_rate, without_superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from postroad.tracking.segments import FilterSegment

__all__ = ["MAX_MERGED_KEYS", "merge_filters"]

# Keys of one static filter after merging: 10 MB of filter, which one question has to read.
MAX_MERGED_KEYS = 1 << 22


def merge_filters(segments: Iterable[FilterSegment]) -> list[FilterSegment]:
    """Join what can be joined, history by history, neighbours in time first; the rest is given back as it is.

    Raises:
        FilterError: the bytes of a filter are not a filter of its kind.
    """
    groups: dict[tuple[object, ...], list[FilterSegment]] = {}
    for segment in without_superseded(segments):
        groups.setdefault(_alike(segment), []).append(segment)
    merged: list[FilterSegment] = []
    for group in groups.values():
        in_time = sorted(group, key=lambda one: (one.opened, one.sealed))
        if in_time[0].method == "bloom":
            merged += _joined(in_time, in_time[0].capacity, _union)
        elif all(one.keys is not None for one in in_time):
            merged += _joined(in_time, MAX_MERGED_KEYS, _rebuilt)
        else:
            merged += in_time
    return merged


def _alike(segment: FilterSegment) -> tuple[object, ...]:
    history = (segment.kind, segment.origin, segment.subject, segment.method)
    if segment.method == "bloom":
        return (*history, segment.bits, segment.hashes, segment.capacity)
    return (*history, segment.keys is not None)


def _joined(
    segments: list[FilterSegment], most: int, join: Callable[[list[FilterSegment]], FilterSegment]
) -> list[FilterSegment]:
    """Merge consecutive filters as long as their entries together stay within a number."""
    runs: list[list[FilterSegment]] = []
    entries = 0
    for segment in segments:
        if runs and entries + segment.entries <= most:
            runs[-1].append(segment)
            entries += segment.entries
        else:
            runs.append([segment])
            entries = segment.entries
    return [run[0] if len(run) == 1 else join(run) for run in runs]


def _union(parts: list[FilterSegment]) -> FilterSegment:
    words = np.frombuffer(parts[0].data, "<u8").copy()
    for part in parts[1:]:
        words |= np.frombuffer(part.data, "<u8")
    return _together(parts)._replace(ones=int(np.bitwise_count(words).sum()), data=words.tobytes())


def _rebuilt(parts: list[FilterSegment]) -> FilterSegment:
    keys = np.unique(np.concatenate([part.keys for part in parts if part.keys is not None]))
    # The surest part sets the rate: merging makes no answer less sure.
    static = RibbonFilter.build(keys, min(map(error_rate, parts)))
    joined = _together(parts)
    return joined._replace(
        capacity=joined.entries,
        bits=static.bits,
        hashes=static.columns,
        data=bytes(static),
        keys=keys,
    )


def _together(parts: list[FilterSegment]) -> FilterSegment:
    """The first part, with the times and entries of all."""
    ranges = [(part.time_from, part.time_to) for part in parts if part.time_from <= part.time_to]
    time_from = min((begin for begin, _ in ranges), default=1)
    time_to = max((end for _, end in ranges), default=0)
    singles: NDArray[np.int64] = np.unique(np.concatenate([part.singles for part in parts]))
    return parts[0]._replace(
        time_from=time_from,
        time_to=time_to,
        singles=singles[(singles < time_from) | (singles > time_to)],
        opened=min(part.opened for part in parts),
        sealed=max(part.sealed for part in parts),
        entries=sum(part.entries for part in parts),
    )
