"""Consumers of a queue whose brokers are killed, and what they saw together."""

from __future__ import annotations

import random
import threading
from contextlib import closing, suppress

from tests.server.crash_clients import Link

Message = tuple[str, int]


class QueueLedger:
    """What all workers saw together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.handed: set[Message] = set()
        # What was acknowledged, and of that, what was confirmed to be.
        self.acknowledged: set[Message] = set()
        self.settled: set[Message] = set()
        self.faults: list[str] = []
        # What brokers said when they closed a connection.
        self.told: list[str] = []

    def take(self, message: Message, again: bool) -> None:
        with self.lock:
            if message in self.settled:
                self.faults.append(f"{message} came again, though its acknowledgement was confirmed")
            if message in self.handed and not again:
                self.faults.append(f"{message} came again, and is not marked")
            self.handed.add(message)


class QueueWorker:
    """Acknowledges most of what it gets, refuses some, and keeps some until the broker dies."""

    def __init__(self, name: str, ledger: QueueLedger, seed: int, queue: str = "/queue/work") -> None:
        self.name = name
        self.ledger = ledger
        self.careful = False
        self._chance = random.Random(seed)
        self._queue = queue
        self._link: Link | None = None

    def leave(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.hang_up()

    def live(self, port: int) -> None:
        acknowledging: dict[str, Message] = {}
        with suppress(OSError), closing(Link(port, self.name)) as link:
            self._link = link
            asked = {"id": "1", "ack": "client-individual", "prefetch-count": "30"}
            link.say("SUBSCRIBE", {"destination": self._queue, **asked})
            while True:
                frame = link.frame()
                if frame.command == "RECEIPT":
                    with self.ledger.lock:
                        self.ledger.settled.add(acknowledging.pop(frame.headers["receipt-id"]))
                    continue
                if frame.command == "ERROR":
                    # The home of the queue is gone.
                    with self.ledger.lock:
                        self.ledger.told.append(frame.headers["message"])
                    return
                assert frame.command == "MESSAGE", frame
                message = frame.headers["by"], int(frame.body)
                self.ledger.take(message, frame.headers.get("redelivered") == "true")
                chance, ack = self._chance.random(), frame.headers["ack"]
                if self.careful or chance < 0.8:
                    acknowledging[ack] = message
                    with self.ledger.lock:
                        self.ledger.acknowledged.add(message)
                    link.say("ACK", {"id": ack, "receipt": ack})
                elif chance < 0.9:
                    link.say("NACK", {"id": ack})
