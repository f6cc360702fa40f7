"""The books of a load test: what was sent, what has arrived, how much more may be sent, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.traffic import MARKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Arrival", "Lane", "Window", "count_messages", "latencies"]

_MARKER = MARKER[0]
_DIGITS = 8  # of a message's number, right after the marker


def count_messages(data: NDArray[np.uint8]) -> int:
    """How many messages begin their body in these bytes."""
    return int(np.count_nonzero(data == _MARKER))


class Lane:
    """One publisher: the same frames over and over.

    Args:
        frames: frames end to end.
        length: bytes of each frame.
    """

    def __init__(self, frames: bytes, length: int) -> None:
        self._frames = memoryview(frames)
        self._length = length
        self.bytes_sent = 0

    @property
    def begun(self) -> int:
        """Messages of which something was sent."""
        return -(-self.bytes_sent // self._length)

    @property
    def unfinished(self) -> int:
        """Bytes missing from the frame that was begun."""
        return -self.bytes_sent % self._length

    def following(self, messages: int, most: int) -> memoryview:
        """What to send next: the rest of a frame that was begun and so many more, at most so many bytes."""
        start = self.bytes_sent % len(self._frames)
        wanted = self.unfinished + messages * self._length
        return self._frames[start : start + min(wanted, most)]


class Window:
    """How many messages may be under way, so that no broker has to drop any and all are kept busy alike.

    At most `most`, and at most about `SECONDS` of what the broker has managed recently: a slow one is not flooded, and
    a run ends soon after its time is up.
    """

    SECONDS = 0.25
    LEAST = 64

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = min(self.LEAST, most)

    def adapt(self, messages_per_s: float) -> None:
        """Learn how much arrives."""
        self.size = int(min(self._most, max(self.LEAST, messages_per_s * self.SECONDS)))

    def credit(self, begun: int, slowest: int) -> int:
        """Messages that may be begun now, when the slowest subscriber has so many."""
        return max(0, self.size - (begun - slowest))


class Arrival(NamedTuple):
    """Bytes that came with one read, and when."""

    time: float
    data: bytes


def latencies(arrivals: Sequence[Arrival], due: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds from when each message was due to be sent to when its number had arrived.

    Counted from the due time, not from the sending: a sender held up by a slow broker must not hide that.

    Raises:
        ValueError: some message is missing, came twice, or out of order.
    """
    stream = np.frombuffer(b"".join(arrival.data for arrival in arrivals), np.uint8)
    starts = np.flatnonzero(stream == _MARKER) + 1
    starts = starts[starts + _DIGITS <= len(stream)]
    digits = stream[starts[:, None] + np.arange(_DIGITS)].astype(np.int64) - ord("0")
    numbers = digits @ 10 ** np.arange(_DIGITS - 1, -1, -1)
    if not np.array_equal(numbers, np.arange(len(due))):
        found = f"{len(numbers):,} arrived, {len(np.unique(numbers)):,} different"
        raise ValueError(f"{len(due):,} messages were sent, {found}, or they were out of order")
    ends = np.cumsum([len(arrival.data) for arrival in arrivals])
    times = np.array([arrival.time for arrival in arrivals])
    return np.asarray(times[np.searchsorted(ends, starts + _DIGITS - 1, side="right")] - due)
