"""Simulated brokers take small frames that wait together, as live ones do, and change nothing else by it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.broker import Outbox
from postroad.capacity import BatchCosts
from postroad.messages import Batch, Draft
from postroad.routing.destinations import Destinations
from postroad.simulation import LinkQuality, ServiceTimes, SimulatedNetwork
from postroad.simulation.arrivals import SMALL_FRAME_BYTES, ArrivedFrame, joined
from postroad.simulation.host import Task
from postroad.topology import Graph, line
from tests.simulation.scene import SETTLED_MS, strategy

if TYPE_CHECKING:
    from collections.abc import Callable

# A read takes 5 ms, whatever is in it.
SLOW = ServiceTimes(BatchCosts(batch=5e-3))
HUB, LEAVES = 1, (2, 3, 4)
STAR = Graph((HUB, *LEAVES), dict.fromkeys([(HUB, leaf) for leaf in LEAVES], 1))


@pytest.mark.parametrize("custody", [False, True])
def test_busy_broker_catches_up_with_neighbours_that_relay_message_by_message(custody: bool) -> None:
    quality = LinkQuality(delay_ms=(1, 1))
    make = strategy("drp", custody)
    net = SimulatedNetwork(STAR, make, random.Random(1), quality=quality, custody=custody, service=SLOW)
    net.run(SETTLED_MS)
    net.subscribe(HUB, "all", ">")
    net.run(SETTLED_MS)
    before = net.host(HUB).busy_us
    for number in range(50):
        for leaf in LEAVES:
            net.offer(leaf, Batch.build([Draft(f"{leaf}.{number}")]))
        net.run(5)
    net.run(50)
    got = net.delivered["all"]
    assert len(got) == len(set(got)) == 150
    # One by one, 150 reads would keep the hub busy three times as long as messages came.
    assert net.host(HUB).busy_us - before < 300_000
    for leaf in LEAVES:
        tails = [one.tail for one in got if one.head & 0xFFFFFFFF == leaf]
        assert tails == sorted(tails)
    assert all(not way.unconfirmed for way in net.links().values())


def arrival(link: int, number: int, sets: list[list[int]], body: bytes = b"", life: int = 0) -> ArrivedFrame:
    batch = Batch.build([Draft(f"{link}.{number}.{row}", body=body) for row in range(len(sets))])
    return ArrivedFrame(link, life, number, batch, Destinations.of(sets))


def test_joined_frames_have_all_rows_in_order_with_their_destinations() -> None:
    one = arrival(2, 1, [[3], [4, 5]])
    other = arrival(2, 2, [[3], [4, 5], [3]])
    third = arrival(2, 3, [[6]])
    batch, destinations = joined([one, other, third])
    assert [message.topic for message in batch] == ["2.1.0", "2.1.1", "2.2.0", "2.2.1", "2.2.2", "2.3.0"]
    assert [destinations.numbers(row) for row in range(6)] == [[3], [4, 5], [3], [4, 5], [3], [6]]
    # Two tables were equal.
    assert len(destinations.sets) == 3
    destinations.checked(6)


@pytest.mark.parametrize(
    ("other", "together"),
    [
        (arrival(2, 2, [[3]]), True),
        (arrival(3, 2, [[3]]), False),
        (arrival(2, 2, [[3]], life=1), False),
        (arrival(2, 2, [[3]], body=bytes(SMALL_FRAME_BYTES)), False),
        (arrival(2, 2, [[200]]), False),
    ],
    ids=["alike", "another link", "after a cut", "large", "wider sets"],
)
def test_frames_are_taken_together_only_if_they_are_small_and_alike(other: ArrivedFrame, together: bool) -> None:
    assert arrival(2, 1, [[3]]).goes_with(other) is together


def test_control_frame_between_messages_of_a_link_keeps_its_place() -> None:
    net = SimulatedNetwork(line(1), strategy("drp"), random.Random(1), service=SLOW)
    host = net.host(1)
    read: list[str] = []

    def task(name: str, link: int, came: ArrivedFrame | None = None) -> Task:
        def run() -> Outbox:
            read.append(name)
            return Outbox()

        cost: Callable[[Outbox], int] = lambda _: 5_000  # noqa: E731
        return Task(run, cost, link=link, frame=None if came is None else came.batch, arrival=came)

    for name, link, came in (
        ("first", 2, None),
        ("a", 2, arrival(2, 1, [[1]])),
        ("client", 0, None),
        ("control", 2, None),
        ("b", 2, arrival(2, 2, [[1]])),
    ):
        host.give(task(name, link, came))
    net.run(100)
    assert read == ["first", "a", "client", "control", "b"]


def test_rows_that_go_on_in_another_frame_share_no_ids_or_envelopes() -> None:
    net = SimulatedNetwork(line(3), strategy("drp"), random.Random(1), service=SLOW)
    net.run(SETTLED_MS)
    net.subscribe(3, "far", ">")
    net.run(SETTLED_MS)
    before = {ends: way.bytes for ends, way in net.links().items()}
    net.publish(1, [Draft("a", body=bytes(100)), Draft("b", body=bytes(100))])
    net.run(SETTLED_MS)
    assert len(net.delivered["far"]) == 2
    # The same bytes on both links: relayed as they came.
    first, second = (net.link(*ends).bytes - before[ends] for ends in ((1, 2), (2, 3)))
    assert first == second > 200
    assert np.array_equal([net.link(1, 2).messages, net.link(2, 3).messages], [2, 2])
