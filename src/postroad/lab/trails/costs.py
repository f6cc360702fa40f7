"""Batch costs and latencies of a generated trail, drawn from known models so that fits can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.tracking import Latencies, Timings, bucket_limits

if TYPE_CHECKING:
    from postroad.lab.trails.scale import Scale

__all__ = [
    "COPY_NS",
    "LATENCY_MEDIAN_MS",
    "LATENCY_SIGMA",
    "MESSAGE_BYTES",
    "MESSAGE_NS",
    "SUBSCRIPTION_NS",
    "latencies",
    "timings",
]

# What a message costs in the generated timings: to receive, per resident subscription, and per copy sent.
MESSAGE_NS = 800.0
SUBSCRIPTION_NS = 2.5
COPY_NS = 350.0
MESSAGE_BYTES = 300
_NOISE = 0.05
_BATCHES = 20

# Latencies are log-normal: the median, and sigma of the logarithm.
LATENCY_MEDIAN_MS = 12.0
LATENCY_SIGMA = 0.8
_DELIVERIES = 2_000


def timings(scale: Scale, broker: int, part: int) -> Timings:
    """Sampled batches of one broker and slice."""
    random = np.random.default_rng([scale.seed, 4, broker, part])
    since, until = scale.span(part)
    messages = random.integers(1, 2_000, _BATCHES)
    subscriptions = random.integers(1, 1_000, _BATCHES)
    copies = messages * random.integers(0, 10, _BATCHES)
    each = MESSAGE_NS * messages + SUBSCRIPTION_NS * messages * subscriptions + COPY_NS * copies
    spent = each * (1 + _NOISE * random.standard_normal(_BATCHES))
    return Timings(
        np.sort(random.integers(since, until, _BATCHES)),
        messages.astype(np.int32),
        subscriptions.astype(np.int32),
        copies.astype(np.int32),
        np.minimum(copies, 10).astype(np.int32),
        MESSAGE_BYTES * messages,
        np.maximum(1, spent).astype(np.int64),
    )


def latencies(scale: Scale, broker: int, part: int) -> Latencies:
    """The latency sketch of one broker and slice."""
    random = np.random.default_rng([scale.seed, 5, broker, part])
    since, until = scale.span(part)
    waits = np.rint(LATENCY_MEDIAN_MS * np.exp(LATENCY_SIGMA * random.standard_normal(_DELIVERIES)))
    limits = bucket_limits()
    counts = np.bincount(np.searchsorted(limits, waits), minlength=len(limits))
    buckets = np.flatnonzero(counts)
    return Latencies(
        np.full(len(buckets), since),
        np.full(len(buckets), until),
        buckets.astype(np.int32),
        counts[buckets],
    )
