"""Brokers that begin agreed: what each copies is what it would have read itself, and it can be changed afterwards."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from postroad.lab.bdrp import BdrpWorkload
from postroad.lab.simulated_stage import LAB_LIMITS
from postroad.messages import Draft
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.simulation.agreement import exact_interests, said_of_itself
from postroad.topology import power_law
from tests.simulation.scene import SETTLED_MS, strategy

if TYPE_CHECKING:
    from postroad.messages import Batch

BROKERS, CLIENTS, FILTERS = 12, 4, 10


def network(agreed: bool) -> SimulatedNetwork:
    """Brokers whose clients want the selectors of B-DRP's workload, and topics with and without wildcards."""
    net = SimulatedNetwork(
        power_law(BROKERS, 3),
        strategy("drp"),
        random.Random(1),
        quality=LinkQuality(delay_ms=(1, 5)),
        limits=LAB_LIMITS,
        silent=agreed,
    )
    if not agreed:
        net.run(SETTLED_MS)
    texts = BdrpWorkload(5).dealt(BROKERS * CLIENTS * FILTERS, 1, 2).texts()
    for place in range(BROKERS * CLIENTS):
        topic = ("news", "news.*", ">", "other")[place % 4]
        selector = " OR ".join(f"({text})" for text in texts[FILTERS * place : FILTERS * (place + 1)])
        net.subscribe(1 + place % BROKERS, str(place), topic, selector)
    if agreed:
        net.agree()
    else:
        net.run(SETTLED_MS)
    return net


def news(count: int) -> Batch:
    return BdrpWorkload(9).messages(count).batch()


def wanted(net: SimulatedNetwork, batch: Batch) -> list[list[list[int]]]:
    """For each broker and message, the brokers that it would send the message to."""
    found = []
    for broker in net.running:
        split = net.relay(broker).interests.split(batch, entering=True)
        found.append([split.destinations.numbers(row) for row in range(len(batch))])
    return found


def test_copied_interests_name_the_brokers_that_told_ones_name() -> None:
    batch = news(600)
    copied, told = wanted(network(agreed=True), batch), wanted(network(agreed=False), batch)
    assert copied == told
    assert sum(len(row) for row in copied[0]) > 50
    # A broker is not among those that it sends to.
    assert not any(number in row for number, rows in enumerate(copied, start=1) for row in rows)


def test_what_was_copied_changes_at_one_broker_alone() -> None:
    net = network(agreed=True)
    net.subscribe(1, "late", "late.topic")
    net.unsubscribe(2, "1")
    net.crash(BROKERS)
    net.run(SETTLED_MS)
    ids = net.publish(5, [Draft("late.topic")])
    net.run(SETTLED_MS)
    assert net.delivered["late"] == ids
    # Everything can leave again: nothing of the copies is left behind.
    for place in range(BROKERS * CLIENTS):
        broker = 1 + place % BROKERS
        if broker != BROKERS and place != 1:
            net.unsubscribe(broker, str(place))
    net.unsubscribe(1, "late")
    net.run(2 * SETTLED_MS)
    # The broker that crashed cannot take back what it said, and is believed until its records are too old.
    gone = len(net.relay(1).interests._exact[BROKERS])
    assert {len(net.core(broker).index) for broker in net.running} == {gone}
    assert gone > 0


def test_deliveries_of_brokers_that_begin_agreed_are_those_of_brokers_that_talked() -> None:
    counts = []
    for net in (network(agreed=True), network(agreed=False)):
        for broker in net.running:
            net.offer(broker, news(40))
        net.run(SETTLED_MS)
        counts.append({key: len(ids) for key, ids in net.delivered.items()})
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) > 100


def test_interests_that_are_too_much_for_an_index_are_not_copied() -> None:
    """Each broker reads them then, and takes a broker that wants too much for one that wants everything."""
    net = network(agreed=True)
    said = {broker: said_of_itself(net.host(broker), net.now) for broker in net.running}
    assert exact_interests(said, matching_ms=0) is None
    assert exact_interests(said, LAB_LIMITS.matching_ms) is not None
