"""A client returns to its durable subscription with another selector, while brokers are killed.

What other brokers had confirmed before they learned of the change comes by the selector of that time.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from postroad.topology import Plan, Settings, line
from tests.server.crash_clients import Link
from tests.server.processes import forked_brokers, wait_until
from tests.server.queue_fleet import QueueFleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.server.processes import Brokers

KINDS = 3


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def subscribe(link: Link, kind: int) -> None:
    durable = {"id": "1", "activemq.subscriptionName": "some", "ack": "client-individual", "receipt": "subscribed"}
    link.say("SUBSCRIBE", {"destination": "/topic/a", "selector": f"kind = {kind}", **durable})


def change(port: int, kind: int) -> None:
    """Return for a moment, and take nothing for good."""
    with closing(Link(port, "reader")) as link:
        subscribe(link, kind)
        while link.frame().command != "RECEIPT":
            pass


def publish(port: int, numbers: Iterable[int]) -> None:
    """Message n has kind n; all are confirmed."""
    with closing(Link(port, "writer")) as link:
        for number in numbers:
            link.say("SEND", {"destination": "/topic/a", "kind": str(number % KINDS), "receipt": "r"}, b"%d" % number)
            assert link.frame().command == "RECEIPT"


def take(port: int, kind: int, count: int) -> list[int]:
    """Return with a selector, and acknowledge so many messages."""
    got: dict[int, None] = {}
    with closing(Link(port, "reader")) as link:
        subscribe(link, kind)
        acknowledged = 0
        while acknowledged < count:
            frame = link.frame()
            if frame.command == "MESSAGE":
                got[int(frame.body)] = None
                link.say("ACK", {"id": frame.headers["ack"], "receipt": "acknowledged"})
            acknowledged += frame.headers.get("receipt-id") == "acknowledged"
    return list(got)


def figure(fleet: QueueFleet, number: int, name: str) -> int:
    return int(fleet.running[number].status()["statistics"][name])


def test_what_was_confirmed_elsewhere_comes_by_the_selector_that_counted_there_through_kills_of_all_brokers(
    tmp_path: Path, brokers: Brokers
) -> None:
    settings = Settings(heartbeat_ms=200, hold_ms=500)
    fleet = QueueFleet(Plan.of(line(3), "changes", settings=settings), 1, tmp_path, brokers)
    fleet.start()
    try:
        change(fleet.port(1), 1)
        wait_until(lambda: not figure(fleet, 1, "uninformed_brokers_now"))
        fleet.kill(1)
        publish(fleet.port(3), range(30))
        publish(fleet.port(2), range(30, 60))
        fleet.kill(2)
        fleet.kill(3)
        # The change is safe at its own broker before another one hears of it.
        fleet.start(1)
        change(fleet.port(1), 2)
        assert figure(fleet, 1, "former_versions_now") == 1
        fleet.kill(1)
        fleet.start(2, 3)
        publish(fleet.port(3), range(60, 69))
        fleet.start(1)
        wait_until(lambda: not figure(fleet, 2, "outgoing_messages_now") + figure(fleet, 3, "outgoing_messages_now"))
        wait_until(lambda: not figure(fleet, 1, "uninformed_brokers_now"))
        wait_until(lambda: not figure(fleet, 1, "former_versions_now"))
        fleet.kill(1)
        publish(fleet.port(3), range(69, 90))
        fleet.start(1)
        wanted = [number for number in range(69) if number % KINDS == 1]
        wanted += [number for number in range(69, 90) if number % KINDS == 2]
        assert sorted(take(fleet.port(1), 2, len(wanted))) == wanted
        wait_until(lambda: not figure(fleet, 3, "outgoing_messages_now"))
        assert figure(fleet, 1, "stored_messages_now") == 0
    finally:
        fleet.kill_all()
