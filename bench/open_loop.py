"""An open-loop load: messages leave at times that were drawn before, whatever the broker does meanwhile.

One thread spins over the sockets of publishers and that of a subscriber who gets every message. Each message bears its
number. A message counts from the moment it was handed to its socket: what the generator itself is late is not the
broker's, and is told apart. Further subscriptions make each message costly without making it large: their selectors do
arithmetic, which no index answers, so that the broker tests one after the other, and none of them matches.
"""

from __future__ import annotations

import gc
import math
import re
import socket
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["OpenLoop", "Passed", "arrival_times", "quiet_messages"]

READ_BYTES = 1 << 20
SETUP_SECONDS = 60.0
# How long the last messages may take after the last was sent.
DRAIN_SECONDS = 30.0
# Messages of one load: their frames and times take some 200 MB.
MOST_MESSAGES = 1_000_000
# After so long without a message, none is under way.
QUIET_SECONDS = 0.5
# A run is judged in slices of this many seconds: one in which the generator did nothing for `GAP_SECONDS`, or brokers
# waited for their processor for that long, says something of the machine and not of the broker. Nor do those after it,
# in which what piled up is worked off.
SLICE_SECONDS = 0.02
GAP_SECONDS = 0.0005
SLICES_AFTER = 2
_FRAME = b"SEND\ndestination:/topic/load\nload:7\ncontent-length:8\n\n%08d\0"
_NUMBER = re.compile(rb"\n\n(\d{8})\0")
_SUBSCRIBED_AT_ONCE = 100


class Passed(NamedTuple):
    """What became of a load, message by message; times are seconds since its beginning.

    Attributes:
        sent: when it was handed to its publisher's socket.
        out: when the subscriber read it. Messages of one batch have the same time: a broker writes once for each batch,
            and the generator looks more often than that.
        late: how much later than drawn the generator sent it.
        quiet: whether neither the generator nor a broker was kept from its processor around that time.
    """

    sent: Floats
    out: Floats
    late: Floats
    quiet: NDArray[np.bool_]

    @property
    def seconds(self) -> Floats:
        """From one to the other."""
        return self.out - self.sent


def arrival_times(rate: float, seconds: float, burst: int, seed: int) -> Floats:
    """Poisson times at which bursts of so many messages leave, at `rate` messages a second; one for each message.

    There are `MOST_MESSAGES` at most: a high rate lasts for less than these seconds. An infinite one is one burst.
    """
    if math.isinf(rate):
        return np.zeros(burst)
    random = np.random.default_rng(seed)
    bursts = max(1, round(min(rate * seconds, MOST_MESSAGES) / burst))
    return np.repeat(np.cumsum(random.exponential(burst / rate, bursts)), burst)


