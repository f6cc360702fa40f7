"""How much of its limit each broker uses, and when it will reach it, from the timed reads in a trail.

A running broker computes the same for itself (`capacity.monitor`); here it is from sums over ten minutes. The number of
publishers is known where passages are recorded; elsewhere the model assumes one, which favours brokers with many
publishers. The trail has no timings of what neighbours relay, so a broker that mostly relays is judged by its own
clients alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.capacity import ROUND_MS, Forecast, LoadHistory, fit_reads, limit_rate
from postroad.pipeline.counts import BIN_MS
from postroad.tracking import BATCHES_PER_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CAPACITY", "LOADS_KEPT_MS", "OF_LOADS", "BrokerLoad", "loads_of"]

# A running broker looks back as far.
LOADS_KEPT_MS = 14 * 24 * 3_600_000
OF_LOADS = ("timed reads", "timed messages", "timed nanoseconds", "publisher squares", "accepted squares")
# Fewer timed reads say nothing.
_FEWEST_READS = 32

CAPACITY = pa.schema(
    [
        ("broker", pa.int64()),
        ("since", pa.int64()),
        ("messages_per_second", pa.float64()),
        ("sources", pa.float64()),
        ("load", pa.float64()),
    ]
)


class BrokerLoad(NamedTuple):
    """The load of one broker, by ten minutes.

    Attributes:
        broker: whose.
        since: when each ten minutes began, in ms.
        rate: messages per second in them.
        sources: the effective number of publishers, as if all published at the same rate.
        load: shares of the limit.
        forecast: the trend of the load; None while too little is known.
    """

    broker: int
    since: list[int]
    rate: list[float]
    sources: float
    load: list[float]
    forecast: Forecast | None

    def rows(self) -> list[dict[str, Any]]:
        """Return rows for the table `capacity`."""
        columns = zip(self.since, self.rate, self.load, strict=True)
        return [
            {"broker": self.broker, "since": at, "messages_per_second": rate, "sources": self.sources, "load": load}
            for at, rate, load in columns
        ]


def loads_of(counts: Mapping[tuple[str, int, int, int], int], now: int) -> list[BrokerLoad]:
    """Return the loads of all brokers that timed enough reads.

    Args:
        counts: sums over all batches: (about, broker, 0, minute) -> sum.
        now: the time in ms; an unfinished ten minutes is left out.
    """
    by_broker: dict[int, dict[int, dict[str, int]]] = {}
    for (about, broker, _, spot), amount in counts.items():
        since = spot * BIN_MS
        if about in OF_LOADS and now - LOADS_KEPT_MS <= since <= now - ROUND_MS:
            by_broker.setdefault(broker, {}).setdefault(since, {})[about] = amount
    found = (_load(broker, rounds, now) for broker, rounds in sorted(by_broker.items()))
    return [one for one in found if one is not None]


def _load(broker: int, rounds: dict[int, dict[str, int]], now: int) -> BrokerLoad | None:
    times = sorted(since for since, sums in rounds.items() if sums.get("timed nanoseconds", 0) > 0)
    reads, messages, nanoseconds = (
        np.array([rounds[since].get(about, 0) for since in times], np.float64) for about in OF_LOADS[:3]
    )
    if reads.sum() < _FEWEST_READS or not messages.sum():
        return None
    of_publishers, of_all = (sum(sums.get(about, 0) for sums in rounds.values()) for about in OF_LOADS[3:])
    sources = max(1.0, of_all / of_publishers) if of_publishers else 1.0
    costs = fit_reads(reads, messages, nanoseconds / 1e9)
    rate = messages * BATCHES_PER_SAMPLE / (ROUND_MS / 1_000)
    load = rate / limit_rate(costs, sources)
    history = LoadHistory()
    for since, one in zip(times, load, strict=True):
        history.add(since, float(one))
    return BrokerLoad(broker, times, rate.tolist(), sources, load.tolist(), history.forecast(now))
