"""The home of a queue, and a broker whose clients use it from there, are killed under load: nothing lost or doubled."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.crash_clients import Publisher
from tests.server.fleet import free_ports
from tests.server.processes import PlainClient, forked_brokers, wait_until
from tests.server.queue_workers import QueueLedger, QueueWorker
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.processes import BrokerProcess, Brokers

QUEUE = "/queue/work"
CONFIRMED_PER_LIFE = 60


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


class Pair:
    """Two brokers that are linked; the first one has the queue."""

    def __init__(self, folder: Path, brokers: Brokers, tracking: str = "none") -> None:
        ports = dict(zip((1, 2), free_ports(2), strict=True))
        self.running: dict[int, BrokerProcess] = {}
        self._brokers, self._files = brokers, {number: folder / f"broker-{number}.toml" for number in ports}
        for number, other in ((1, 2), (2, 1)):
            self._files[number].write_text(
                f"number = {number}\nport = 0\nadmin_port = 0\ndata = '{folder}/{number}'\n"
                f"[tracking]\nrecorder = '{tracking}'\n[store]\nsegment_bytes = 65536\n"
                "[queues]\nmax_deliveries = 100\nredelivery_ms = 10\n"
                f"[network]\nport = {ports[number]}\ndelivery = 'custody'\nbrokers = [1, 2]\n"
                "queue_homes = { work = 1 }\n"
                f"[[network.neighbours]]\nnumber = {other}\nhost = '127.0.0.1'\nport = {ports[other]}\n"
            )

    def start(self, number: int) -> None:
        self.running[number] = self._brokers.start(self._files[number]).wait_until_ready()

    def kill(self, number: int) -> None:
        self.running.pop(number).end(signal.SIGKILL)

    def port(self, number: int) -> int:
        return self.running[number].port()


class Crowd:
    """Clients that come again whenever their broker is there."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.ledger = QueueLedger()
        self.publishers = [Publisher(f"p{number}", QUEUE) for number in range(2)]
        self.workers = {QueueWorker(f"w{number}", self.ledger, number, QUEUE): number for number in (1, 2)}
        self.stops, self.quiet = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self._publish, args=(each,)) for each in self.publishers]
        self.threads += [threading.Thread(target=self._work, args=each) for each in self.workers.items()]

    def _publish(self, publisher: Publisher) -> None:
        while not self.stops.is_set():
            if 2 in self.pair.running:
                publisher.live(self.pair.port(2), self.quiet)
            self.stops.wait(0.05)

    def _work(self, worker: QueueWorker, number: int) -> None:
        while not self.stops.is_set():
            if number in self.pair.running:
                worker.live(self.pair.port(number))
            self.stops.wait(0.05)

    @property
    def confirmed(self) -> set[tuple[str, int]]:
        return {(each.name, number) for each in self.publishers for number in list(each.confirmed)}

    def wait_for_more(self) -> None:
        enough = len(self.confirmed) + CONFIRMED_PER_LIFE
        wait_until(lambda: len(self.confirmed) >= enough)

    def end(self) -> None:
        self.stops.set()
        for publisher in self.publishers:
            publisher.leave()
        for worker in self.workers:
            worker.leave()
        for thread in self.threads:
            thread.join(3 * PATIENCE)


def test_messages_sent_elsewhere_outlive_kills_of_the_home_and_of_their_own_broker(
    tmp_path: Path, brokers: Brokers
) -> None:
    pair = Pair(tmp_path, brokers)
    pair.start(1)
    pair.start(2)
    crowd = Crowd(pair)
    for thread in crowd.threads:
        thread.start()
    try:
        for killed in (1, 2, 1):
            crowd.wait_for_more()
            pair.kill(killed)
            if killed == 1:
                # Their own broker keeps what comes while the home is down.
                crowd.wait_for_more()
            pair.start(killed)
        crowd.wait_for_more()
        crowd.quiet.set()
        for worker in crowd.workers:
            worker.careful = True
            # What it kept comes back.
            worker.leave()
        wait_until(lambda: crowd.confirmed <= crowd.ledger.acknowledged or crowd.ledger.faults)
    finally:
        crowd.end()
        for number in list(pair.running):
            pair.kill(number)
    assert crowd.ledger.faults == []
    assert all("has the queue, is gone or out of reach" in each for each in crowd.ledger.told)


def test_trace_tells_of_a_message_that_waited_for_the_home_of_its_queue(tmp_path: Path, brokers: Brokers) -> None:
    pair = Pair(tmp_path, brokers, "exact")
    pair.start(2)
    client = PlainClient(pair.port(2))
    try:
        (message,) = client.publish(QUEUE, 1)
        assert pair.running[2].trace(message)["verdict"] == "waiting in a queue"
        pair.start(1)
        client.subscribe(QUEUE)
        client.receive(1)
        # A broker that a busy machine keeps from answering is asked again.
        wait_until(lambda: _stops(pair.running[2].trace(message)) == [(2, 0, 1), (1, 2, 1)])
        first = pair.running[2].trace(message)["stops"][0]
        assert [each["reason"] for each in first["dropped"]] == ["held", "sent on"]
    finally:
        client.close()
        for number in list(pair.running):
            pair.kill(number)


def _stops(journey: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The brokers on the way: each with the one before it, and how many subscriptions got the message there."""
    return [(each["broker"], each["from"], len(each["delivered"])) for each in journey["stops"]]
