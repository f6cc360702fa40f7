"""The counts of a broker as Prometheus reads them. Imported only when `prometheus-client` is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from postroad.server.counts import LinkStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.server.capacity_watch import CapacityStatus
    from postroad.server.status import Status

__all__ = ["metrics_text"]

# Fields of `CapacityStatus`, what follows their names here, and what they are.
_CAPACITY = (
    ("utilisation", "_ratio", "share used of what batches of any size could carry"),
    ("load", "_ratio", "messages per second as a share of the limit"),
    ("predicted_p99_wait_seconds", "", "what 99 % of messages wait at most, by the model"),
    ("measured_p99_wait_seconds", "", "what 99 % of probes waited at most"),
    ("limit_seconds", "", "time until the limit is reached at the growth of the last fortnight"),
)


class _Counts:
    """One scrape: the fields of the statistics, under their own names."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        broker = str(self._status.broker)
        for statistics in (self._status.statistics, self._status.server):
            for name, value in msgspec.structs.asdict(statistics).items():
                yield _metric(name, broker, float(value))
        for name, value in (self._status.tracking or {}).items():
            if not isinstance(value, str):
                yield _metric(f"tracking_{name}", broker, float(value))
        for name, value in (self._status.store or {}).items():
            if not isinstance(value, str):
                yield _metric(f"store_{name}", broker, float(value))
        yield from _capacity(self._status.capacity, broker)
        network = self._status.network
        if network is None:
            return
        for name, value in network.relay.items():
            yield _metric(f"relay_{name}", broker, float(value))
        links = [(str(each.neighbour), msgspec.structs.asdict(each)) for each in network.neighbours]
        for name in LinkStatistics.__struct_fields__[1:]:
            yield _metric(f"link_{name}", broker, *((number, float(counts[name])) for number, counts in links))


def _capacity(capacity: CapacityStatus, broker: str) -> Iterator[Metric]:
    """What is known of the capacity, as gauges; what is not known has none."""
    for name, ending, words in _CAPACITY:
        value = getattr(capacity, name)
        if value is not None:
            metric = GaugeMetricFamily(f"postroad_capacity_{name}{ending}", words, labels=["broker"])
            metric.add_metric([broker], value)
            yield metric


def _metric(name: str, broker: str, *values: float | tuple[str, float]) -> Metric:
    """One metric; with a value for each neighbour, or one alone."""
    words = name.replace("_", " ")
    labels = ["broker"] if values and isinstance(values[0], float) else ["broker", "neighbour"]
    metric: CounterMetricFamily | GaugeMetricFamily
    if name.endswith("_now"):
        metric = GaugeMetricFamily(f"postroad_{name.removesuffix('_now')}", words, labels=labels)
    else:
        # The library adds `_total`.
        metric = CounterMetricFamily(f"postroad_{name}", f"{words} since the start", labels=labels)
    for value in values:
        if isinstance(value, float):
            metric.add_metric([broker], value)
        else:
            metric.add_metric([broker, value[0]], value[1])
    return metric


def metrics_text(status: Status) -> bytes:
    """All metrics in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(status))
    return generate_latest(registry)
