"""Durable subscribers of one broker, publishers at another: all are killed, and stay away longer than links wait.

What publishers saw confirmed reaches the subscriber, and not again after a confirmed acknowledgement.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from postroad.topology import Plan, Settings, cluster, line, tree
from tests.server.crash_clients import DurableSubscriber, Publisher, check_order
from tests.server.processes import PlainClient, forked_brokers, wait_until
from tests.server.queue_fleet import QueueFleet
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.topology import Graph, Hierarchy, StrategyName
    from tests.server.processes import Brokers

HOLD_MS = 500
CONFIRMED_PER_LIFE = 60
# The shape, and of its brokers: the subscriber's, one on the way to it, and the publisher's.
SHAPES: dict[StrategyName, tuple[Graph | Hierarchy, int, int, int]] = {
    "drp": (line(3), 1, 2, 3),
    "flood": (line(3), 1, 2, 3),
    "tree": (tree(3, fan_out=1), 1, 2, 3),
    "cluster": (cluster(2, 1, 0, 0), 3, 1, 4),
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


class DurableCrowd:
    """A publisher and a subscriber, which come again whenever their broker is there."""

    def __init__(self, fleet: QueueFleet, publishes_at: int, reads_at: int) -> None:
        self._fleet = fleet
        self.publisher, self.subscriber = Publisher("p", pause=0.005), DurableSubscriber("s", 1)
        self.subscriber.begin(fleet.port(reads_at))
        wait_until(lambda: fleet.running[reads_at].status()["statistics"]["uninformed_brokers_now"] == 0)
        self._stops, self.quiet = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(publishes_at,)),
            threading.Thread(target=self._read, args=(reads_at,)),
        ]

    def __enter__(self) -> DurableCrowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops.set()
        self.publisher.leave()
        self._fleet.kill_all()
        for thread in self._threads:
            thread.join(3 * PATIENCE)
            assert not thread.is_alive()

    def _publish(self, number: int) -> None:
        while not self._stops.is_set():
            if number in self._fleet.running:
                self.publisher.live(self._fleet.port(number), self.quiet)
            self._stops.wait(0.05)

    def _read(self, number: int) -> None:
        while not self._stops.is_set():
            if number in self._fleet.running:
                self.subscriber.live(self._fleet.port(number))
            self._stops.wait(0.05)

    def wait_for_more(self) -> None:
        enough = len(self.publisher.confirmed) + CONFIRMED_PER_LIFE
        wait_until(lambda: len(self.publisher.confirmed) >= enough)

    def missing(self) -> set[tuple[str, int]]:
        return {("p", number) for number in list(self.publisher.confirmed)} - self.subscriber.handed

    def drain(self) -> None:
        self.quiet.set()
        self.subscriber.share = 1.0
        # What it has not acknowledged keeps it from getting more.
        self.subscriber.leave()
        deadline = time.monotonic() + 3 * PATIENCE
        while self.missing() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert sorted(self.missing())[:5] == []


@pytest.mark.parametrize("strategy", SHAPES)
def test_confirmed_messages_reach_a_durable_subscriber_of_another_broker_through_kills_of_every_broker(
    strategy: StrategyName, tmp_path: Path, brokers: Brokers
) -> None:
    shape, reads_at, between, publishes_at = SHAPES[strategy]
    settings = Settings(heartbeat_ms=200, hold_ms=HOLD_MS)
    fleet = QueueFleet(Plan.of(shape, "durable", strategy=strategy, settings=settings), reads_at, tmp_path, brokers)
    fleet.start()
    with DurableCrowd(fleet, publishes_at, reads_at) as crowd:
        for killed in (reads_at, publishes_at, between, publishes_at):
            crowd.wait_for_more()
            fleet.kill(killed)
            if killed != publishes_at:
                # Away for longer than links hold messages, while the publisher goes on.
                time.sleep(2 * HOLD_MS / 1_000)
                crowd.wait_for_more()
            fleet.start(killed)
        crowd.wait_for_more()
        crowd.drain()
    assert crowd.subscriber.faults == []
    check_order(crowd.subscriber)


def test_trace_tells_of_a_message_that_waited_for_the_broker_of_a_durable_subscription(
    tmp_path: Path, brokers: Brokers
) -> None:
    pair = QueueFleet(Plan.of(line(2), "pair"), 1, tmp_path, brokers, "exact")
    pair.start()
    subscriber = DurableSubscriber("s", 1)
    subscriber.begin(pair.port(1))
    wait_until(lambda: pair.running[1].status()["statistics"]["uninformed_brokers_now"] == 0)
    pair.kill(1)
    client = PlainClient(pair.port(2))
    try:
        (message,) = client.publish("/topic/a", 1)
        assert pair.running[2].status()["statistics"]["outgoing_messages_now"] == 1
        (first,) = pair.running[2].trace(message)["stops"]
        assert {"reason": "held", "link": 1}.items() <= first["dropped"][0].items()
        pair.start(1)
        wait_until(lambda: pair.running[1].status()["statistics"]["stored_messages_now"] == 1)
        wait_until(lambda: pair.running[2].status()["statistics"]["outgoing_messages_now"] == 0)
        # A broker that a busy machine keeps from answering is asked again.
        wait_until(lambda: len(pair.running[2].trace(message)["stops"]) == 2)
        journey = pair.running[2].trace(message)
        assert [(stop["broker"], stop["from"]) for stop in journey["stops"]] == [(2, 0), (1, 2)]
        reasons = [each["reason"] for each in journey["stops"][0]["dropped"]]
        assert (reasons[0], reasons[-1]) == ("held", "sent on")
    finally:
        client.close()
        pair.kill_all()
