"""The paper's scenario of tracking: traffic of the right rate, and forces as often as buffers fill."""

from __future__ import annotations

import numpy as np

from postroad.filters import TABLE_2
from postroad.lab.papers.tracked_storage import BROKER, START, run, traffic
from postroad.tracking import BloomRecorder, HistorySettings, LogRecorder

SECONDS = 4


def test_traffic_has_distinct_ids_at_the_rate_of_the_paper() -> None:
    ids = np.concatenate([batch.ids for _, batch in traffic(SECONDS)])
    assert len(ids) == 5_000 * SECONDS
    assert len(np.unique(ids, axis=0)) > 0.999 * len(ids)


def test_log_forces_the_disk_four_times_as_often_as_a_filter_of_the_same_memory() -> None:
    log = LogRecorder(BROKER, HistorySettings(interval=1_000, budget=10_000), START)
    shape = TABLE_2["10K 99.999%"]
    bloom = BloomRecorder(BROKER, HistorySettings(interval=1_000, linger=0, shape=shape), START)
    arrivals = list(traffic(SECONDS))
    log_forces, log_bytes, _, _ = run(log, arrivals, 625)
    bloom_forces, bloom_bytes, _, _ = run(bloom, arrivals, shape.n)
    assert 7 < log_forces <= 8
    assert 1.5 <= bloom_forces <= 2
    assert log_bytes == 16
    assert 3.2 < bloom_bytes < 3.4