class OpenLoop:
    """Connections for a load.

    Args:
        entry: the port of the broker to publish at.
        exit: the port of the broker to subscribe at.
        selectors: that are tested for each message at the exit, and match none.
        publishers: messages come from them in turn.
        waited: seconds for which the brokers have waited so far for a processor that others had.
    """

    def __init__(
        self, entry: int, exit: int, selectors: int = 0, publishers: int = 1, waited: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._waited = waited
        self._writers = [_connected(entry) for _ in range(publishers)]
        self._idle = _connected(exit)
        _subscribe(self._idle, [f"load * {number} > 1000000000" for number in range(2, selectors + 2)])
        self._timed = _connected(exit)
        _subscribe(self._timed, [""])
        self._buffer = bytearray(READ_BYTES)
        for each in (*self._writers, self._timed):
            each.setblocking(False)

    def __enter__(self) -> OpenLoop:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in (*self._writers, self._timed, self._idle):
            each.close()

    def settle(self) -> None:
        """Wait until messages get through: brokers have to tell each other first who wants what.

        Raises:
            RuntimeError: none does.
        """
        give_up = time.perf_counter() + SETUP_SECONDS
        while time.perf_counter() < give_up:
            _sent(self._writers[0], memoryview(_FRAME % 0))
            if self._hears(QUIET_SECONDS):
                # Those that were sent before may be under way still.
                while self._hears(QUIET_SECONDS):
                    pass
                return
        raise RuntimeError("no message got through")

    def _hears(self, seconds: float) -> bool:
        end, heard = time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            heard += _received(self._timed, self._buffer)
            time.sleep(0.001)
        return heard > 0

    def run(self, times: Floats) -> Passed:
        """Send at these times, counted from now, and wait for all to arrive.

        Raises:
            RuntimeError: messages were lost.
        """
        gc.collect()
        gc.disable()
        try:
            return self._run(times.tolist())
        finally:
            gc.enable()

    def _run(self, times: list[float]) -> Passed:
        clock, total, publishers = time.perf_counter, len(times), len(self._writers)
        frames = b"".join([_FRAME % number for number in range(total)])
        each = len(frames) // total
        due = sent = arrived = 0
        left: list[tuple[float, int]] = []
        came: list[tuple[float, int]] = []
        chunks: list[bytes] = []
        data = memoryview(frames)
        start = clock()
        give_up = start + times[-1] + DRAIN_SECONDS
        before = slice_end = worst = 0.0
        slices: list[tuple[float, float, float]] = []
        while arrived < total:
            now = clock() - start
            worst = max(worst, now - before)
            if now >= slice_end:
                slices.append((now, worst, self._waited()))
                slice_end, worst = now + SLICE_SECONDS, 0.0
                # What the look itself took is no gap.
                now = clock() - start
            before = now
            if now + start > give_up:
                raise RuntimeError(f"{total - arrived:,} of {total:,} messages did not arrive")
            if sent == due * each:
                new = bisect_right(times, now, due)
                if new > due:
                    left.append((now, new - due))
                    due = new
            if sent < due * each:
                if publishers == 1:
                    sent += _sent(self._writers[0], data[sent : due * each])
                else:
                    # A frame is far smaller than what an idle socket takes.
                    sent += _sent(self._writers[sent // each % publishers], data[sent : sent + each])
            size = _received(self._timed, self._buffer)
            if size:
                chunk = bytes(memoryview(self._buffer)[:size])
                if publishers > 1:
                    chunks.append(chunk)
                count = chunk.count(b"\0")
                came.append((clock() - start, count))
                arrived += count
        handed, read = _spread(left), _spread(came)
        # Messages of one publisher come in order; those of several are told apart by their numbers.
        numbers = np.array([int(number) for number in _NUMBER.findall(b"".join(chunks))]) if publishers > 1 else None
        if numbers is not None:
            read = read[np.argsort(numbers)]
        slices.append((math.inf, worst, self._waited()))
        return Passed(handed, read, handed - np.array(times), quiet_messages(handed, slices))


def quiet_messages(handed: Floats, slices: list[tuple[float, float, float]]) -> NDArray[np.bool_]:
    """Which messages were sent in undisturbed slices; each slice is its end, its longest gap, and the wait so far."""
    ends, gaps, waited = (np.array(column) for column in zip(*slices, strict=True))
    disturbed = (gaps > GAP_SECONDS) | (np.diff(waited, prepend=waited[0]) > GAP_SECONDS)
    spread = disturbed.copy()
    for after in range(1, SLICES_AFTER + 1):
        spread[after:] |= disturbed[:-after]
    # A message waits into the next slice as well.
    spread[:-1] |= disturbed[1:]
    return np.asarray(~spread[np.searchsorted(ends, handed)])


def _spread(pairs: list[tuple[float, int]]) -> Floats:
    at, counts = zip(*pairs, strict=True)
    return np.repeat(np.array(at), np.array(counts))


def _sent(line: socket.socket, data: memoryview) -> int:
    try:
        return line.send(data)
    except BlockingIOError:
        return 0


def _received(line: socket.socket, room: bytearray) -> int:
    try:
        size = line.recv_into(room)
    except BlockingIOError:
        return 0
    if not size:
        raise RuntimeError("the broker closed a connection")
    return size


def _connected(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), SETUP_SECONDS)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0")
    _wait_for(line, b"CONNECTED")
    return line


def _subscribe(line: socket.socket, selectors: list[str]) -> None:
    for first in range(0, len(selectors), _SUBSCRIBED_AT_ONCE):
        for number, selector in enumerate(selectors[first : first + _SUBSCRIBED_AT_ONCE], start=first):
            wanted = f"selector:{selector}\n" if selector else ""
            last = number == min(first + _SUBSCRIBED_AT_ONCE, len(selectors)) - 1
            receipt = "receipt:ready\n" if last else ""
            line.sendall(f"SUBSCRIBE\nid:{number}\ndestination:/topic/load\n{wanted}{receipt}\n\0".encode())
        _wait_for(line, b"receipt-id:ready")


def _wait_for(line: socket.socket, words: bytes) -> None:
    heard = b""
    while words not in heard or not heard.rstrip(b"\n").endswith(b"\0"):
        more = line.recv(4_096)
        if not more:
            raise RuntimeError(f"the broker closed a connection: {heard[-500:]!r}")
        heard += more
