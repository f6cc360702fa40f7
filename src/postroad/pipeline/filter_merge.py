"""Merges filters of one history: fewer to probe, and full ones instead of partly full ones.

Bloom filters of equal shape are joined bit by bit as long as their keys fit into one. The joined filter says yes
wherever a part did, and errs no more often than a full filter was planned to. Static filters cannot be joined; if their
keys were kept, one is built again. Every merge is checked for losses: all bits, or all keys.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.filters import BloomFilter, FilterError, RibbonFilter
from postroad.pipeline.errors import PipelineError
from postroad.tracking import FilterSegment, HistorySettings, without_superseded
from postroad.trail import TrailDamageError, filter_segment, tabulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["merged", "merged_rows"]


def merged_rows(rows: Any, path: str = "") -> Any:
    """Rows of `filters` of one broker, merged where they can be.

    Raises:
        TrailDamageError: a filter is damaged; a merge must not hide that.
    """
    try:
        segments = [filter_segment(row) for row in rows.to_pylist()]
        return tabulate(merged(segments))["filters"]
    except (FilterError, TrailDamageError) as error:
        raise TrailDamageError(path, f"a filter in it is damaged: {error}") from None


def merged(segments: Sequence[FilterSegment]) -> list[FilterSegment]:
    """Return the same histories in fewer filters."""
    found: list[FilterSegment] = []
    blooms: dict[tuple[int, ...], list[FilterSegment]] = defaultdict(list)
    keyed: dict[tuple[int, ...], list[FilterSegment]] = defaultdict(list)
    for one in without_superseded(segments):
        history = (one.kind, one.origin, one.subject)
        if one.method == "bloom":
            blooms[*history, one.bits, one.hashes, one.capacity].append(one)
        elif one.keys is not None:
            keyed[history].append(one)
        else:
            found.append(one)
    most = HistorySettings().capacity
    for group in blooms.values():
        found += [_joined(part) for part in _fitting(group, lambda one: one.capacity)]
    for group in keyed.values():
        found += [_rebuilt(part) for part in _fitting(group, lambda _: most)]
    return found


def _fitting(group: Sequence[FilterSegment], capacity: Callable[[FilterSegment], int]) -> Iterator[list[FilterSegment]]:
    """Group neighbours in time, as many as fit into one filter."""
    part: list[FilterSegment] = []
    for one in sorted(group, key=lambda segment: (segment.time_from, segment.opened)):
        if part and sum(other.entries for other in part) + one.entries > capacity(part[0]):
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def _joined(part: Sequence[FilterSegment]) -> FilterSegment:
    if len(part) == 1:
        return part[0]
    whole = BloomFilter.from_bytes(part[0].data, part[0].bits, part[0].hashes)
    for one in part[1:]:
        whole = whole.union(BloomFilter.from_bytes(one.data, one.bits, one.hashes))
    for one in part:
        if (BloomFilter.from_bytes(one.data, one.bits, one.hashes).words & ~whole.words).any():
            raise PipelineError("a merged filter lost bits of its parts; nothing was committed")
    return _covering(part)._replace(data=bytes(whole), ones=whole.ones, capacity=part[0].capacity)


def _rebuilt(part: Sequence[FilterSegment]) -> FilterSegment:
    if len(part) == 1:
        return part[0]
    keys = np.unique(np.concatenate([one.keys for one in part if one.keys is not None]))
    # The strictest error rate of the parts: the matching set only shrinks, and the promise of each part holds.
    rate = min(RibbonFilter.from_bytes(one.data).rate for one in part)
    whole = RibbonFilter.build(keys, rate)
    if not whole.contains(keys).all():
        raise PipelineError("a filter that was built anew lost keys; nothing was committed")
    return _covering(part)._replace(
        data=bytes(whole), bits=whole.bits, hashes=whole.columns, capacity=len(keys), keys=keys
    )


def _covering(part: Sequence[FilterSegment]) -> FilterSegment:
    """Return the first of the filters with the times and the number of entries of all."""
    ranges = [one for one in part if one.time_from <= one.time_to]
    since = min((one.time_from for one in ranges), default=1)
    until = max((one.time_to for one in ranges), default=0)
    late = np.unique(np.concatenate([one.singles for one in part]))
    return part[0]._replace(
        time_from=since,
        time_to=until,
        singles=late[(late < since) | (late > until)],
        opened=min(one.opened for one in part),
        sealed=max(one.sealed for one in part),
        entries=sum(one.entries for one in part),
    )
