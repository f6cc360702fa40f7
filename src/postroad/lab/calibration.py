"""The measurement programme of the capacity model: brokers of its own, driven over a grid of loads.

Each cell of the grid is a number of resident subscriptions that do not match, a number of copies, a size of bodies, and
a number of messages that the publisher writes at once and waits for: a batch. One broker is started for each number of
subscriptions. The cost of a batch is the processor time that the thread of the broker's loop used in the cell, divided
by the number of batches: reading, decoding, matching and writing included. Processor time does not count the time that
other programs held the processor, so a busy machine gives nearly the same costs as a quiet one. The loop limits what a
broker carries. Another thread writes the record, mostly while a later cell runs; its time is counted separately.

In saturated cells the publisher keeps the broker busy; they give the cost of a message in large batches. A
saturated cell in which the broker's loop was idle for more than the rest of `SATURATED` is left out: there the load
generator was the bottleneck, and the cell says nothing about the broker.

The speed of a shared machine changes from one minute to the next. So all brokers run at the same time, and the cells of
all are visited in several rounds, each in another order: changes of speed affect all cells alike, and what counts of a
cell is the middle of its visits, without those that something disturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity import BatchSamples
from postroad.errors import PostroadError
from postroad.lab.measured_broker import broker_command, broker_settings, stomp_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from postroad.capacity import BatchCosts

__all__ = [
    "READ_BYTES",
    "SATURATED",
    "CalibrationError",
    "Cell",
    "MeasuredCell",
    "Programme",
    "batch_messages",
    "cell_samples",
    "measure",
    "message_bytes",
    "saturated_rate",
]

# A broker's loop that runs for less than this share of the time is not saturated.
SATURATED = 0.9
# A cell is warmed up for this part of its time before it counts.
_WARM_UP = 0.25
# All cells are visited so many times, and each visit is measured in so many slices. The third of them in which a burst
# cost least, and the third in which it cost most, do not count.
ROUNDS = 3
_SLICES = 3
_CUT = 3
# A message of the publisher: a header that selectors look at, the size of the body, a request for a receipt, the body.
_FRAME = b"SEND\ndestination:/topic/load\n%bcontent-length:%d\n%b\n%b\0"
# Bursts under way at once in a saturated cell.
WINDOW = 4
# The most that the broker takes in one read (`server.tcp.READ_BYTES`, which this room does not import; a test
# compares).
READ_BYTES = 256 * 1024
# What a consumer discards in one call.
_DISCARDED_BYTES = 8 << 20
# Receipts, and what comes before them.
_SMALL_READ = 4_096
_SUBSCRIBED_AT_ONCE = 1_000


class CalibrationError(PostroadError):
    """The measurement is impossible."""


class Cell(NamedTuple):
    """One load: subscriptions that do not match, copies of a message, bytes of a body, messages written at once."""

    subscriptions: int
    copies: int
    size: int
    burst: int
    saturated: bool


class MeasuredCell(NamedTuple):
    """The result of a cell.

    Attributes:
        cell: the load.
        bursts: how many were confirmed.
        seconds: how long it took.
        processor_seconds: what the thread of the broker's loop used of them.
        loop_seconds: for how much of them the loop ran, or was ready to run and waited for a processor.
        other_seconds: what the other threads of its process used: they write the record.
    """

    cell: Cell
    bursts: int
    seconds: float
    processor_seconds: float
    loop_seconds: float
    other_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Return the messages per second that got through."""
        return self.bursts * self.cell.burst / self.seconds

    @property
    def carried(self) -> float:
        """Return the messages per second that get through while the loop has a processor to itself."""
        return self.bursts * self.cell.burst / self.processor_seconds

    @property
    def busy(self) -> float:
        """Return how many processors the broker used, including the threads that write the record."""
        return (self.processor_seconds + self.other_seconds) / self.seconds

    @property
    def conclusive(self) -> bool:
        """Return whether the rate is the broker's, not the load generator's."""
        return self.cell.saturated and self.loop_seconds >= SATURATED * self.seconds


