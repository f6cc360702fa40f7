"""The settings of a recorder of histories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from postroad.errors import PostroadError
from postroad.filters import TABLE_2, Shape, rate_for

__all__ = ["HistorySettings", "TrackingError"]


class TrackingError(PostroadError):
    """Settings of a recorder that cannot be."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Times in ms. Theorem 1 of the paper: where 2 * tolerance <= w * Tn, at most w + 1 filters of a history cover one
    id time; Tn is the least time a filter stays open, by `interval` or by `capacity` at the peak rate. Behind brokers
    whose jitter is `jitter`, 2 * (tolerance + jitter) <= w * Tn is wanted (messages may overtake each other).

    Attributes:
        tolerance: Ts; ids whose time is further from the broker's clock are kept as single times, outside the range.
        jitter: Tj; the delay of messages on their way, and of deliveries in a queue, that still counts as in time.
        interval: a history is sealed when it has been open this long. A crash loses no more than this and `linger`
            together: the paper's Tp.
        hold: the Tn of the brokers that messages come from. Where `interval` is shorter, a filter of fixed shape is
            stored every `interval` but stays open, and what is stored later replaces it (`bloom` alone).
        linger: how long a sealed history may wait for others, so that files do not get small.
        effective: the error rate of a matching set that a filter is sized for (`sealed`).
        matching_set: the filters that are expected to cover one id time.
        capacity: the most keys in one filter (`sealed`); `bloom` takes that of its shape.
        shape: m, k and n of every filter (`bloom`).
        method: what a sealed history becomes: "ribbon", "bloom", or the smaller of the two ("smallest").
        layout: "shared": one history per origin with keys (id, subscription) and (id, neighbour); "paper": a history
            per origin and subscription, and per origin and neighbour, which costs far more where many share the
            traffic.
        relay_keys: "each": a key for each neighbour that a message was relayed to; "sets": one key for all of them
            together. That saves keys where messages fan out, but a question then probes every set of neighbours, and
            errs as much more often.
        budget: bytes that open histories may use; above, the largest are sealed early.
        skew: how far the clocks of brokers may differ: subscriptions and links are looked up this much around a time.
        keep_keys: store the hashes beside a static filter, so that it can be merged later (8 bytes per key).
    """

    tolerance: int = 500
    jitter: int = 500
    interval: int = 60_000
    hold: int = 0
    linger: int = 5_000
    effective: float = 1e-5
    matching_set: int = 2
    capacity: int = 1 << 20
    shape: Shape = TABLE_2["135K 99.999%"]
    method: Literal["ribbon", "bloom", "smallest"] = "smallest"
    layout: Literal["shared", "paper"] = "shared"
    relay_keys: Literal["each", "sets"] = "each"
    budget: int = 64 << 20
    skew: int = 1_000
    keep_keys: bool = False

    def __post_init__(self) -> None:
        times = (self.tolerance, self.jitter, self.hold, self.linger, self.skew)
        if min(times) < 0 or self.interval < 1:
            raise TrackingError(f"times of tracking are 0 ms or more, and the interval 1 ms or more, not {times}")
        if self.capacity < 1 or self.shape.n < 1 or self.budget < 1:
            raise TrackingError("capacity, shape and budget of tracking are 1 or more")
        if not 0 < self.effective < 1 or self.matching_set < 1:
            raise TrackingError(f"the error rate of a matching set is between 0 and 1, not {self.effective}")

    @property
    def rate(self) -> float:
        """The error rate of one filter."""
        return rate_for(self.effective, self.matching_set)
