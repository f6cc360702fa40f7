"""How well filters keep their promised error rate: probes with ids that never existed, and filters per moment.

Any key that was never inserted is as good as any other. So the hashes of made-up ids serve for filters of every kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.filters import FilterError
from postroad.pipeline.probes import FILTER_COLUMNS, loaded
from postroad.tracking import without_superseded
from postroad.trail import TrailDamageError, filter_segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.tracking import FilterSegment

    Ints = NDArray[np.int64]

__all__ = ["ACCURACY_SCHEMA", "PROBES", "accuracy_of", "matching_sizes"]

# Keys to probe each filter with. At one error in 200,000, only many filters together show the rate.
PROBES = 4_096

ACCURACY_SCHEMA = pa.schema(
    [
        ("broker", pa.int64()),
        ("kind", pa.int32()),
        ("method", pa.string()),
        ("filters", pa.int64()),
        ("damaged", pa.int64()),
        ("overfull", pa.int64()),
        ("probes", pa.int64()),
        ("false_hits", pa.int64()),
        ("promised_hits", pa.float64()),  # expected from the bits that are set, or from the columns of a static filter
        ("covered_ms", pa.int64()),
        ("crowded_ms", pa.int64()),  # covered by more than two filters of one history
        ("largest_matching_set", pa.int32()),
        ("shortest_open_ms", pa.int64()),
    ]
)


def accuracy_of(rows: Any, seed: int = 0) -> Any:
    """Return the accuracy figures of the filters of one broker, kind and method (a group of rows of `filters`)."""
    broker, kind, method = (rows.column(name)[0].as_py() for name in ("broker", "kind", "method"))
    segments: list[FilterSegment] = []
    damaged = overfull = false_hits = 0
    promised = 0.0
    for row in rows.select(list(FILTER_COLUMNS)).to_pylist():
        try:
            segment = filter_segment(row)
            made = loaded(segment)
        except (FilterError, TrailDamageError):
            damaged += 1
            continue
        # The keys depend on the filter alone, so each filter gets the same ones in whatever order the filters come.
        random = np.random.default_rng(
            [seed, broker, kind, segment.origin, segment.subject, abs(segment.opened), row["crc"]]
        )
        keys = random.integers(0, 1 << 64, PROBES, dtype=np.uint64)
        false_hits += int(made.contains(keys).sum())
        promised += PROBES * made.rate
        overfull += segment.entries > segment.capacity
        segments.append(segment)
    covered, crowded, largest = matching_sizes(without_superseded(segments))
    opened = min((segment.sealed - segment.opened for segment in segments), default=0)
    values = [
        broker, kind, method, len(segments), damaged, overfull, PROBES * len(segments), false_hits, promised,
        covered, crowded, largest, opened,
    ]  # fmt: skip
    return pa.Table.from_arrays([pa.array([value]) for value in values], names=ACCURACY_SCHEMA.names).cast(
        ACCURACY_SCHEMA
    )


def matching_sizes(segments: Iterable[FilterSegment]) -> tuple[int, int, int]:
    """Return, over all histories: milliseconds covered, those with more than two filters, and the most filters."""
    histories: dict[tuple[int, int, int], list[FilterSegment]] = {}
    for segment in segments:
        histories.setdefault((segment.kind, segment.origin, segment.subject), []).append(segment)
    covered = crowded = largest = 0
    for group in histories.values():
        ranges = [one for one in group if one.time_from <= one.time_to]
        if not ranges:
            continue
        begins = np.array([one.time_from for one in ranges])
        ends = np.array([one.time_to + 1 for one in ranges])
        at = np.concatenate([begins, ends])
        step = np.concatenate([np.ones(len(begins), np.int64), -np.ones(len(ends), np.int64)])
        order = np.argsort(at, kind="stable")
        width: Ints = np.diff(at[order], append=at[order][-1])
        depth = np.cumsum(step[order])
        covered += int(width[depth > 0].sum())
        crowded += int(width[depth > 2].sum())
        largest = max(largest, int(depth[width > 0].max(initial=0)))
    return covered, crowded, largest
