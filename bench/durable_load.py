"""The load generator for what is kept: a job as JSON in, what happened as JSON out, in a process of its own.

One loop over plain sockets, for every broker the same: a publisher that has at most `WINDOW` messages unconfirmed, and
subscribers that acknowledge every `ACK_EVERY` messages. Frames are encoded before; messages and confirmations are
counted by their markers and never parsed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import numpy as np

from bench.accounts import Lane, count_messages
from bench.durable_dialects import DURABLE_DIALECTS
from bench.load import Spent, Usage
from bench.traffic import MARKER, cycle

__all__ = ["DurableJob", "DurableOutcome", "main", "run"]

READ_BYTES = 512 * 1024
WRITE_BYTES = 256 * 1024
# Messages that are sent and not confirmed, and messages that a subscriber has and has not acknowledged, at most.
WINDOW = 4_096
PREFETCH = 3_000
ACK_EVERY = 100
# How far a publisher may be ahead of the slowest subscriber while both are measured.
MOST_BEHIND = 10_000
# Longer than the header lines of a message: where a read ends, what names the last message is in this much of it.
TAIL_BYTES = 2_048
SETUP_SECONDS = 120.0
DRAIN_SECONDS = 30.0
# After so long without a message the rest is lost.
SILENCE_SECONDS = 8.0
# How long what was published in a burst may take to arrive.
BURST_SECONDS = 20.0


@dataclass(frozen=True)
class DurableJob:
    """One run.

    Attributes:
        mode: "flow" publishes and consumes at once, "fill" publishes to durable subscribers that are away, "drain"
            lets them fetch all that waits, and "burst" sends to plain subscribers that stall.
        dialect: a key of `DURABLE_DIALECTS`.
        port: of the broker, on this machine.
        pid: the broker's process.
        topic: of this run alone, except for what was filled before.
        subscribers: how many; each gets every message.
        body: bytes.
        count: messages to publish ("fill", "burst"), or that wait ("drain").
        warm_up, seconds: how long before the measurement, and how long it lasts; "fill" and "burst" publish no longer
            than `seconds`.
        stall: seconds for which subscribers read nothing ("burst").
    """

    mode: str
    dialect: str
    port: int
    pid: int
    topic: str
    subscribers: int = 1
    body: int = 100
    count: int = 0
    warm_up: float = 0.7
    seconds: float = 2.5
    stall: float = 1.0


@dataclass(frozen=True)
class DurableOutcome:
    """What a run showed.

    Attributes:
        messages_per_s: confirmed, and delivered to and acknowledged by everybody where there were subscribers.
        broker_cpu_us: processor time of the broker per message, in microseconds.
        generator_busy, others_busy: processors that this process and others kept busy.
        messages: how many the run counted.
        lost: deliveries that did not come.
        late: deliveries that had not come when the time was up, while others still came ("burst").
        seconds: how long it took.
        first_seconds: how long the first message took after the subscription ("drain").
    """

    messages_per_s: float
    broker_cpu_us: float
    generator_busy: float
    others_busy: float
    messages: int
    lost: int = 0
    late: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0


class Consumer:
    """A subscriber that counts and acknowledges."""

    def __init__(self, line: socket.socket, job: DurableJob) -> None:
        self.line = line
        self._dialect = DURABLE_DIALECTS[job.dialect]
        self.received = self._acknowledged = 0
        self._tail = b""

    def take(self, data: bytes, acknowledges: bool = True) -> None:
        """Bytes came."""
        self.received += count_messages(np.frombuffer(data, np.uint8))
        if not acknowledges:
            return
        if self.received - self._acknowledged >= ACK_EVERY:
            self._acknowledge(self._tail + data)
        self._tail = (self._tail + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]

    def _acknowledge(self, data: bytes) -> None:
        at = data.rfind(self._dialect.token, 0, data.rfind(MARKER))
        if at >= 0:
            token = data[at + len(self._dialect.token) : at + TAIL_BYTES]
            self.line.sendall(self._dialect.acknowledgement(token))
            self._acknowledged = self.received

    def finish(self) -> None:
        """Acknowledge the rest."""
        if self._acknowledged < self.received:
            self._acknowledge(self._tail)


class Publisher:
    """A publisher that knows what is confirmed."""

    def __init__(self, line: socket.socket, job: DurableJob, confirmed: bool) -> None:
        dialect = DURABLE_DIALECTS[job.dialect]
        frames, length = cycle(lambda head, body: dialect.publication(job.topic, head, body, confirmed), job.body)
        self.line = line
        self.lane = Lane(frames, length)
        self._token = dialect.confirmation
        self.confirmed = 0
        self._tail = b""

    def write(self, messages: int) -> None:
        """Send so many more, as far as the socket takes them."""
        data = self.lane.following(messages, WRITE_BYTES)
        if data:
            with suppress(BlockingIOError):
                self.lane.bytes_sent += self.line.send(data)

    def take(self, data: bytes) -> None:
        """Confirmations came."""
        seen = self._tail + data
        if b"ERROR\n" in seen or b"-ERR" in seen:
            raise ConnectionError(f"the broker refused: {seen[:500]!r}")
        self.confirmed += seen.count(self._token)
        self._tail = seen[-(len(self._token) - 1) :]


class Run:
    """The connections of one run."""

    def __init__(self, job: DurableJob) -> None:
        self._job = job
        self._dialect = DURABLE_DIALECTS[job.dialect]
        self._poll = select.epoll()
        self._room = bytearray(READ_BYTES)
        self._lines: list[socket.socket] = []
        self.consumers: dict[int, Consumer] = {}
        self.publisher: Publisher | None = None

    def connect(self, name: str = "") -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._job.port), SETUP_SECONDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._dialect.greet(line, name)
        self._lines.append(line)
        return line

    def close(self) -> None:
        for line in self._lines:
            line.close()

    def declare(self) -> None:
        self._dialect.declare(self.connect(), self._job.topic)

    def names(self) -> list[str]:
        return [f"{self._job.topic.replace('.', '-')}-{place}" for place in range(self._job.subscribers)]

    def subscribe(self, durable: bool = True) -> None:
        for name in self.names():
            line = self.connect(name if durable else "")
            if durable:
                self._dialect.subscribe(line, self._job.topic, name, PREFETCH)
            else:
                self._dialect.listen(line, self._job.topic)
            self.consumers[line.fileno()] = Consumer(line, self._job)
            self._poll.register(line, select.EPOLLIN)

    def leave(self) -> None:
        """Subscribers go; what they subscribed to durably stays."""
        # Their subscriptions are made by now: over the same connection something later was answered.
        time.sleep(1.0)
        for consumer in self.consumers.values():
            self._poll.unregister(consumer.line)
            consumer.line.close()
        self.consumers = {}
        time.sleep(0.5)

    def publish(self, confirmed: bool = True) -> Publisher:
        line = self.connect()
        self._dialect.ready(line)
        line.setblocking(False)
        self.publisher = Publisher(line, self._job, confirmed)
        self._poll.register(line, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        return self.publisher

    def receive(self, seconds: float, acknowledges: bool = True) -> int:
        """Take what comes; how many bytes it was."""
        size = 0
        for number, _ in self._poll.poll(max(0.0, seconds)):
            consumer = self.consumers.get(number)
            if consumer is not None:
                data = b""
                with suppress(ConnectionError):
                    data = consumer.line.recv(READ_BYTES)
                if not data:
                    # Some brokers hang up on subscribers that fall behind.
                    self._poll.unregister(number)
                    del self.consumers[number]
                    continue
                consumer.take(data, acknowledges)
                size += len(data)
            elif self.publisher is not None:
                self._confirmations(self.publisher)
        return size

    def _confirmations(self, publisher: Publisher) -> None:
        """All of them: the socket says once that there is something."""
        while True:
            try:
                data = publisher.line.recv(READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionError("the broker closed the publisher's connection")
            publisher.take(data)

    @property
    def slowest(self) -> int:
        return min((each.received for each in self.consumers.values()), default=0)


def run(job: DurableJob) -> DurableOutcome:
    """Do what the job says."""
    found = Run(job)
    try:
        return {"flow": _flow, "fill": _fill, "drain": _drain, "burst": _burst}[job.mode](job, found)
    finally:
        found.close()


def _flow(job: DurableJob, run: Run) -> DurableOutcome:
    run.declare()
    run.subscribe()
    # What they asked for is there before anything is sent: each broker handles a connection's frames in turn.
    time.sleep(0.5)
    publisher = run.publish()

    def until(end: float) -> None:
        while (left := end - time.perf_counter()) > 0:
            begun = publisher.lane.begun
            credit = min(WINDOW - (begun - publisher.confirmed), MOST_BEHIND - (begun - run.slowest))
            publisher.write(max(0, credit))
            run.receive(min(left, 0.02 if credit > 0 else 0.2))

    def done() -> int:
        return min(publisher.confirmed, run.slowest)

    until(time.perf_counter() + job.warm_up)
    before, usage = done(), Usage(job.pid)
    until(time.perf_counter() + job.seconds)
    spent, counted = usage.spent(), done() - before
    lost = _finish(run, publisher)
    return DurableOutcome(
        messages_per_s=counted / spent.elapsed,
        broker_cpu_us=spent.broker / max(counted, 1) * 1e6,
        generator_busy=spent.own / spent.elapsed,
        others_busy=spent.others / spent.elapsed,
        messages=counted,
        lost=lost,
        seconds=spent.elapsed,
    )


def _finish(run: Run, publisher: Publisher) -> int:
    """Complete what was begun, wait for all of it and acknowledge it; how many deliveries did not come."""
    end = time.perf_counter() + DRAIN_SECONDS
    while time.perf_counter() < end:
        publisher.write(0)
        if min(publisher.confirmed, run.slowest) >= publisher.lane.begun and not publisher.lane.unfinished:
            break
        run.receive(0.02)
    for consumer in run.consumers.values():
        consumer.finish()
    run.receive(0.1)
    return sum(publisher.lane.begun - each.received for each in run.consumers.values())


def _fill(job: DurableJob, run: Run) -> DurableOutcome:
    run.declare()
    run.subscribe()
    run.leave()
    publisher = run.publish()
    usage, end = Usage(job.pid), time.perf_counter() + job.seconds
    while time.perf_counter() < end:
        begun = publisher.lane.begun
        credit = min(WINDOW - (begun - publisher.confirmed), job.count - begun)
        publisher.write(max(0, credit))
        run.receive(0.02)
        if publisher.confirmed >= job.count:
            break
    while publisher.lane.unfinished or publisher.confirmed < publisher.lane.begun:
        publisher.write(0)
        run.receive(0.02)
    spent = usage.spent()
    return _counted(spent, publisher.confirmed)


def _drain(job: DurableJob, run: Run) -> DurableOutcome:
    began = heard = time.perf_counter()
    run.subscribe()
    # A broker that was just started may have to recover first.
    while not run.slowest and run.consumers and time.perf_counter() - began < SETUP_SECONDS:
        run.receive(0.2)
    first, usage, before = time.perf_counter() - began, Usage(job.pid), run.slowest
    heard = time.perf_counter()
    while run.slowest < job.count and run.consumers and time.perf_counter() - heard < SILENCE_SECONDS:
        if run.receive(0.2):
            heard = time.perf_counter()
    spent, got = usage.spent(), run.slowest
    for consumer in run.consumers.values():
        consumer.finish()
    time.sleep(0.2)
    return replace(_counted(spent, got - before), lost=job.count - got, first_seconds=first)


def _burst(job: DurableJob, run: Run) -> DurableOutcome:
    run.subscribe(durable=False)
    time.sleep(0.2)
    publisher, everybody = run.publish(confirmed=False), dict(run.consumers)
    usage, start = Usage(job.pid), time.perf_counter()
    heard, count = start, job.count
    while True:
        now = time.perf_counter()
        begun = publisher.lane.begun
        if now - start > job.seconds:
            # It is paused all the while: what has gone out is the burst.
            count = min(count, begun)
        publisher.write(count - begun)
        if now - start < job.stall:
            heard = now
            select.select([], [publisher.line] if begun < count else [], [], 0.01)
            continue
        if run.receive(0.01, acknowledges=False):
            heard = now
        done = begun >= count and not publisher.lane.unfinished and run.slowest >= count
        if done or not run.consumers or now - heard > SILENCE_SECONDS or now - start > job.seconds + BURST_SECONDS:
            break
    missing = sum(count - each.received for each in everybody.values())
    still_came = bool(run.consumers) and time.perf_counter() - heard <= SILENCE_SECONDS
    found = _counted(usage.spent(), count)
    return replace(found, late=missing) if still_came else replace(found, lost=missing)


def _counted(spent: Spent, messages: int) -> DurableOutcome:
    return DurableOutcome(
        messages_per_s=messages / spent.elapsed,
        broker_cpu_us=spent.broker / max(messages, 1) * 1e6,
        generator_busy=spent.own / spent.elapsed,
        others_busy=spent.others / spent.elapsed,
        messages=messages,
        seconds=spent.elapsed,
    )


def main() -> None:
    """Answer one job on the standard input."""
    print(json.dumps(asdict(run(DurableJob(**json.load(sys.stdin))))))
