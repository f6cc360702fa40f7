"""The clients of the paper's scenario in one process: 200 publishers, 500 subscribers, 500 topics.

Each publisher sends to ten topics in turn, each subscriber wants one topic, and some topics are wanted by nobody.
Paced, all together send 5,000 messages a second, and latency is the time from when a message was due to when it was
read. Flooding, they send as much as gets through.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any, NamedTuple

import numpy as np

from postroad.lab.helper_processes import serve_lines
from postroad.lab.load_frames import MARKER, Stomp, body, header_lines

__all__ = ["PROGRAM", "RATE", "SceneClients", "ScenePlan", "main", "scene_plan"]

PROGRAM = "from postroad.lab.papers.tracked_clients import main; main()"
PUBLISHERS, SUBSCRIBERS, TOPICS, TOPICS_EACH = 200, 500, 500, 10
PER_PUBLISHER = 25
RATE = PUBLISHERS * PER_PUBLISHER
BODY_BYTES = 100
READ_BYTES = 256 * 1024
# Due messages are sent this often, five messages of five publishers each time.
BURST_SECONDS = 0.001
# Deliveries under way while flooding, at most. A queue holds 10,000, so nothing is shed.
WINDOW = 8_192
# Messages that a flooding publisher writes at once: its topics, twice.
CHUNK = 20
DRAIN_SECONDS = 20.0
SETUP_SECONDS = 60.0
_DIGITS = 8


class ScenePlan(NamedTuple):
    """Who publishes and wants what.

    Attributes:
        topics: of each publisher.
        wanted: the topic of each subscriber.
        readers: how many want each topic.
    """

    topics: list[list[int]]
    wanted: list[int]
    readers: list[int]


def scene_plan(
    seed: int = 1, publishers: int = PUBLISHERS, subscribers: int = SUBSCRIBERS, topics: int = TOPICS
) -> ScenePlan:
    """Return the paper's plan: topics have equally many publishers, and a random number of subscribers."""
    random = np.random.default_rng(seed)
    order = random.permutation(topics)
    places = np.arange(publishers * TOPICS_EACH).reshape(publishers, TOPICS_EACH)
    wanted = random.integers(0, topics, subscribers)
    return ScenePlan(order[places % topics].tolist(), wanted.tolist(), np.bincount(wanted, minlength=topics).tolist())


