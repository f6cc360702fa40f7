"""Merges filters of one history: fewer to probe, and full ones instead of partly full ones.

Bloom filters of equal shape are joined bit by bit as long as their keys fit into one. The joined filter says yes
wherever a part did, and errs no more often than a full filter was planned to. Static filters cannot be joined; if their
keys were kept, one is built again. Every merge is checked for losses: all bits, or all keys.

The paper names this as future work. Its condition for Bloom filters is here the key of a group, and `_fitting`: equal
m, k and n, and the sum of the entries within n. A joined range reaches from the first begin to the last end, so it may
cover times at which no part was open; only neighbours in time are joined, which keeps these gaps as small as they were
between the parts. A question at such a time asks one filter more, and gets no other answer than "no", up to the rate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import PostroadError
from postroad.filters import BloomFilter, RibbonFilter
from postroad.tracking.filter_probe import without_superseded
from postroad.tracking.settings import HistorySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from postroad.tracking.segments import FilterSegment

__all__ = ["LossyMergeError", "merge_filters"]


class LossyMergeError(PostroadError):
    """A merged filter does not say yes to all that its parts did. Nothing may be replaced by it."""


def merge_filters(segments: Iterable[FilterSegment]) -> list[FilterSegment]:
    """Return the same histories in fewer filters; what cannot be merged is returned as it is.

    Raises:
        FilterError: the bytes of a filter are not a filter of its kind.
        LossyMergeError: a merge lost something.
    """
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
            raise LossyMergeError("a merged filter lost bits of its parts; nothing was committed")
    return _covering(part)._replace(data=bytes(whole), ones=whole.ones, capacity=part[0].capacity)


def _rebuilt(part: Sequence[FilterSegment]) -> FilterSegment:
    if len(part) == 1:
        return part[0]
    keys = np.unique(np.concatenate([one.keys for one in part if one.keys is not None]))
    # The strictest error rate of the parts: the matching set only shrinks, and the promise of each part holds.
    rate = min(RibbonFilter.from_bytes(one.data).rate for one in part)
    whole = RibbonFilter.build(keys, rate)
    if not whole.contains(keys).all():
        raise LossyMergeError("a filter that was built anew lost keys; nothing was committed")
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
