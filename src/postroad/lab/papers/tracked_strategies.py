"""The paper's own strategies, ASYNC and BF, recomputed: what they would have stored of the scenario's traffic.

The text gives no numbers for the bars of its Figures 4 and 5. They follow from what it does give: ids of 16 bytes,
buffers of 10,000 and 135,000 bytes, the filters of Table 2 with positions cut from MD5, and gzip for each buffer. This
module builds them as described, independently of all other code of Postroad, over the publisher history.
"""

from __future__ import annotations

import gzip
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.filters import TABLE_2
from postroad.lab.papers.table_2 import INTERVALS, LIMITS, LOG_INTERVALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from postroad.filters import Shape

__all__ = ["KeptBuffers", "positions", "strategies"]

DIGEST_BITS = 128
ID_BYTES = 16
# gzip's own default.
GZIP_LEVEL = 6


class KeptBuffers(NamedTuple):
    """What a strategy stored; bytes are per message."""

    strategy: str
    row: str
    interval_s: int
    forces_per_s: float
    raw_bytes: float
    compressed_bytes: float
    filling: float


def strategies(ids: NDArray[np.uint8], times: NDArray[np.int64]) -> list[KeptBuffers]:
    """Return all rows of Table 2 for which the traffic fills a buffer, or outlasts its interval.

    Args:
        ids: 16 bytes each, in order of time.
        times: of each, in ms from the beginning.
    """

    def plain(first: int, last: int) -> bytes:
        return ids[first:last].tobytes()

    found = []
    for limit, intervals in LOG_INTERVALS.items():
        capacity = LIMITS[limit] // ID_BYTES
        found += [_stored("ASYNC", limit, seconds, times, capacity, plain) for seconds in intervals]
    places = {(shape.m, shape.k): positions(ids, shape) for shape in TABLE_2.values()}
    for row, shape in TABLE_2.items():

        def bits(first: int, last: int, shape: Shape = shape) -> bytes:
            made = np.zeros(shape.m, np.uint8)
            made[places[shape.m, shape.k][first:last]] = 1
            return np.packbits(made).tobytes()

        found += [_stored("BF", row, seconds, times, shape.n, bits) for seconds in INTERVALS[row]]
    return [kept for kept in found if kept.forces_per_s]


def positions(ids: NDArray[np.uint8], shape: Shape) -> NDArray[np.int64]:
    """The k positions of each id: as many equal segments of MD5 digests, each of a prefix byte and the id."""
    width = shape.m.bit_length() - 1
    segments = DIGEST_BITS // width
    digests = -(-shape.k // segments)
    found = np.empty((len(ids), shape.k), np.int64)
    for prefix in range(digests):
        head = bytes([prefix])
        joined = b"".join(md5(head + one.tobytes(), usedforsecurity=False).digest() for one in ids)
        bits = np.unpackbits(np.frombuffer(joined, np.uint8).reshape(len(ids), -1), axis=1).astype(np.int64)
        for place in range(min(segments, shape.k - prefix * segments)):
            segment = bits[:, place * width : (place + 1) * width]
            found[:, prefix * segments + place] = segment @ (1 << np.arange(width)[::-1])
    return found


def _stored(
    strategy: str,
    row: str,
    interval_s: int,
    times: NDArray[np.int64],
    capacity: int,
    buffer: Callable[[int, int], bytes],
) -> KeptBuffers:
    raw = compressed = messages = forces = 0
    for first, last in _buffers(times, capacity, interval_s * 1_000):
        data = buffer(first, last)
        raw += len(data)
        compressed += len(gzip.compress(data, GZIP_LEVEL, mtime=0))
        messages += last - first
        forces += 1
    if not forces:
        return KeptBuffers(strategy, row, interval_s, 0.0, 0.0, 0.0, 0.0)
    # Up to the first id of the buffer that stays open.
    seconds = int(times[messages]) / 1_000
    filling = messages / forces / capacity
    return KeptBuffers(strategy, row, interval_s, forces / seconds, raw / messages, compressed / messages, filling)


def _buffers(times: NDArray[np.int64], capacity: int, interval_ms: int) -> Iterator[tuple[int, int]]:
    """Yield first and last of each buffer: it is stored when full, or so long after its first id. The last is open."""
    first = 0
    while first < len(times):
        old = int(np.searchsorted(times, times[first] + interval_ms))
        last = min(first + capacity, old)
        if last >= len(times):
            return
        yield first, last
        first = last