class SceneClients:
    """All clients, connected to one broker."""

    def __init__(self, port: int, chosen: ScenePlan, dialect: Stomp | None = None) -> None:
        self._plan = chosen
        self._dialect = dialect or Stomp()
        self._port = port
        self._publishers = [self._line() for _ in chosen.topics]
        self._subscribers: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        for topic in chosen.wanted:
            line = self._line()
            self._dialect.subscribe(line, _name(topic), [""])
            line.setblocking(False)
            self._subscribers[line.fileno()] = line
            self._poll.register(line, select.EPOLLIN)
        for line in self._publishers:
            line.setblocking(False)

    def close(self) -> None:
        """Close all connections."""
        self._poll.close()
        for line in [*self._publishers, *self._subscribers.values()]:
            line.close()

    def _line(self) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._port), SETUP_SECONDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._dialect.greet(line)
        return line

    def _frame(self, topic: int, number: int) -> bytes:
        return self._dialect.publication(_name(topic), header_lines(number), body(number, BODY_BYTES))

    # --- paced -----------------------------------------------------------------------------------------------------

    def pace(self, seconds: float, warm_up: float = 1.0, rate: int = RATE, seed: int = 2) -> dict[str, Any]:
        """Send this many messages a second; return the latency in ms of those after the warm-up, from due to read."""
        due, senders = self._schedule(seconds + warm_up, rate, seed)
        turns = [0] * len(self._publishers)
        expected = received = sent = 0
        latencies: list[float] = []
        rests: dict[int, bytes] = {}
        begun, own = time.perf_counter(), time.process_time()
        end = begun + seconds + warm_up + DRAIN_SECONDS
        while (sent < len(due) or received < expected) and (now := time.perf_counter()) < end:
            while sent < len(due) and begun + due[sent] <= now:
                sender = senders[sent]
                topic = self._plan.topics[sender][turns[sender] % TOPICS_EACH]
                turns[sender] += 1
                self._send(sender, self._frame(topic, sent))
                expected += self._plan.readers[topic]
                sent += 1
            waiting = begun + due[sent] - time.perf_counter() if sent < len(due) else BURST_SECONDS
            # Unlike epoll alone, select accepts times below a millisecond.
            if select.select([self._poll], [], [], max(0.0, waiting))[0]:
                numbers, read_at = self._numbers(rests)
                received += len(numbers)
                latencies += [read_at - begun - due[number] for number in numbers if due[number] >= warm_up]
        elapsed = time.perf_counter() - begun
        times = np.array(latencies) * 1_000
        p50, p99 = np.percentile(times, [50, 99]).tolist()
        return {
            "messages": sent,
            "lost": expected - received,
            "seconds": elapsed,
            "mean_ms": float(times.mean()),
            "p50_ms": p50,
            "p99_ms": p99,
            "generator_busy": (time.process_time() - own) / elapsed,
        }

    def _schedule(self, seconds: float, rate: int, seed: int) -> tuple[list[float], list[int]]:
        """Return when messages are due, and who sends each: every publisher evenly, with its own offset."""
        publishers = len(self._publishers)
        phases = np.random.default_rng(seed).random(publishers)
        rounds = int(seconds * rate / publishers)
        due = ((np.arange(rounds)[:, None] + phases) * publishers / rate).ravel()
        senders = np.tile(np.arange(publishers), rounds)
        order = np.argsort(due, kind="stable")
        # A burst at a time: a process that sleeps 5,000 times a second would measure itself.
        return (np.ceil(due[order] / BURST_SECONDS) * BURST_SECONDS).tolist(), senders[order].tolist()

    def _send(self, sender: int, frame: bytes) -> None:
        taken = self._publishers[sender].send(frame)
        if taken != len(frame):
            raise ConnectionError(f"the broker does not keep up with publisher {sender} at the paper's rate")

    def _numbers(self, rests: dict[int, bytes]) -> tuple[list[int], float]:
        """Return the numbers of messages that can be read now, and when that was."""
        found: list[int] = []
        for place, _ in self._poll.poll(0):
            data = rests.pop(place, b"") + self._read(place)
            pieces = data.split(MARKER)
            found += [int(piece[:_DIGITS]) for piece in pieces[1:] if len(piece) >= _DIGITS]
            if len(pieces) > 1 and len(pieces[-1]) < _DIGITS:
                rests[place] = MARKER + pieces[-1]
        return found, time.perf_counter()

    def _read(self, place: int) -> bytes:
        data = self._subscribers[place].recv(READ_BYTES)
        if not data:
            raise ConnectionError("the broker closed a subscriber's connection")
        return data

    # --- flooding --------------------------------------------------------------------------------------------------

    def flood(self, seconds: float, warm_up: float = 0.5) -> dict[str, Any]:
        """Send as many messages as get through."""
        chunks, wanted = self._chunks()
        unsent: dict[int, memoryview] = {}
        expected = received = sent = 0
        sender = 0
        marks: list[tuple[float, int, int, int]] = []
        own = time.process_time()
        begun = time.perf_counter()
        ends = [begun + warm_up, begun + warm_up + seconds]
        while len(marks) < len(ends):
            now = time.perf_counter()
            if now >= ends[len(marks)]:
                marks.append((now, received, sent, expected))
            while expected - received < WINDOW and len(unsent) < len(chunks):
                sender = (sender + 1) % len(chunks)
                if sender in unsent:
                    continue
                self._push(sender, memoryview(chunks[sender]), unsent)
                expected += wanted[sender]
                sent += CHUNK
            received += self._receive(0.001 if unsent else 0.01)
            for late in list(unsent):
                self._push(late, unsent.pop(late), unsent)
        end = time.perf_counter() + DRAIN_SECONDS
        while (unsent or received < expected) and time.perf_counter() < end:
            for late in list(unsent):
                self._push(late, unsent.pop(late), unsent)
            received += self._receive(0.01)
        (start, before, sent_before, due_before), (stop, after, sent_after, due_after) = marks
        elapsed = stop - start
        # Messages that were through by the end: those sent, less those whose deliveries were still under way.
        fan_out = expected / max(sent, 1)
        through = sent_after - sent_before - ((due_after - after) - (due_before - before)) / fan_out
        return {
            "messages": sent,
            "lost": expected - received,
            "messages_per_s": through / elapsed,
            "deliveries_per_s": (after - before) / elapsed,
            "generator_busy": (time.process_time() - own) / (time.perf_counter() - begun),
        }

    def _chunks(self) -> tuple[list[bytes], list[int]]:
        """Return what each publisher sends repeatedly, and how many deliveries result."""
        chunks, wanted = [], []
        for number, topics in enumerate(self._plan.topics):
            names = [topics[place % TOPICS_EACH] for place in range(CHUNK)]
            chunks.append(b"".join(self._frame(name, number * CHUNK + place) for place, name in enumerate(names)))
            wanted.append(sum(self._plan.readers[name] for name in names))
        return chunks, wanted

    def _push(self, sender: int, data: memoryview, unsent: dict[int, memoryview]) -> None:
        try:
            taken = self._publishers[sender].send(data)
        except BlockingIOError:
            taken = 0
        if taken < len(data):
            unsent[sender] = data[taken:]

    def _receive(self, seconds: float) -> int:
        return sum(self._read(place).count(MARKER) for place, _ in self._poll.poll(seconds))


def _name(topic: int) -> str:
    return f"scene.{topic:03d}"


class _Load:
    """Clients that come and go on request."""

    def __init__(self) -> None:
        self._clients: SceneClients | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        do = question.pop("do")
        if do == "connect":
            self._clients = SceneClients(question["port"], scene_plan())
            return {}
        assert self._clients is not None
        if do == "pace":
            return self._clients.pace(**question)
        if do == "flood":
            return self._clients.flood(**question)
        if do == "close":
            self._clients.close()
            self._clients = None
            return {}
        raise ValueError(f"clients can connect, pace, flood and close, not {do}")


def main() -> None:
    """The process."""
    serve_lines(_Load().answer)
