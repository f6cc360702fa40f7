"""Asking filters: which filters of a history cover a time, what they say, and how sure that is.

The *matching set* of an id is the filters of one history whose range or single times contain the id's time. Each of
them errs at the rate of its real filling, so an id that never was there gets a yes with 1 - product(1 - rate): that is
the doubt that goes with every hit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import (
    BloomFilter,
    FilterError,
    RibbonFilter,
    derived_keys,
    derived_pairs,
    derived_sets,
    hash_ids,
)
from postroad.tracking.findings import Drop, Findings, Gap, Hit
from postroad.tracking.history import NUMBERED
from postroad.tracking.segments import HistoryKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from postroad.messages import MessageId
    from postroad.tracking.segments import FilterSegment

    Words = NDArray[np.uint64]
    Longs = NDArray[np.int64]
    Truths = NDArray[np.bool_]

__all__ = [
    "MAX_SET_NEIGHBOURS",
    "FilterEvidence",
    "covers",
    "evidence_of",
    "key_times",
    "probe",
    "without_superseded",
]

_ABOUT_NEIGHBOURS = frozenset({HistoryKind.RELAYED, HistoryKind.ARRIVED_FROM})
# 65,535 sets to probe; a broker with more neighbours, whose keys are of sets, can only say that it does not know.
MAX_SET_NEIGHBOURS = 16


def covers(segment: FilterSegment, times: Longs) -> Truths:
    """Which id times lie in a filter's range, or are among its single times."""
    inside = (times >= segment.time_from) & (times <= segment.time_to)
    if len(segment.singles):
        inside |= np.isin(times, segment.singles)
    return inside


def _loaded(segment: FilterSegment) -> BloomFilter | RibbonFilter:
    if segment.method == "bloom":
        return BloomFilter.from_bytes(segment.data, segment.bits, segment.hashes)
    if segment.method == "ribbon":
        return RibbonFilter.from_bytes(segment.data)
    raise FilterError(f"a filter of method {segment.method!r}: this version reads 'bloom' and 'ribbon'")


def probe(segment: FilterSegment, hashes: Words, times: Longs, number: int = 0) -> Truths:
    """Which ids, given by hash and time, a filter says yes to.

    Args:
        segment: the filter.
        hashes: of the ids, as `hash_ids` gives them.
        times: of the ids, in ms.
        number: the neighbour or subscription asked about, where the filter's keys have one; no matter elsewhere.

    Raises:
        FilterError: its bytes are not a filter of its kind.
    """
    found = covers(segment, times)
    chosen = np.flatnonzero(found)
    if len(chosen):
        keys = hashes[chosen]
        if segment.kind in NUMBERED and segment.subject == 0:
            keys = derived_keys(keys, number)
        found[chosen] = _loaded(segment).contains(keys)
    return found


class FilterEvidence:
    """The answers of one broker's filters about one id, as they come in."""

    def __init__(self, identity: MessageId) -> None:
        self._identity = identity
        # By kind and number: log(1 - doubt), and the window of the filter that said yes, if one did.
        self._sure: dict[tuple[int, int], float] = {}
        self._windows: dict[tuple[int, int], tuple[int, int]] = {}
        self.neighbours: tuple[int, ...] = ()
        self.probes = 0

    def consider(self, kind: int, number: int, rate: float, window: tuple[int, int], found: bool) -> None:
        """A filter of that error rate, which covers the id's time, said yes or no."""
        name = (kind, number)
        self._sure[name] = self._sure.get(name, 0.0) + (math.log1p(-rate) if rate < 1 else -math.inf)
        if found:
            # A filter that covers the time by a single time alone says nothing of a window.
            inside = window[0] <= self._identity.time <= window[1]
            self._windows[name] = window if inside else (self._identity.time, self._identity.time)

    def hits(self, kind: int) -> tuple[Hit, ...]:
        """The yeses of a kind, by number."""
        return tuple(
            Hit(number, -math.expm1(self._sure[kind, number]), *window)
            for (of, number), window in sorted(self._windows.items())
            if of == kind
        )

    def _hit(self, kind: int) -> Hit | None:
        return next(iter(self.hits(kind)), None)

    def findings(
        self, broker: int, dropped: tuple[Drop, ...] = (), gaps: tuple[Gap, ...] = (), retained_since: int = 0
    ) -> Findings:
        """All of it, as the findings of a broker."""
        return Findings(
            broker=broker,
            accepted=self._hit(HistoryKind.ACCEPTED),
            arrived=self._hit(HistoryKind.ARRIVED),
            arrived_from=self.hits(HistoryKind.ARRIVED_FROM),
            relayed_to=self.hits(HistoryKind.RELAYED),
            delivered=self.hits(HistoryKind.DELIVERED),
            acknowledged=self.hits(HistoryKind.ACKNOWLEDGED),
            refused=self.hits(HistoryKind.REFUSED),
            queued=self.hits(HistoryKind.QUEUED),
            dropped=dropped,
            gaps=gaps,
            retained_since=retained_since,
            neighbours=self.neighbours,
            probes=self.probes,
        )


