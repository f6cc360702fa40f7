"""Clients of brokers that are killed: what they saw is the truth."""

from __future__ import annotations

import random
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from postroad.protocols.stomp import FrameReader, encode_frame
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    import threading

    from postroad.protocols.stomp import Frame

WINDOW = 40


class Link:
    """A connection that may break at any time."""

    def __init__(self, port: int, client: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        try:
            self.say("CONNECT", {"accept-version": "1.2", "host": "here", "client-id": client})
            assert self.frame().command == "CONNECTED"
        except BaseException:
            self._socket.close()
            raise

    def say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._socket.sendall(encode_frame(command, headers, body))

    def frame(self) -> Frame:
        while not self._frames:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker is gone")
            self._frames += self._reader.receive(data)
        return self._frames.pop(0)

    def hang_up(self) -> None:
        """End the conversation from another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class Publisher:
    """Sends numbered messages with receipts, some at a time; knows which were confirmed."""

    def __init__(self, name: str, destination: str = "/topic/a", pause: float = 0) -> None:
        self.name = name
        self._destination = destination
        # Between two answers, in seconds: consumers that answer one by one follow more slowly than publishers.
        self._pause = pause
        self.confirmed: list[int] = []
        self._next = 0
        self._link: Link | None = None

    def leave(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.hang_up()

    def live(self, port: int, until: threading.Event) -> None:
        """Publish until the broker dies."""
        with suppress(OSError), closing(Link(port, self.name)) as link:
            self._link = link
            under_way: set[int] = set()
            while True:
                while len(under_way) < WINDOW and not until.is_set():
                    headers = {"destination": self._destination, "receipt": str(self._next), "by": self.name}
                    link.say("SEND", headers, b"%d" % self._next)
                    under_way.add(self._next)
                    self._next += 1
                frame = link.frame()
                assert frame.command == "RECEIPT", frame
                under_way.discard(int(frame.headers["receipt-id"]))
                self.confirmed.append(int(frame.headers["receipt-id"]))
                if self._pause and not until.is_set():
                    until.wait(self._pause)


class DurableSubscriber:
    """Acknowledges most of what it gets; knows what it got, and which acknowledgements were confirmed."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.got: list[tuple[str, int, bool]] = []
        self.settled: set[tuple[str, int]] = set()
        self.handed: set[tuple[str, int]] = set()
        self.faults: list[str] = []
        # What it acknowledges of what it gets; the rest stays with it until the broker is killed.
        self.share = 0.9
        self._chance = random.Random(seed)
        self._link: Link | None = None

    def begin(self, port: int) -> None:
        """Subscribe, and leave again."""
        with closing(Link(port, self.name)) as link:
            durable = {"id": "1", "activemq.subscriptionName": "all", "ack": "client-individual", "receipt": "r"}
            link.say("SUBSCRIBE", {"destination": "/topic/a", **durable})
            assert link.frame().command == "RECEIPT"

    def leave(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.hang_up()

    def live(self, port: int) -> None:
        """Take messages until the broker dies."""
        acknowledging: dict[str, tuple[str, int]] = {}
        with suppress(OSError), closing(Link(port, self.name)) as link:
            self._link = link
            durable = {"id": "1", "activemq.subscriptionName": "all", "ack": "client-individual"}
            link.say("SUBSCRIBE", {"destination": "/topic/a", **durable})
            while True:
                frame = link.frame()
                if frame.command == "RECEIPT":
                    self.settled.add(acknowledging.pop(frame.headers["receipt-id"]))
                    continue
                assert frame.command == "MESSAGE", frame
                message = frame.headers["by"], int(frame.body)
                self._take(message, frame.headers.get("redelivered") == "true")
                if self._chance.random() < self.share:
                    receipt = frame.headers["ack"]
                    acknowledging[receipt] = message
                    link.say("ACK", {"id": frame.headers["ack"], "receipt": receipt})

    def _take(self, message: tuple[str, int], again: bool) -> None:
        if message in self.settled:
            self.faults.append(f"{message} came again, though its acknowledgement was confirmed")
        if message in self.handed and not again:
            self.faults.append(f"{message} came again, and is not marked")
        self.handed.add(message)
        self.got.append((*message, again))


def check_order(subscriber: DurableSubscriber) -> None:
    """Messages that came for the first time came in the order of their publisher."""
    first: dict[str, list[int]] = {}
    seen: set[tuple[str, int]] = set()
    for publisher, number, _ in subscriber.got:
        if (publisher, number) not in seen:
            seen.add((publisher, number))
            first.setdefault(publisher, []).append(number)
    for numbers in first.values():
        assert numbers == sorted(numbers)
