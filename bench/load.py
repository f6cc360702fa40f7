"""The load generator: publishers and subscribers in a process of its own, a job as JSON in, what happened as JSON out.

One loop over plain sockets. Frames are encoded before, messages are counted by their marker and never parsed: it must
be quicker than any broker it measures. How busy it was is part of the answer.
"""

from __future__ import annotations

import json
import math
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import psutil  # type: ignore[import-untyped]

from bench.accounts import Arrival, Lane, Window, count_messages, latencies
from bench.dialects import DIALECTS
from bench.traffic import MATCHING, cycle, idle_selectors

__all__ = ["Job", "Outcome", "main", "run"]

# More than any read or write that a kernel hands over at once on loopback: a write is what the socket takes.
READ_BYTES = 512 * 1024
WRITE_BYTES = 512 * 1024
# Messages under way at most. A default queue of Postroad holds 10,000, and nobody shall drop anything here.
WINDOW = 8_192
# How long the last messages may take after the sending ends, and the setting up of subscriptions.
DRAIN_SECONDS = 20.0
SETUP_SECONDS = 120.0
# How often the window learns.
ADAPT_SECONDS = 0.05
# A paced publisher sends this often.
BURSTS_PER_S = 1_000


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        dialect: the protocol, a key of `DIALECTS`.
        port: of the broker, on this machine.
        pid: the broker's process; it and its children are what processor time is taken from.
        topic: of this run alone.
        publishers, subscribers: how many; each subscriber gets every message.
        body: bytes.
        selector: whether the subscribers select by content.
        idle: subscriptions that match nothing, on one connection more.
        rate: messages a second to send; 0 sends as much as gets through.
        warm_up, seconds: how long before the measurement, and how long it lasts.
        window: messages under way at most.
        write: bytes that a publisher hands to its socket at once, at most.
    """

    dialect: str
    port: int
    pid: int
    topic: str
    publishers: int = 1
    subscribers: int = 1
    body: int = 100
    selector: bool = False
    idle: int = 0
    rate: int = 0
    warm_up: float = 0.5
    seconds: float = 1.5
    window: int = WINDOW
    write: int = WRITE_BYTES


@dataclass(frozen=True)
class Outcome:
    """What a run showed.

    Attributes:
        messages_per_s: published, and delivered to everybody.
        deliveries_per_s: the same times the subscribers.
        broker_cpu_s_per_million: processor seconds of the broker per million messages published.
        broker_user_s_per_million: those of them outside the kernel, whose part is the work on sockets.
        generator_busy: processors that this process kept busy.
        others_busy: processors that neither broker nor generator used: what else the machine did meanwhile.
        sent: messages.
        lost: deliveries that did not come (or, below zero, came too often).
        p50_ms, p99_ms: latency, of a paced run.
    """

    messages_per_s: float
    deliveries_per_s: float
    broker_cpu_s_per_million: float
    broker_user_s_per_million: float
    generator_busy: float
    others_busy: float
    sent: int
    lost: int
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def run(job: Job) -> Outcome:
    """Connect, subscribe, and load."""
    lines = [_line(job) for _ in range(job.publishers + job.subscribers)]
    readers, writers = lines[: job.subscribers], lines[job.subscribers :]
    dialect = DIALECTS[job.dialect]
    if job.idle:
        lines.append(_line(job))
        dialect.subscribe(lines[-1], job.topic, idle_selectors(job.idle))
    for reader in readers:
        dialect.subscribe(reader, job.topic, [MATCHING if job.selector else ""])
    for line in lines:
        line.setblocking(False)
    try:
        return _paced(job, readers[0], writers[0]) if job.rate else _Flood(job, readers, writers).run()
    finally:
        for line in lines:
            line.close()


def _line(job: Job) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", job.port), SETUP_SECONDS)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    DIALECTS[job.dialect].greet(line)
    return line


def _written(writer: socket.socket, data: memoryview) -> int:
    """How much of it the socket took."""
    try:
        return writer.send(data)
    except BlockingIOError:
        return 0


class Spent(NamedTuple):
    """Seconds of the clock, and of processors: by the broker, by this process, and by everything else.

    `broker_user` is the part of the broker's time that is outside the kernel: its own code.
    """

    elapsed: float
    broker: float
    broker_user: float
    own: float
    others: float


class Usage:
    """Counts processor time since now."""

    def __init__(self, pid: int) -> None:
        broker = psutil.Process(pid)
        self._processes = [broker, *broker.children(recursive=True)]
        self._before = self._now()

    def spent(self) -> Spent:
        """What was used so far."""
        spent = (now - before for now, before in zip(self._now(), self._before, strict=True))
        elapsed, broker, user, own, everybody = spent
        return Spent(elapsed, broker, user, own, max(0.0, everybody - broker - own))

    def _now(self) -> tuple[float, float, float, float, float]:
        times = [process.cpu_times() for process in self._processes]
        machine = psutil.cpu_times()
        return (
            time.perf_counter(),
            sum(each.user + each.system for each in times),
            sum(each.user for each in times),
            time.process_time(),
            sum(machine) - machine.idle - machine.iowait,
        )


class _Flood:
    """As many messages as get through."""

    def __init__(self, job: Job, readers: list[socket.socket], writers: list[socket.socket]) -> None:
        self._job = job
        dialect = DIALECTS[job.dialect]
        frames, length = cycle(lambda headers, body: dialect.publication(job.topic, headers, body), job.body)
        self._lanes = [(writer, Lane(frames, length)) for writer in writers]
        self._readers = {reader.fileno(): (place, reader) for place, reader in enumerate(readers)}
        self._received = [0] * len(readers)
        self._window = Window(job.window)
        self._room = bytearray(READ_BYTES)
        self._buffer = np.frombuffer(self._room, np.uint8)
        self._poll = select.epoll()
        for reader in readers:
            self._poll.register(reader, select.EPOLLIN)
        for writer in writers:
            self._poll.register(writer, select.EPOLLOUT | select.EPOLLET)

    def run(self) -> Outcome:
        job = self._job
        self._until(time.perf_counter() + job.warm_up)
        before, usage = sum(self._received), Usage(job.pid)
        self._until(time.perf_counter() + job.seconds)
        spent = usage.spent()
        delivered = sum(self._received) - before
        self._finish()
        messages = delivered / job.subscribers
        sent = self._begun
        return Outcome(
            messages_per_s=messages / spent.elapsed,
            deliveries_per_s=delivered / spent.elapsed,
            broker_cpu_s_per_million=spent.broker / max(messages, 1) * 1e6,
            broker_user_s_per_million=spent.broker_user / max(messages, 1) * 1e6,
            generator_busy=spent.own / spent.elapsed,
            others_busy=spent.others / spent.elapsed,
            sent=sent,
            lost=sent * job.subscribers - sum(self._received),
        )

    @property
    def _begun(self) -> int:
        return sum(lane.begun for _, lane in self._lanes)

    def _until(self, end: float) -> None:
        now = time.perf_counter()
        while now < end:
            before, start = min(self._received), now
            until = min(end, now + ADAPT_SECONDS)
            while now < until:
                self._send()
                self._receive(until - now)
                now = time.perf_counter()
            self._window.adapt((min(self._received) - before) / (now - start))

    def _send(self) -> None:
        credit = self._window.credit(self._begun, min(self._received))
        # Every publisher gets a fair part of what may go out, and each write at least one frame.
        share = -(-credit // len(self._lanes))
        for writer, lane in self._lanes:
            if credit <= 0 and not lane.unfinished:
                continue
            begun = lane.begun
            self._write(writer, lane, min(share, max(credit, 0)))
            credit -= lane.begun - begun

    def _write(self, writer: socket.socket, lane: Lane, messages: int) -> None:
        data = lane.following(messages, self._job.write)
        if data:
            lane.bytes_sent += _written(writer, data)

    def _receive(self, seconds: float) -> None:
        for number, _ in self._poll.poll(max(seconds, 0.0)):
            found = self._readers.get(number)
            if found is None:
                continue
            place, reader = found
            size = reader.recv_into(self._room)
            if not size:
                raise ConnectionError("the broker closed a subscriber's connection")
            self._received[place] += count_messages(self._buffer[:size])

    def _finish(self) -> None:
        """Complete the frames that were begun, and wait for everything to arrive."""
        end = time.perf_counter() + DRAIN_SECONDS
        while time.perf_counter() < end:
            for writer, lane in self._lanes:
                self._write(writer, lane, 0)
            if min(self._received) >= self._begun and not any(lane.unfinished for _, lane in self._lanes):
                break
            self._receive(0.01)
        # What came twice would come now.
        self._receive(0.02)


def _paced(job: Job, reader: socket.socket, writer: socket.socket) -> Outcome:
    """A fixed number of messages a second, one publisher and one subscriber; latency counts."""
    dialect = DIALECTS[job.dialect]
    burst = job.rate // BURSTS_PER_S
    bursts = int((job.warm_up + job.seconds) * BURSTS_PER_S)
    count = burst * bursts
    frames, length = cycle(lambda headers, body: dialect.publication(job.topic, headers, body), job.body, count)
    usage = Usage(job.pid)
    arrivals, start = _exchange(reader, writer, frames, burst * length, count)
    spent = usage.spent()
    received = sum(count_messages(np.frombuffer(arrival.data, np.uint8)) for arrival in arrivals)
    p50, p99 = math.nan, math.nan
    if received == count:
        due = start + np.repeat(np.arange(bursts) / BURSTS_PER_S, burst)
        measured = latencies(arrivals, due)[burst * int(job.warm_up * BURSTS_PER_S) :]
        p50, p99 = (np.percentile(measured, [50, 99]) * 1_000).tolist()
    rate = received / spent.elapsed
    return Outcome(
        messages_per_s=rate,
        deliveries_per_s=rate,
        broker_cpu_s_per_million=spent.broker / max(received, 1) * 1e6,
        broker_user_s_per_million=spent.broker_user / max(received, 1) * 1e6,
        generator_busy=spent.own / spent.elapsed,
        others_busy=spent.others / spent.elapsed,
        sent=count,
        lost=count - received,
        p50_ms=p50,
        p99_ms=p99,
    )


def _exchange(
    reader: socket.socket, writer: socket.socket, frames: bytes, burst_bytes: int, count: int
) -> tuple[list[Arrival], float]:
    """Send a burst whenever one is due, and keep all reads with their times until every message is there."""
    arrivals: list[Arrival] = []
    outgoing, sent, received = memoryview(frames), 0, 0
    start = time.perf_counter()
    end = start + len(frames) / burst_bytes / BURSTS_PER_S + DRAIN_SECONDS
    while received < count and (now := time.perf_counter()) < end:
        bursts = int((now - start) * BURSTS_PER_S) + 1
        due = min(bursts * burst_bytes, len(frames))
        if sent < due:
            sent += _written(writer, outgoing[sent:due])
        waiting = start + bursts / BURSTS_PER_S - time.perf_counter()
        # Unlike epoll, select takes times below a millisecond.
        if select.select([reader], [], [], max(0.0, waiting))[0]:
            data = reader.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the broker closed the subscriber's connection")
            arrivals.append(Arrival(time.perf_counter(), data))
            received += count_messages(np.frombuffer(data, np.uint8))
    return arrivals, start


def main() -> None:
    """Answer one job on the standard input."""
    print(json.dumps(asdict(run(Job(**json.load(sys.stdin))))))
