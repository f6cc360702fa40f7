"""The home of a queue, and brokers whose clients use it from there, are killed under load: nothing lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from postroad.topology import Plan, Settings, cluster, line, tree
from tests.server.processes import PlainClient, forked_brokers, wait_until
from tests.server.queue_fleet import QUEUE, QueueCrowd, QueueFleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.topology import Graph, Hierarchy, StrategyName
    from tests.server.processes import Brokers

PAIR = Plan.of(line(2), "pair")
# The shape, and of its brokers: the home of the queue, one on the way to it, and one that the clients are at.
ROUTED: dict[StrategyName, tuple[Graph | Hierarchy, int, int, int]] = {
    "drp": (line(3), 1, 2, 3),
    "flood": (line(3), 1, 2, 3),
    "tree": (tree(3, fan_out=1), 1, 2, 3),
    "cluster": (cluster(2, 1, 0, 0), 3, 1, 4),
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def test_messages_sent_elsewhere_outlive_kills_of_the_home_and_of_their_own_broker(
    tmp_path: Path, brokers: Brokers
) -> None:
    fleet = QueueFleet(PAIR, 1, tmp_path, brokers)
    fleet.start()
    with QueueCrowd(fleet, 2, (1, 2)) as crowd:
        for killed in (1, 2, 1):
            crowd.wait_for_more()
            fleet.kill(killed)
            if killed == 1:
                # Their own broker keeps what comes while the home is down.
                crowd.wait_for_more()
            fleet.start(killed)
        crowd.wait_for_more()
        crowd.drain()
    assert crowd.ledger.faults == []
    assert all("has the queue, is gone or out of reach" in each for each in crowd.ledger.told)


@pytest.mark.parametrize("strategy", ROUTED)
def test_queue_of_a_broker_without_a_link_outlives_kills_of_it_and_of_a_broker_on_the_way(
    strategy: StrategyName, tmp_path: Path, brokers: Brokers
) -> None:
    shape, home, between, far = ROUTED[strategy]
    plan = Plan.of(shape, "routed", strategy=strategy, settings=Settings(heartbeat_ms=500))
    fleet = QueueFleet(plan, home, tmp_path, brokers)
    fleet.start()
    with QueueCrowd(fleet, far, (home, far)) as crowd:
        for killed in (between, home):
            # Something has come to a worker at the home, or from it, before and after each kill.
            crowd.wait_for_more_answers()
            fleet.kill(killed)
            crowd.wait_for_more()
            fleet.start(killed)
        crowd.drain()
    assert crowd.ledger.faults == []


def test_trace_tells_of_a_message_that_waited_for_the_home_of_its_queue(tmp_path: Path, brokers: Brokers) -> None:
    pair = QueueFleet(PAIR, 1, tmp_path, brokers, "exact")
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
        pair.kill_all()


def _stops(journey: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The brokers on the way: each with the one before it, and how many subscriptions got the message there."""
    return [(each["broker"], each["from"], len(each["delivered"])) for each in journey["stops"]]
