"""The measurement programme of the capacity model: a broker of its own, driven over a grid of loads.

Each cell of the grid is a number of resident subscriptions that do not match, a number of copies, a size of bodies, and
a number of messages that the publisher writes at once and waits for: a batch. One broker is started for each number of
subscriptions. What a batch costs is the processor time that the broker's process used in the cell, over the batches:
reading, decoding, writing and recording included. Processor time does not count the time for which other programs held
the processor, so that a busy machine gives nearly the same costs as a quiet one.

In the last cells of each broker the publisher keeps it saturated. These are not fitted: the rate that gets through is
compared with what the costs predict, unless the broker used less than `SATURATED` of a processor. Then the load
generator was the bottleneck, and the cell says nothing of the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity import BatchSamples
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

__all__ = [
    "SATURATED",
    "CalibrationError",
    "Cell",
    "MeasuredCell",
    "Programme",
    "cell_samples",
    "measure",
    "message_bytes",
]

# The share of a processor below which a broker is not saturated.
SATURATED = 0.9
# A cell is warmed up for this part of its time before it counts.
_WARM_UP = 0.25
# The bytes of a frame that are not its body.
_FRAME_BYTES = 60
# Bursts under way at once in a saturated cell.
WINDOW = 4
_READ_BYTES = 1 << 20
_READY = re.compile(r'"stomp": "stomp://([^:"]+):(\d+)"')


class CalibrationError(PostroadError):
    """The measurement cannot be made."""


class Cell(NamedTuple):
    """One load: subscriptions that do not match, copies of a message, bytes of a body, messages written at once."""

    subscriptions: int
    copies: int
    size: int
    burst: int
    saturated: bool


class MeasuredCell(NamedTuple):
    """What a cell gave.

    Attributes:
        cell: the load.
        bursts: how many were confirmed.
        seconds: how long it took.
        processor_seconds: what the broker's process used of them.
    """

    cell: Cell
    bursts: int
    seconds: float
    processor_seconds: float

    @property
    def rate(self) -> float:
        """Messages per second that got through."""
        return self.bursts * self.cell.burst / self.seconds

    @property
    def busy(self) -> float:
        """Processors that the broker used."""
        return self.processor_seconds / self.seconds

    @property
    def conclusive(self) -> bool:
        """Whether the rate is the broker's, not the load generator's."""
        return self.cell.saturated and self.busy >= SATURATED


class Programme(NamedTuple):
    """The grid, and how long each cell runs; subscriptions that do not match differ by topic, or by their selector."""

    subscriptions: Sequence[int] = (0, 100, 10_000)
    copies: Sequence[int] = (0, 1, 4, 16)
    sizes: Sequence[int] = (100, 2_000)
    bursts: Sequence[int] = (1, 8, 64)
    seconds: float = 1.0
    by_selector: bool = False

    def cells(self, subscriptions: int) -> list[Cell]:
        """The loads of one broker, the saturated ones last."""
        grid = itertools.product(self.copies, self.sizes, self.bursts)
        slow = [Cell(subscriptions, copies, size, burst, False) for copies, size, burst in grid]
        fast = itertools.product(self.copies, self.sizes)
        return slow + [Cell(subscriptions, copies, size, max(self.bursts) * 4, True) for copies, size in fast]

    def __len__(self) -> int:
        return sum(len(self.cells(number)) for number in self.subscriptions)


async def measure(programme: Programme, folder: Path, tell: Callable[[str], None]) -> list[MeasuredCell]:
    """Run the programme.

    Args:
        programme: what to run.
        folder: an empty directory for the brokers' data.
        tell: is told what happens, a line at a time.
    """
    found: list[MeasuredCell] = []
    for number, subscriptions in enumerate(programme.subscriptions, start=1):
        tell(f"broker {number} of {len(programme.subscriptions)}, {subscriptions:,} subscriptions that do not match")
        async with _broker(folder, number) as (pid, address):
            others = [_other(one, programme.by_selector) for one in range(1, subscriptions + 1)]
            idle = await _Consumer.connect(address, others)
            for cell in programme.cells(subscriptions):
                found.append(await _run(cell, programme, pid, address))
                rate = f"{found[-1].rate:,.0f} messages/s"
                tell(f"  {cell.copies} copies, {cell.size} bytes, {cell.burst} at once: {rate}")
            await idle.close()
    return found


def cell_samples(measured: Sequence[MeasuredCell]) -> BatchSamples:
    """The mean batch of each cell that is not saturated."""
    rows = [
        (
            one.cell.burst,
            one.cell.subscriptions + one.cell.copies,
            one.cell.burst * one.cell.copies,
            one.cell.copies,
            one.cell.burst * message_bytes(one.cell),
            one.processor_seconds / one.bursts,
        )
        for one in measured
        if not one.cell.saturated and one.bursts
    ]
    if not rows:
        raise CalibrationError("no cell got a single message through: the machine is too slow or too busy")
    return BatchSamples(*np.array(rows, np.float64).T)


def message_bytes(cell: Cell) -> int:
    """The bytes of a frame in a cell."""
    return cell.size + _FRAME_BYTES


@contextlib.asynccontextmanager
async def _broker(folder: Path, number: int) -> AsyncIterator[tuple[int, tuple[str, int]]]:
    """A broker in a process of its own, stopped at the end; its number and where it listens."""
    config = folder / f"broker-{number}.toml"
    # JSON's strings are TOML's, too.
    config.write_text(
        f'number = {number}\nport = 0\ndata = {json.dumps(str(folder / f"data-{number}"))}\nlog_level = "warning"\n'
        f"[tracking]\ntrail = {json.dumps(str(folder / 'trail'))}\npersist_seconds = 1\n"
        "[limits]\nsubscriptions_per_session = 1_000_000\n"
    )
    command = [
        sys.executable,
        "-c",
        "from postroad.cli import main; main()",
        "broker",
        "--config",
        str(config),
        "--json",
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        ready = _READY.search(line)
        if ready is None:
            raise CalibrationError(f"the broker to be measured did not start: {line.strip() or 'its log says why'}")
        yield process.pid, (ready[1], int(ready[2]))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _other(number: int, by_selector: bool) -> tuple[str, str]:
    """Topic and selector of a subscription that matches nothing."""
    return ("/topic/load", f"correlation = '#{number}'") if by_selector else (f"/topic/other.{number}", "")


async def _run(cell: Cell, programme: Programme, pid: int, address: tuple[str, int]) -> MeasuredCell:
    seconds = programme.seconds
    matching = ("/topic/load", "correlation = '#0'" if programme.by_selector else "")
    consumers = [await _Consumer.connect(address, [matching]) for _ in range(cell.copies)]
    publisher = await _Publisher.connect(address, cell, programme.by_selector)
    try:
        await publisher.run(_WARM_UP * seconds)
        used, began = processor_seconds(pid), time.perf_counter()
        bursts = await publisher.run(seconds)
        took = time.perf_counter() - began
        return MeasuredCell(cell, bursts, took, processor_seconds(pid) - used)
    finally:
        for connection in (publisher, *consumers):
            await connection.close()


class _Connection:
    """A STOMP connection made of bytes: nothing of it may cost more than the broker that it measures."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def open(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*address, limit=_READ_BYTES)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:calibration\n\n\0")
        await reader.readuntil(b"\0")
        return reader, writer

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class _Consumer(_Connection):
    """Subscribes, and throws away what comes."""

    @classmethod
    async def connect(cls, address: tuple[str, int], wanted: Sequence[tuple[str, str]]) -> _Consumer:
        reader, writer = await cls.open(address)
        for number, (topic, selector) in enumerate(wanted):
            line = f"selector:{selector}\n" if selector else ""
            writer.write(f"SUBSCRIBE\nid:{number}\ndestination:{topic}\n{line}\n\0".encode())
            if number % 1_000 == 0:
                await writer.drain()
        writer.write(b"SEND\ndestination:/topic/ready\nreceipt:ready\n\n\0")
        await writer.drain()
        await reader.readuntil(b"receipt-id:ready")
        consumer = cls(reader, writer)
        consumer._task = asyncio.create_task(consumer._discard())
        return consumer

    _task: asyncio.Task[None]

    async def _discard(self) -> None:
        while await self._reader.read(_READ_BYTES):
            pass

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await super().close()


