"""Filling an index, and what that costs: time to add and remove, memory that stays resident."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil  # type: ignore[import-untyped]

from bench.stopwatch import clock
from postroad.matching import SubscriptionIndex
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from postroad.lab.workloads import SubscriptionSpec, Workload

__all__ = ["Churn", "Keys", "Load", "churn", "load", "removal_rate", "resident_bytes"]

# Parsed so many at a time, then added, then dropped: parsed selectors must not stand in the index's memory.
_BLOCK = 8192

Parsed = tuple[Selector | None, TopicPattern | None]


@dataclass(frozen=True)
class Load:
    """An index, the rest of the stream it was filled from, and what filling it cost."""

    index: SubscriptionIndex
    stream: Iterator[SubscriptionSpec]
    parsed_per_s: float
    added_per_s: float
    resident: float  # bytes per subscription that the process grew by since the load began
    at_most: float  # the same since the run began: what earlier loads left behind may have been used again
    own: float  # bytes per subscription by the index's statistics


class Churn(NamedTuple):
    """Adds and removes per second, with subscriptions parsed before and parsed inside the clock."""

    parsed: float
    with_parsing: float


def resident_bytes() -> int:
    """The memory of this process, after everything that can be given back was."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(psutil.Process().memory_info().rss)


def load(workload: Workload, ground: int, tell: Callable[[int], None]) -> Load:
    """Fill an index with what the workload asks for; keys are integers.

    `ground` is the memory of this process at the start of the run; `tell` hears how many are in.
    """
    before = resident_bytes()
    stream = workload.subscriptions()
    index = SubscriptionIndex()
    parsing = adding = 0.0
    for first in range(0, workload.size, _BLOCK):
        block = list(islice(stream, min(_BLOCK, workload.size - first)))
        start = clock()
        subscriptions = [parsed(subscription) for subscription in block]
        middle = clock()
        for key, (selector, topic) in enumerate(subscriptions, first):
            index.add(key, selector, topic)
        parsing += middle - start
        adding += clock() - middle
        tell(len(index))
    del block, subscriptions, selector, topic
    after = resident_bytes()
    return Load(
        index,
        stream,
        parsed_per_s=workload.size / parsing,
        added_per_s=workload.size / adding,
        resident=(after - before) / workload.size,
        at_most=(after - min(ground, before)) / workload.size,
        own=index.statistics().bytes / workload.size,
    )


def parsed(subscription: SubscriptionSpec) -> Parsed:
    selector, topic = subscription
    return (
        None if selector is None else Selector.parse(selector),
        None if topic is None else TopicPattern.parse(topic),
    )


class Keys:
    """Which integer keys are in an index that was filled with 0, 1, 2, ..., and the next new one."""

    def __init__(self, count: int) -> None:
        self.resident = list(range(count))
        self.following = count
        self.random = np.random.default_rng(7)

    def drawn(self, count: int) -> list[int]:
        """So many different resident keys, in random order."""
        places = self.random.permutation(len(self.resident))[:count]
        return [self.resident[place] for place in places.tolist()]


def churn(loaded: Load, keys: Keys, pairs: int, rounds: int) -> Churn:
    """Add one and remove another, `pairs` times a round, what goes drawn at random; the best round counts."""
    rates = [_churn_round(loaded, keys, pairs, parse_before) for _ in range(rounds) for parse_before in (True, False)]
    return Churn(max(rates[0::2]), max(rates[1::2]))


def _churn_round(loaded: Load, keys: Keys, pairs: int, parse_before: bool) -> float:
    index = loaded.index
    fresh: Iterable[Parsed] = map(parsed, list(islice(loaded.stream, pairs)))
    if parse_before:
        fresh = list(fresh)
    places = keys.random.integers(0, len(keys.resident), pairs).tolist()
    start = clock()
    for place, (selector, topic) in zip(places, fresh, strict=True):
        index.add(keys.following, selector, topic)
        index.remove(keys.resident[place])
        keys.resident[place] = keys.following
        keys.following += 1
    return 2 * pairs / (clock() - start)


def removal_rate(index: SubscriptionIndex, keys: list[int]) -> float:
    """Removes per second of the given keys."""
    start = clock()
    for key in keys:
        index.remove(key)
    return len(keys) / (clock() - start)