class Programme(NamedTuple):
    """The grid, and how long each cell runs; subscriptions that do not match differ by topic or by selector."""

    subscriptions: Sequence[int] = (0, 100, 10_000)
    copies: Sequence[int] = (0, 1, 4, 16)
    sizes: Sequence[int] = (100, 2_000)
    bursts: Sequence[int] = (1, 8, 64)
    seconds: float = 1.0
    by_selector: bool = False

    def cells(self, subscriptions: int) -> list[Cell]:
        """Return the loads of one broker."""
        grid = itertools.product(self.copies, self.sizes, self.bursts)
        slow = [Cell(subscriptions, copies, size, burst, False) for copies, size, burst in grid]
        fast = itertools.product(self.copies, self.sizes)
        return slow + [Cell(subscriptions, copies, size, self._full(size), True) for copies, size in fast]

    def _full(self, size: int) -> int:
        """Return the messages of a burst that keeps a broker busy, at most a read of them.

        Longer ones would let consumers fall behind while the publisher writes: the broker would keep copies for them,
        which costs more than writing them.
        """
        return max(1, min(4 * max(self.bursts), READ_BYTES // _frame_bytes(size)))

    def __len__(self) -> int:
        return sum(len(self.cells(number)) for number in self.subscriptions)

    def visits(self) -> list[list[Cell]]:
        """Return all cells for each round, each time in another order."""
        every = [cell for number in self.subscriptions for cell in self.cells(number)]
        return [random.Random(number).sample(every, len(every)) for number in range(ROUNDS)]


async def measure(programme: Programme, folder: Path, tell: Callable[[str], None]) -> list[MeasuredCell]:
    """Run the programme.

    Args:
        programme: what to run.
        folder: an empty directory for the brokers' data.
        tell: called with a line about each step.
    """
    slices: dict[Cell, list[MeasuredCell]] = {}
    async with contextlib.AsyncExitStack() as stack:
        brokers: dict[int, tuple[int, tuple[str, int]]] = {}
        for number, subscriptions in enumerate(programme.subscriptions, start=1):
            tell(f"broker {number} of {len(programme.subscriptions)}, {subscriptions:,} subscriptions without a match")
            pid, address = await stack.enter_async_context(_broker(folder, number))
            others = [_other(one, programme.by_selector) for one in range(1, subscriptions + 1)]
            idle = await _Consumer.connect(address, others)
            stack.push_async_callback(idle.close)
            brokers[subscriptions] = pid, address
        for cells in programme.visits():
            for cell in cells:
                slices.setdefault(cell, []).extend(await _visit(cell, programme, *brokers[cell.subscriptions]))
    found = [_middle(slices[cell]) for number in programme.subscriptions for cell in programme.cells(number)]
    for one in found:
        cell = one.cell
        shape = f"{cell.subscriptions:,} without a match, {cell.copies} copies, {cell.size} bytes"
        tell(f"  {shape}, {cell.burst} at once: {one.rate:,.0f} messages/s")
    return found


def batch_messages(cell: Cell) -> float:
    """Return how many messages the broker takes in one read, on average.

    That is a burst, or its equal part of one that is longer than a read; of continuous bursts, what a read holds.
    """
    size = message_bytes(cell)
    if cell.saturated:
        return min(READ_BYTES / size, float(WINDOW * cell.burst))
    return cell.burst / math.ceil(cell.burst * size / READ_BYTES)


def cell_samples(measured: Sequence[MeasuredCell]) -> BatchSamples:
    """Return the mean batch of each cell, without saturated cells that the load generator limited."""
    rows = []
    for one in measured:
        cell = one.cell
        if not one.bursts or (cell.saturated and not one.conclusive):
            continue
        batch = batch_messages(cell)
        rows.append(
            (
                batch,
                cell.subscriptions + cell.copies,
                batch * cell.copies,
                cell.copies,
                batch * message_bytes(cell),
                one.processor_seconds * batch / (one.bursts * cell.burst),
            )
        )
    if not rows:
        raise CalibrationError("no cell got a single message through: the machine is too slow or too busy")
    return BatchSamples(*np.array(rows, np.float64).T)


def saturated_rate(costs: BatchCosts, cell: Cell) -> float:
    """Return the messages per second that a broker with these costs carries in a saturated cell."""
    messages = batch_messages(cell)
    row = (messages, cell.subscriptions + cell.copies, messages * cell.copies, cell.copies)
    batch = BatchSamples(*(np.array([figure]) for figure in (*row, messages * message_bytes(cell), math.nan)))
    return float(messages / costs.seconds(batch)[0])


def message_bytes(cell: Cell) -> int:
    """Return the bytes of a frame in a cell."""
    return _frame_bytes(cell.size)


def _frame_bytes(size: int) -> int:
    return len(_FRAME % (b"", size, b"", b"")) + size


@contextlib.asynccontextmanager
async def _broker(folder: Path, number: int) -> AsyncIterator[tuple[int, tuple[str, int]]]:
    """Run a broker in a separate process, and stop it at the end; yield its number and its address."""
    config = folder / f"broker-{number}.toml"
    config.write_text(broker_settings(number, folder))
    process = await asyncio.create_subprocess_exec(*broker_command(config), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        address = stomp_address(line)
        if address is None:
            raise CalibrationError(f"the broker to be measured did not start: {line.strip() or 'its log says why'}")
        yield process.pid, address
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _other(number: int, by_selector: bool) -> tuple[str, str]:
    """Return topic and selector of a subscription that matches nothing."""
    return ("/topic/load", f"correlation = '#{number}'") if by_selector else (f"/topic/other.{number}", "")


async def _visit(cell: Cell, programme: Programme, pid: int, address: tuple[str, int]) -> list[MeasuredCell]:
    seconds = programme.seconds / ROUNDS
    matching = ("/topic/load", "correlation = '#0'" if programme.by_selector else "")
    consumers = [await _Consumer.connect(address, [matching]) for _ in range(cell.copies)]
    publisher = await _Publisher.connect(address, cell, programme.by_selector)
    try:
        await publisher.run(_WARM_UP * seconds)
        return [await _slice(publisher, cell, pid, seconds / _SLICES) for _ in range(_SLICES)]
    finally:
        for connection in (publisher, *consumers):
            await connection.close()


async def _slice(publisher: _Publisher, cell: Cell, pid: int, seconds: float) -> MeasuredCell:
    before, began = ProcessTimes.of(pid), time.perf_counter()
    bursts = await publisher.run(seconds)
    took, after = time.perf_counter() - began, ProcessTimes.of(pid)
    ran, waited = after.loop - before.loop, after.loop_waited - before.loop_waited
    return MeasuredCell(cell, bursts, took, ran, ran + waited, after.others - before.others)


def _middle(slices: Sequence[MeasuredCell]) -> MeasuredCell:
    """Add up the slices without those in which a burst cost least and most; the last slice if none was confirmed."""
    confirmed = sorted((one for one in slices if one.bursts), key=lambda one: one.processor_seconds / one.bursts)
    if not confirmed:
        return slices[-1]
    cut = len(confirmed) // _CUT
    kept = confirmed[cut : len(confirmed) - cut]
    return MeasuredCell(kept[0].cell, *(sum(figures) for figures in list(zip(*kept, strict=True))[1:]))


class _Connection:
    """A STOMP connection on raw bytes: it must not cost more than the broker that it measures."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()

    @staticmethod
    async def open(address: tuple[str, int]) -> socket.socket:
        line = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        line.setblocking(False)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(line, address)
        await loop.sock_sendall(line, b"CONNECT\naccept-version:1.2\nhost:calibration\n\n\0")
        await _heard(line, b"CONNECTED")
        return line

    async def close(self) -> None:
        self._line.close()


async def _heard(line: socket.socket, words: bytes) -> None:
    """Wait for a frame with these words in it."""
    loop, heard = asyncio.get_running_loop(), b""
    while words not in heard or not heard.rstrip(b"\n").endswith(b"\0"):
        more = await loop.sock_recv(line, _SMALL_READ)
        if not more:
            raise CalibrationError(f"the broker that is measured closed a connection: {heard[-_SMALL_READ:]!r}")
        heard += more


class _Consumer(_Connection):
    """Subscribes to all copies of what the publisher sends, and discards them without copying."""

    @classmethod
    async def connect(cls, address: tuple[str, int], wanted: Sequence[tuple[str, str]]) -> _Consumer:
        line = await cls.open(address)
        consumer = cls(line)
        for first in range(0, len(wanted), _SUBSCRIBED_AT_ONCE):
            some = enumerate(wanted[first : first + _SUBSCRIBED_AT_ONCE], start=first)
            frames = b"".join([_subscribe_frame(number, *one) for number, one in some])
            await consumer._loop.sock_sendall(line, frames)
        await consumer._loop.sock_sendall(line, b"SEND\ndestination:/topic/ready\nreceipt:ready\n\n\0")
        await _heard(line, b"receipt-id:ready")
        consumer._waste = bytearray(_DISCARDED_BYTES)
        consumer._loop.add_reader(line, consumer._discard)
        return consumer

    _waste: bytearray

    def _discard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not self._line.recv_into(self._waste, 0, socket.MSG_TRUNC):
                self._loop.remove_reader(self._line)

    async def close(self) -> None:
        self._loop.remove_reader(self._line)
        await super().close()


def _subscribe_frame(number: int, topic: str, selector: str) -> bytes:
    line = f"selector:{selector}\n" if selector else ""
    return f"SUBSCRIBE\nid:{number}\ndestination:{topic}\n{line}\n\0".encode()


class _Publisher(_Connection):
    """Writes bursts, each with a receipt after its last message."""

    def __init__(self, line: socket.socket, cell: Cell, by_selector: bool) -> None:
        super().__init__(line)
        self._cell = cell
        header = b"correlation:#0\n" if by_selector else b""
        body = b"x" * cell.size
        plain = _FRAME % (header, cell.size, b"", body)
        self._burst = plain * (cell.burst - 1) + _FRAME % (header, cell.size, b"receipt:r\n", body)

    @classmethod
    async def connect(cls, address: tuple[str, int], cell: Cell, by_selector: bool) -> _Publisher:
        return cls(await cls.open(address), cell, by_selector)

    async def run(self, seconds: float) -> int:
        """Send for this long; return how many bursts were confirmed."""
        end = time.perf_counter() + seconds
        window = WINDOW if self._cell.saturated else 1
        under_way = confirmed = 0
        while True:
            while under_way < window and time.perf_counter() < end:
                await self._loop.sock_sendall(self._line, self._burst)
                under_way += 1
            if not under_way:
                return confirmed
            # The end of a read may cut "RECEIPT", but not the NUL after it.
            receipts = (await self._loop.sock_recv(self._line, _SMALL_READ)).count(b"\0")
            under_way -= receipts
            confirmed += receipts


class ProcessTimes(NamedTuple):
    """Seconds of a broker's process so far.

    Attributes:
        loop: that its first thread, which runs the loop, had a processor.
        loop_waited: that it was ready to run and had none.
        others: that its other threads had a processor.
    """

    loop: float
    loop_waited: float
    others: float

    @classmethod
    def of(cls, pid: int) -> ProcessTimes:
        """Read them from the kernel; without its counts by thread, all time counts as the loop's."""
        try:
            ran, waited = _thread_times(pid, pid)
            others = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
            return cls(ran, waited, sum(_thread_times(pid, other)[0] for other in others))
        except (OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            return cls((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 0.0, 0.0)


def _thread_times(pid: int, thread: int) -> tuple[float, float]:
    ran, waited = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[:2]
    return int(ran) / 1e9, int(waited) / 1e9
