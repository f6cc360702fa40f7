"""What the exact record costs on disk: bits per elementary record of twenty brokers, footers included; and to make.

The traffic is that of `postroad lab trail`: an hour of ten million messages, or a part of that hour at the same rate.
An elementary record is a message published, routed, or delivered.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from postroad.lab.trails import Scale, TrailTraffic
from postroad.messages import Batch
from postroad.tracking import ExactRecorder, Passages
from postroad.trail import tabulate
from postroad.trail.files import render

__all__ = ["exact_size", "recorder_cost"]

MESSAGES_PER_SECOND = 10_000_000 / 3_600
NOW = 1_767_225_600_000


def exact_size(messages: int = 1_000_000, seed: int = 1, seal_seconds: int = 60) -> dict[str, Any]:
    """Bytes of `passages` files as brokers write them, one for each broker and seal."""
    seconds = max(seal_seconds, round(messages / MESSAGES_PER_SECOND))
    traffic = TrailTraffic(Scale(messages=messages, seed=seed, seconds=seconds, seal_seconds=seal_seconds))
    total = rows = deliveries = files = 0
    for part in range(traffic.scale.slices):
        piece = traffic.slice(part)
        for broker in traffic.terrain.graph.brokers:
            passages = traffic.passages(piece, broker)
            rows += len(passages.time)
            deliveries += len(passages.delivered.numbers)
            files += 1
            total += len(render("passages", broker, tabulate([passages])["passages"]))
    # A row at the origin is a publish, a row elsewhere a route.
    records = rows + deliveries
    return {
        "messages": messages,
        "rows_per_file": round(rows / files),
        "elementary_records_per_message": round(records / messages, 2),
        "exact_bytes_per_message": round(total / messages, 2),
        "exact_bits": round(8 * total / records, 2),
    }


def recorder_cost(messages: int = 500_000, batch: int = 100, publishers: int = 200) -> dict[str, Any]:
    """Processor time per message: told on the loop, sealed and rendered off it. A batch goes to one and a half."""
    recorder = ExactRecorder(4, NOW, budget_bytes=1 << 40)
    random = np.random.default_rng(1)
    blank = Batch.build([("t",)] * batch)
    batches = []
    for number, publisher in enumerate(random.integers(1, publishers + 1, messages // batch).tolist()):
        ids = np.empty((batch, 2), np.uint64)
        ids[:, 0] = publisher << 32 | 4
        ids[:, 1] = (NOW + number // 20 << 16) + number % 20 * batch + np.arange(batch)
        batches.append(Batch(blank.buffer, blank.spans, ids, blank.envelopes))
    everyone, some = np.arange(batch, dtype=np.int32), np.arange(0, batch, 2, dtype=np.int32)
    marks = [time.process_time()]
    for one in batches:
        recorder.accepted(one, NOW)
        recorder.delivered(one, everyone, 1, NOW)
        recorder.delivered(one, some, 2, NOW)
    marks.append(time.process_time())
    (job,) = recorder.due(NOW, force=True)
    segments = job.make()
    marks.append(time.process_time())
    rendered = render("passages", 4, tabulate(one for one in segments if isinstance(one, Passages))["passages"])
    marks.append(time.process_time())
    told, sealed, written = (round(cost / messages * 1e9, 1) for cost in np.diff(marks).tolist())
    return {
        "exact_told_ns": told,
        "exact_sealed_ns": sealed,
        "exact_rendered_ns": written,
        "exact_rendered_bytes": round(len(rendered) / messages, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seal-seconds", type=int, default=60)
    chosen = parser.parse_args()
    print(json.dumps(exact_size(chosen.messages, seal_seconds=chosen.seal_seconds) | recorder_cost()))


if __name__ == "__main__":
    main()
