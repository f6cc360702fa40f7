"""A broker that is killed under load: each confirmed message is processed, and none again that was settled for sure."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from tests.server.crash_clients import Link, Publisher
from tests.server.processes import forked_brokers, wait_until
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.processes import Brokers

LIVES = 3
CONFIRMED_PER_LIFE = 100
QUEUE = "/queue/work"

Message = tuple[str, int]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


class Ledger:
    """What all workers saw together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.handed: set[Message] = set()
        # What was acknowledged, and of that, what was confirmed to be.
        self.acknowledged: set[Message] = set()
        self.settled: set[Message] = set()
        self.faults: list[str] = []

    def take(self, message: Message, again: bool) -> None:
        with self.lock:
            if message in self.settled:
                self.faults.append(f"{message} came again, though its acknowledgement was confirmed")
            if message in self.handed and not again:
                self.faults.append(f"{message} came again, and is not marked")
            self.handed.add(message)


class Worker:
    """Acknowledges most of what it gets, refuses some, and keeps some until the broker dies."""

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        self.name = name
        self.ledger = ledger
        self.careful = False
        self._chance = random.Random(seed)

    def live(self, port: int) -> None:
        acknowledging: dict[str, Message] = {}
        with suppress(OSError), closing(Link(port, self.name)) as link:
            asked = {"id": "1", "ack": "client-individual", "prefetch-count": "30"}
            link.say("SUBSCRIBE", {"destination": QUEUE, **asked})
            while True:
                frame = link.frame()
                if frame.command == "RECEIPT":
                    with self.ledger.lock:
                        self.ledger.settled.add(acknowledging.pop(frame.headers["receipt-id"]))
                    continue
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


def test_confirmed_messages_are_processed_through_kills_and_not_again_after_that(
    tmp_path: Path, brokers: Brokers
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"port = 0\ndata = '{tmp_path}'\n[tracking]\nrecorder = 'none'\n"
        "[store]\nsegment_bytes = 65536\n[queues]\nmax_deliveries = 100\nredelivery_ms = 10\n"
    )
    ledger = Ledger()
    publishers = [Publisher(f"p{number}", QUEUE) for number in range(2)]
    workers = [Worker(f"w{number}", ledger, number) for number in range(3)]
    broker = brokers.start(settings).wait_until_ready()
    for _ in range(LIVES):
        before = sum(len(each.confirmed) for each in publishers)
        threads = [threading.Thread(target=each.live, args=(broker.port(), threading.Event())) for each in publishers]
        threads += [threading.Thread(target=each.live, args=(broker.port(),)) for each in workers]
        for thread in threads:
            thread.start()
        enough = before + CONFIRMED_PER_LIFE
        wait_until(lambda enough=enough: sum(len(each.confirmed) for each in publishers) >= enough)  # type: ignore[misc]
        broker.end(signal.SIGKILL)
        for thread in threads:
            thread.join(3 * PATIENCE)
            assert not thread.is_alive()
        broker = brokers.start(settings).wait_until_ready()
    confirmed = {(each.name, number) for each in publishers for number in each.confirmed}
    for worker in workers:
        worker.careful = True
    threads = [threading.Thread(target=each.live, args=(broker.port(),)) for each in workers]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: confirmed <= ledger.acknowledged or ledger.faults)
    finally:
        broker.end(signal.SIGKILL)
        for thread in threads:
            thread.join(3 * PATIENCE)
    assert ledger.faults == []
    assert len(confirmed) >= LIVES * CONFIRMED_PER_LIFE
