"""The paper's scenario in virtual time: 200 publishers of 25 messages a second each, and what recorders write of it.

Only the publisher's history counts, as in the paper. A *force* is a job that has records: one request to the disk.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyarrow import parquet

from postroad.filters import TABLE_2, Shape
from postroad.lab.papers.table_2 import EFFECTIVE, INTERVALS, LIMITS, LOG_INTERVALS
from postroad.lab.papers.tracked_strategies import strategies
from postroad.messages import Batch
from postroad.messages.id_columns import TIME_SHIFT, id_words
from postroad.tracking import (
    BloomRecorder,
    ExactRecorder,
    FilterSegment,
    HistorySettings,
    LogRecorder,
    LogRecords,
    Passages,
    SealedRecorder,
)
from postroad.trail import tabulate
from postroad.trail.files import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from postroad.lab.papers.tracked_strategies import KeptBuffers
    from postroad.tracking import Segment, TrackingRecorder

__all__ = ["StoredHistory", "paper_scenario", "paper_strategies"]

PUBLISHERS, PER_PUBLISHER = 200, 25
BROKER, START = 1, 1_700_000_000_000
# Under this load a broker reads its sockets a few times a millisecond; tens of ids come together.
STEP_MS = 4


class StoredHistory(NamedTuple):
    """What one recorder wrote."""

    recorder: str
    row: str
    interval_s: int
    forces_per_s: float
    raw_bytes: float
    compressed_bytes: float
    filling: float


def traffic(seconds: int, seed: int = 1, rate: int = PUBLISHERS * PER_PUBLISHER) -> Iterator[tuple[int, Batch]]:
    """Yield batches with their times; each publisher's messages are a Poisson process, stamped in ms."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, seconds * 1_000, rate * seconds))
    publishers = random.integers(1, PUBLISHERS + 1, len(times))
    # Same publisher, same ms: the counter distinguishes them.
    order = np.lexsort((times, publishers))
    again = np.zeros(len(times), np.int32)
    same = (np.diff(times[order]) == 0) & (np.diff(publishers[order]) == 0)
    again[order[1:][same]] = 1
    ids = id_words(np.full(len(times), BROKER, np.int64), START + times, publishers, again)
    blank = Batch.build([("t",)])
    begin = 0
    for now in range(STEP_MS, seconds * 1_000 + 1, STEP_MS):
        end = int(np.searchsorted(times, now))
        if end > begin:
            rows = np.zeros(end - begin, np.int64)
            yield START + now, Batch(blank.buffer, blank.spans[rows], ids[begin:end], blank.envelopes[rows])
        begin = end


class StoredSize(NamedTuple):
    """Bytes, plain and compressed."""

    raw: int
    compressed: int


def _size_of(segment: Segment) -> StoredSize | None:
    """Return what a segment takes on disk; None if it is not about messages."""
    if isinstance(segment, FilterSegment):
        return _packed(segment.data + segment.singles.tobytes())
    if isinstance(segment, LogRecords):
        ids = id_words(segment.origin, segment.time, segment.publisher, segment.counter)
        return _packed(ids.astype(">u8").tobytes())
    if isinstance(segment, Passages):
        return _size_of_passages(segment)
    return None


def _packed(data: bytes) -> StoredSize:
    return StoredSize(len(data), len(zlib.compress(data)))


def _size_of_passages(segment: Passages) -> StoredSize:
    """Return the columns of its file, encoded and compressed; without the footer, which the others lack too."""
    footer = parquet.read_metadata(io.BytesIO(render("passages", BROKER, tabulate([segment])["passages"])))
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return StoredSize(
        sum(column.total_uncompressed_size for column in columns),
        sum(column.total_compressed_size for column in columns),
    )


def run(
    recorder: TrackingRecorder, arrivals: Sequence[tuple[int, Batch]], capacity: int
) -> tuple[float, float, float, float]:
    """Return forces per second, raw and compressed bytes per message, and how full the stored buffers were."""
    forces = raw = packed = messages = 0
    for now, batch in arrivals:
        for job in recorder.due(now):
            sizes = [size for size in map(_size_of, job.make()) if size is not None]
            recorder.release(job.number)
            forces += bool(sizes)
            raw += sum(size.raw for size in sizes)
            packed += sum(size.compressed for size in sizes)
        recorder.accepted(batch, now)
        messages += len(batch)
    stored = messages - recorder.statistics().open_entries
    seconds = (arrivals[-1][0] - START) / 1_000
    return forces / seconds, raw / stored, packed / stored, stored / max(1, forces) / capacity


def _settings(row: str, interval: int, shape: Shape) -> HistorySettings:
    accuracy = EFFECTIVE[row.split()[1]]
    return HistorySettings(
        interval=interval * 1_000, linger=0, shape=shape, capacity=shape.n, effective=accuracy, budget=1 << 30
    )


def paper_scenario(seconds: int = 60) -> list[StoredHistory]:
    """Return every row and interval of the paper, for the log, fixed Bloom filters, and filters sized at the seal.

    The exact record has the rows of the log, and its capacity counts as that of the log. It cannot use the smaller
    limit: its book reserves 16 KiB before the first message.
    """
    found = []
    arrivals = list(traffic(seconds))
    for limit, intervals in LOG_INTERVALS.items():
        for interval in intervals:
            capacity = LIMITS[limit] // 16
            chosen = HistorySettings(interval=interval * 1_000, budget=LIMITS[limit])
            log = LogRecorder(BROKER, chosen, START)
            found.append(StoredHistory("log", limit, interval, *run(log, arrivals, capacity)))
            if limit != "10K":
                exact = ExactRecorder(BROKER, START, interval * 1_000, LIMITS[limit])
                found.append(StoredHistory("exact", limit, interval, *run(exact, arrivals, capacity)))
    for row, shape in TABLE_2.items():
        for interval in INTERVALS[row]:
            for name, kind in (("bloom", BloomRecorder), ("sealed", SealedRecorder)):
                recorder = kind(BROKER, _settings(row, interval, shape), START)
                found.append(StoredHistory(name, row, interval, *run(recorder, arrivals, shape.n)))
    return found


def paper_strategies(seconds: int = 60) -> list[KeptBuffers]:
    """Return what the paper's own strategies store of the same traffic; 30 s or more, for its longest interval."""
    ids = np.concatenate([batch.ids for _, batch in traffic(seconds)])
    order = np.argsort(ids[:, 1], kind="stable")
    texts = ids[order].astype(">u8").view(np.uint8)
    return strategies(texts, (ids[order, 1] >> TIME_SHIFT).astype(np.int64) - START)