class _Publisher(_Connection):
    """Writes bursts, each with a receipt behind its last message."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cell: Cell, by_selector: bool
    ) -> None:
        super().__init__(reader, writer)
        self._cell = cell
        line = b"correlation:#0\n" if by_selector else b""
        frame = b"SEND\ndestination:/topic/load\n" + line + b"content-length:%d\n%s\n%s\0"
        body = b"x" * cell.size
        plain = frame % (cell.size, b"", body)
        self._burst = plain * (cell.burst - 1) + frame % (cell.size, b"receipt:r\n", body)

    @classmethod
    async def connect(cls, address: tuple[str, int], cell: Cell, by_selector: bool) -> _Publisher:
        return cls(*await cls.open(address), cell, by_selector)

    async def run(self, seconds: float) -> int:
        """Send for so long; how many bursts were confirmed."""
        end = time.perf_counter() + seconds
        window = WINDOW if self._cell.saturated else 1
        under_way = confirmed = 0
        while True:
            while under_way < window and time.perf_counter() < end:
                self._writer.write(self._burst)
                under_way += 1
            if not under_way:
                return confirmed
            await self._writer.drain()
            receipts = (await self._reader.readuntil(b"\0")).count(b"RECEIPT")
            under_way -= receipts
            confirmed += receipts


def processor_seconds(pid: int) -> float:
    """The processor time of all threads of a process so far; to the nanosecond where the kernel tells."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
