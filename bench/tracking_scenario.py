"""The paper's scenario in virtual time: 200 publishers of 25 messages a second each, and what recorders write of it.

Only the publisher's history counts, as in the paper. A *force* is a job that has records: the disk is asked once.
"""

from __future__ import annotations

import zlib
from time import process_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.filters import TABLE_2, Shape
from postroad.messages import Batch
from postroad.tracking import BloomRecorder, FilterSegment, HistorySettings, LogRecorder, LogRecords, SealedRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.tracking import Segment, TrackingRecorder

__all__ = ["Written", "paper_scenario", "recorder_costs"]

PUBLISHERS, PER_PUBLISHER = 200, 25
BROKER, START = 1, 1_700_000_000_000
# A broker reads its sockets some times a millisecond under this load; tens of ids come together.
STEP_MS = 4
EFFECTIVE = {"99.999%": 1e-5, "99%": 1e-2, "95%": 5e-2}
LIMITS = {"10K": 10_000, "135K": 135_000}
# The paper's persistence intervals, in seconds, by row of Table 2; the log has one per memory limit.
INTERVALS = {
    "10K 99.999%": (1,),
    "10K 99%": (1, 2),
    "10K 95%": (1, 2),
    "135K 99.999%": (1, 2, 8),
    "135K 99%": (1, 2, 8, 18),
    "135K 95%": (1, 2, 8, 18, 27),
}
LOG_INTERVALS = {"10K": (1,), "135K": (1, 2)}


class Written(NamedTuple):
    """What one recorder wrote."""

    recorder: str
    row: str
    interval_s: int
    forces_per_s: float
    raw_bytes: float
    compressed_bytes: float
    filling: float


def traffic(seconds: int, seed: int = 1, rate: int = PUBLISHERS * PER_PUBLISHER) -> Iterator[tuple[int, Batch]]:
    """Batches with their times; each publisher's messages are a Poisson process, stamped in ms."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, seconds * 1_000, rate * seconds))
    publishers = random.integers(1, PUBLISHERS + 1, len(times)).astype(np.uint64)
    ids = np.empty((len(times), 2), np.uint64)
    ids[:, 0] = publishers << np.uint64(32) | np.uint64(BROKER)
    ids[:, 1] = (START + times).astype(np.uint64) << np.uint64(16)
    # Same publisher, same ms: the counter tells them apart.
    order = np.lexsort((times, publishers))
    again = np.zeros(len(times), np.uint64)
    same = (np.diff(times[order]) == 0) & (np.diff(publishers[order].astype(np.int64)) == 0)
    again[order[1:][same]] = 1
    ids[:, 1] += again
    blank = Batch.build([("t",)])
    begin = 0
    for now in range(STEP_MS, seconds * 1_000 + 1, STEP_MS):
        end = int(np.searchsorted(times, now))
        if end > begin:
            rows = np.zeros(end - begin, np.int64)
            yield START + now, Batch(blank.buffer, blank.spans[rows], ids[begin:end], blank.envelopes[rows])
        begin = end


def _bytes_of(segment: Segment) -> bytes:
    if isinstance(segment, FilterSegment):
        return segment.data + segment.singles.tobytes()
    if isinstance(segment, LogRecords):
        heads = (segment.publisher << 32 | segment.origin).astype(">u8")
        tails = (segment.time << 16 | segment.counter).astype(">u8")
        return np.stack([heads, tails], axis=1).tobytes()
    return b""


def run(recorder: TrackingRecorder, seconds: int, capacity: int) -> tuple[float, float, float, float]:
    """Forces per second, raw and compressed bytes per message, and how full the stored buffers were."""
    forces = raw = packed = messages = 0
    for now, batch in traffic(seconds):
        for job in recorder.due(now):
            data = [piece for piece in map(_bytes_of, job.make()) if piece]
            recorder.release(job.number)
            forces += bool(data)
            raw += sum(map(len, data))
            packed += sum(len(zlib.compress(piece)) for piece in data)
        recorder.accepted(batch, now)
        messages += len(batch)
    stored = messages - recorder.statistics().open_entries
    return forces / seconds, raw / stored, packed / stored, stored / max(1, forces) / capacity


def _settings(row: str, interval: int, shape: Shape) -> HistorySettings:
    accuracy = EFFECTIVE[row.split()[1]]
    return HistorySettings(
        interval=interval * 1_000, linger=0, shape=shape, capacity=shape.n, effective=accuracy, budget=1 << 30
    )


def paper_scenario(seconds: int = 60) -> list[Written]:
    """Every row and interval of the paper, for the log, fixed Bloom filters, and filters sized at the seal."""
    found = []
    for limit, intervals in LOG_INTERVALS.items():
        for interval in intervals:
            chosen = HistorySettings(interval=interval * 1_000, budget=LIMITS[limit])
            log = LogRecorder(BROKER, chosen, START)
            found.append(Written("log", limit, interval, *run(log, seconds, LIMITS[limit] // 16)))
    for row, shape in TABLE_2.items():
        for interval in INTERVALS[row]:
            for name, kind in (("bloom", BloomRecorder), ("sealed", SealedRecorder)):
                recorder = kind(BROKER, _settings(row, interval, shape), START)
                found.append(Written(name, row, interval, *run(recorder, seconds, shape.n)))
    return found


def recorder_costs(batch: int = 1_000, messages: int = 200_000, rounds: int = 5) -> dict[str, Any]:
    """Processor time per message, accepted and delivered once: what a recorder adds on the loop."""
    blank = Batch.build([("t",)])
    rows = np.arange(batch)
    none = np.zeros(batch, np.int64)
    batches = []
    for number in range(messages // batch):
        ids = np.empty((batch, 2), np.uint64)
        ids[:, 0] = 7 << 32 | BROKER
        ids[:, 1] = ((START + number) << 16) + np.arange(batch)
        batches.append(Batch(blank.buffer, blank.spans[none], ids, blank.envelopes[none]))
    kinds: dict[str, type[LogRecorder] | type[BloomRecorder] | type[SealedRecorder]] = {
        "log": LogRecorder,
        "bloom": BloomRecorder,
        "sealed": SealedRecorder,
    }
    spent: dict[str, list[int]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, kind in kinds.items():
            recorder = kind(BROKER, HistorySettings(), START)
            begun = process_time_ns()
            for number, one in enumerate(batches):
                recorder.accepted(one, START + number)
                recorder.delivered(one, rows, 1, START + number)
            spent[name].append(process_time_ns() - begun)
    return {f"{name}_told_ns": round(min(times) / messages, 1) for name, times in spent.items()}
