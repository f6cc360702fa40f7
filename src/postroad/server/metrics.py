"""The counts of a broker as Prometheus reads them. Imported only when `prometheus-client` is there.

Names keep to Prometheus's conventions: `postroad_` before them, base units (`_seconds`, `_bytes`), `_total` at the end
of counters, and the figures of the process under the names that all exporters give them (`process_…`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from postroad.server.counts import LinkStatistics
from postroad.server.metric_help import CAPACITY, help_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.server.capacity_watch import CapacityStatus
    from postroad.server.observation import LatencyHistogram, Observation
    from postroad.server.status import Status

__all__ = ["metrics_text"]


class _Counts:
    """One scrape: the fields of the statistics, under their own names."""

    def __init__(self, status: Status, observation: Observation | None) -> None:
        self._status = status
        self._observation = observation

    def collect(self) -> Iterator[Metric]:
        broker = str(self._status.broker)
        yield _build(self._status.version, broker)
        yield _gauge("ready", broker, float(self._status.ready))
        for statistics in (self._status.statistics, self._status.server):
            for name, value in msgspec.structs.asdict(statistics).items():
                yield _metric(name, broker, float(value))
        for part, found in (("tracking", self._status.tracking), ("store", self._status.store)):
            for name, text_or_count in (found or {}).items():
                if not isinstance(text_or_count, str):
                    yield _metric(f"{part}_{name}", broker, float(text_or_count))
        for part, found in (("tracking", self._status.tracking), ("store", self._status.store)):
            if found is not None:
                yield _gauge(f"{part}_trouble", broker, float(bool(found["trouble"])))
        yield from _capacity(self._status.capacity, broker)
        if self._observation is not None:
            yield _latencies(self._observation.histogram(), broker)
        network = self._status.network
        if network is None:
            return
        for name, count in network.relay.items():
            yield _metric(f"relay_{name}", broker, float(count))
        if "reached" in network.routing:
            yield _gauge("brokers_reached", broker, float(network.routing["reached"]))
        links = [(str(each.neighbour), msgspec.structs.asdict(each)) for each in network.neighbours]
        for name in LinkStatistics.__struct_fields__[1:]:
            yield _metric(f"link_{name}", broker, *((number, float(counts[name])) for number, counts in links))


def _build(version: str, broker: str) -> Metric:
    metric = GaugeMetricFamily("postroad_build_info", help_text("build_info"), labels=["broker", "version"])
    metric.add_metric([broker, version], 1.0)
    return metric


def _gauge(name: str, broker: str, value: float) -> Metric:
    metric = GaugeMetricFamily(f"postroad_{name}", help_text(name), labels=["broker"])
    metric.add_metric([broker], value)
    return metric


def _capacity(capacity: CapacityStatus, broker: str) -> Iterator[Metric]:
    """What is known about the capacity, as gauges; what is not known yet has no value."""
    for name, ending, words in CAPACITY:
        value = getattr(capacity, name)
        metric = GaugeMetricFamily(f"postroad_capacity_{name}{ending}", words, labels=["broker"])
        if value is not None:
            metric.add_metric([broker], value)
        yield metric


def _latencies(histogram: LatencyHistogram, broker: str) -> Metric:
    name = "delivery_latency_seconds"
    metric = HistogramMetricFamily(f"postroad_{name}", help_text(name), labels=["broker"])
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, (float(count) for count in itertools.accumulate(histogram.counts)), strict=True))
    metric.add_metric([broker], buckets, histogram.sum_seconds)
    return metric


def _metric(name: str, broker: str, *values: float | tuple[str, float]) -> Metric:
    """One metric; with a value for each neighbour, or one alone."""
    labels = ["broker"] if values and isinstance(values[0], float) else ["broker", "neighbour"]
    metric: CounterMetricFamily | GaugeMetricFamily
    if name.endswith("_now"):
        metric = GaugeMetricFamily(f"postroad_{name.removesuffix('_now')}", help_text(name), labels=labels)
    else:
        # The library adds `_total`.
        metric = CounterMetricFamily(f"postroad_{name}", help_text(name), labels=labels)
    for value in values:
        if isinstance(value, float):
            metric.add_metric([broker], value)
        else:
            metric.add_metric([broker, value[0]], value[1])
    return metric


def metrics_text(status: Status, observation: Observation | None = None) -> bytes:
    """All metrics in Prometheus's text format.

    Args:
        status: the state of the broker.
        observation: has the latencies of deliveries; None if nobody counts them.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(status, observation))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
