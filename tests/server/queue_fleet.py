"""Brokers of a plan as processes that share a queue, and clients that come again whenever their broker is there."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import msgspec

from postroad.broker import QueueSettings
from postroad.config import TrackingConfig, broker_config
from postroad.network.configuration import write_config
from postroad.store import StoreSettings
from tests.server.crash_clients import Publisher
from tests.server.fleet import free_ports
from tests.server.processes import wait_until
from tests.server.queue_workers import QueueLedger, QueueWorker
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from postroad.config import RecorderName
    from postroad.topology import Plan
    from tests.server.processes import BrokerProcess, Brokers

QUEUE = "/queue/work"
CONFIRMED_PER_LIFE = 60
ANSWERED_PER_LIFE = 20


class QueueFleet:
    """The brokers of a plan; one of them has the queue."""

    def __init__(self, plan: Plan, home: int, folder: Path, brokers: Brokers, tracking: RecorderName = "none") -> None:
        ports = iter(free_ports(2 * len(plan.brokers)))
        placed = tuple(msgspec.structs.replace(one, port=next(ports), link_port=next(ports)) for one in plan.brokers)
        plan = msgspec.structs.replace(plan, brokers=placed, delivery="custody", queue_homes={"work": home})
        self.home = home
        self.running: dict[int, BrokerProcess] = {}
        self._brokers = brokers
        self._files = {one.number: folder / f"broker-{one.number}.toml" for one in placed}
        for number, path in self._files.items():
            made = broker_config(plan, number, folder / str(number), admin_port=0)
            made = msgspec.structs.replace(
                made,
                tracking=TrackingConfig(recorder=tracking),
                store=StoreSettings(segment_bytes=65_536),
                queues=QueueSettings(max_deliveries=100, redelivery_ms=10),
            )
            write_config(path, made)

    def start(self, *numbers: int) -> None:
        for number in numbers or self._files:
            self.running[number] = self._brokers.start(self._files[number]).wait_until_ready()

    def kill(self, number: int) -> None:
        self.running.pop(number).end(signal.SIGKILL)

    def kill_all(self) -> None:
        for number in list(self.running):
            self.kill(number)

    def port(self, number: int) -> int:
        return self.running[number].port()


class QueueCrowd:
    """Publishers at one broker and a worker at each of some, which come again whenever their broker is there."""

    def __init__(self, fleet: QueueFleet, publishes_at: int, works_at: Iterable[int]) -> None:
        self.fleet = fleet
        self.ledger = QueueLedger()
        self._publishes_at = publishes_at
        self.publishers = [Publisher(f"p{number}", QUEUE, pause=0.01) for number in range(2)]
        self.workers = {QueueWorker(f"w{number}", self.ledger, number, QUEUE): number for number in works_at}
        self.stops, self.quiet = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self._publish, args=(each,)) for each in self.publishers]
        self.threads += [threading.Thread(target=self._work, args=each) for each in self.workers.items()]

    def _publish(self, publisher: Publisher) -> None:
        while not self.stops.is_set():
            if self._publishes_at in self.fleet.running:
                publisher.live(self.fleet.port(self._publishes_at), self.quiet)
            self.stops.wait(0.05)

    def _work(self, worker: QueueWorker, number: int) -> None:
        while not self.stops.is_set():
            if number in self.fleet.running:
                worker.live(self.fleet.port(number))
            self.stops.wait(0.05)

    @property
    def confirmed(self) -> set[tuple[str, int]]:
        return {(each.name, number) for each in self.publishers for number in list(each.confirmed)}

    def wait_for_more(self) -> None:
        enough = len(self.confirmed) + CONFIRMED_PER_LIFE
        wait_until(lambda: len(self.confirmed) >= enough)

    def wait_for_more_answers(self) -> None:
        """Wait until some more acknowledgements were confirmed."""
        enough = len(self.ledger.settled) + ANSWERED_PER_LIFE
        wait_until(lambda: len(self.ledger.settled) >= enough)

    def drain(self) -> None:
        """Publish nothing more, and wait until all that was confirmed is acknowledged."""
        self.quiet.set()
        for worker in self.workers:
            worker.careful = True
            # What it kept comes back.
            worker.leave()
        wait_until(lambda: self.confirmed <= self.ledger.acknowledged or self.ledger.faults)

    def __enter__(self) -> QueueCrowd:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.fleet.kill_all()

    def end(self) -> None:
        self.stops.set()
        for publisher in self.publishers:
            publisher.leave()
        for worker in self.workers:
            worker.leave()
        for thread in self.threads:
            thread.join(3 * PATIENCE)
