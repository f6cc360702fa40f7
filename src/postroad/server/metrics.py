"""The counts of a broker as Prometheus reads them. Imported only when `prometheus-client` is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.server.status import Status

__all__ = ["metrics_text"]


class _Counts:
    """One scrape: the fields of the statistics, under their own names."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        broker = str(self._status.broker)
        for statistics in (self._status.statistics, self._status.server):
            for name, value in msgspec.structs.asdict(statistics).items():
                yield _metric(name, float(value), broker)
        for name, value in (self._status.tracking or {}).items():
            if not isinstance(value, str):
                yield _metric(f"tracking_{name}", float(value), broker)


def _metric(name: str, value: float, broker: str) -> Metric:
    words = name.replace("_", " ")
    metric: CounterMetricFamily | GaugeMetricFamily
    if name.endswith("_now"):
        metric = GaugeMetricFamily(f"postroad_{name.removesuffix('_now')}", words, labels=["broker"])
    else:
        # The library adds `_total`.
        metric = CounterMetricFamily(f"postroad_{name}", f"{words} since the start", labels=["broker"])
    metric.add_metric([broker], value)
    return metric


def metrics_text(status: Status) -> bytes:
    """All metrics in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(status))
    return generate_latest(registry)