def evidence_of(
    segments: Iterable[FilterSegment],
    identity: MessageId,
    neighbours: Sequence[int] = (),
    subscriptions: Sequence[int] = (),
) -> FilterEvidence:
    """Ask all filters of one broker that may know about an id.

    Args:
        segments: filters of the broker; those of other origins and times are passed over.
        identity: the id.
        neighbours: the links the broker had around the id's time, or while a filter was open (`key_times`): those
            asked about.
        subscriptions: the subscriptions that existed then.

    Raises:
        FilterError: the bytes of a filter are not a filter of its kind.
    """
    word = int(hash_ids(np.array([[identity.head, identity.tail]], np.uint64))[0])
    time = np.array([identity.time])
    near, at_home = np.array(neighbours, np.uint64), np.array(subscriptions, np.uint64)
    evidence = FilterEvidence(identity)
    evidence.neighbours = tuple(neighbours)
    plain = np.array([word], np.uint64)
    pairs = {True: derived_pairs(word, near), False: derived_pairs(word, at_home)}
    covering = [one for one in segments if one.origin == identity.broker and covers(one, time)[0]]
    for segment in without_superseded(covering):
        numbers, keys = np.array([segment.subject]), plain
        if segment.kind in NUMBERED and segment.subject == 0:
            about_links = segment.kind in _ABOUT_NEIGHBOURS
            numbers, keys = (near if about_links else at_home).astype(np.int64), pairs[about_links]
        made = _loaded(segment)
        rate = made.rate
        if segment.kind == HistoryKind.RELAYED_SET:
            _ask_sets(evidence, segment, made, word, near)
            continue
        for number, found in zip(numbers.tolist(), made.contains(keys).tolist(), strict=True):
            evidence.consider(segment.kind, number, rate, (segment.time_from, segment.time_to), found)
        evidence.probes += len(keys)
    return evidence


def key_times(segments: Iterable[FilterSegment], since: int, until: int) -> tuple[int, int]:
    """When keys of an id came into filters that cover its time, or may have been looked for: from, to.

    A filter has ids that are older than itself: a message may be relayed or delivered long after its id's time. Whoever
    came in the meantime can only be found if it is asked about.

    Args:
        segments: the filters.
        since: the window of the id's own time,
        until: to here.
    """
    for segment in segments:
        since, until = min(since, segment.opened), max(until, segment.sealed)
    return since, until


def _ask_sets(
    evidence: FilterEvidence, segment: FilterSegment, made: BloomFilter | RibbonFilter, word: int, neighbours: Words
) -> None:
    """Probe every set of neighbours. A neighbour is falsely found where any of the sets with it is."""
    window, count = (segment.time_from, segment.time_to), len(neighbours)
    if count > MAX_SET_NEIGHBOURS:
        for number in neighbours.tolist():
            evidence.consider(HistoryKind.RELAYED, number, 1.0, window, True)
        return
    found = made.contains(derived_sets(word, neighbours))
    found[0] = False
    sets = np.flatnonzero(found)
    rate = -math.expm1(2.0 ** (count - 1) * math.log1p(-made.rate)) if made.rate < 1 else 1.0
    for place, number in enumerate(neighbours.tolist()):
        evidence.consider(HistoryKind.RELAYED, number, rate, window, bool((sets >> place & 1).any()))
    evidence.probes += len(found) - 1


def without_superseded(segments: Iterable[FilterSegment]) -> list[FilterSegment]:
    """Leave out Bloom filters that were stored while still open, where a later state of the same is there.

    A filter is an earlier state of another when both belong to one history, were opened at one time, have one shape,
    and every time and every bit of the one is in the other: leaving it out can then lose no answer.
    """
    kept: list[FilterSegment] = []
    states: dict[tuple[int, ...], list[FilterSegment]] = {}
    for segment in segments:
        if segment.method == "bloom":
            name = (segment.kind, segment.origin, segment.subject, segment.opened, segment.bits, segment.hashes)
            states.setdefault(name, []).append(segment)
        else:
            kept.append(segment)
    for group in states.values():
        latest_first = sorted(group, key=lambda segment: (-segment.sealed, -segment.entries))
        chosen: list[FilterSegment] = []
        for segment in latest_first:
            if not any(_is_state_of(segment, other) for other in chosen):
                chosen.append(segment)
        kept.extend(chosen)
    return kept


def _is_state_of(earlier: FilterSegment, later: FilterSegment) -> bool:
    inside = earlier.time_from >= later.time_from and earlier.time_to <= later.time_to
    if not (inside or earlier.time_from > earlier.time_to) or not covers(later, earlier.singles).all():
        return False
    if len(earlier.data) != len(later.data):
        return False
    one, two = np.frombuffer(earlier.data, np.uint8), np.frombuffer(later.data, np.uint8)
    return not (one & ~two).any()
