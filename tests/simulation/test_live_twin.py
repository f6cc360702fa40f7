"""The simulated network and the live one do the same with the same load: deliveries, traces, messages on every link."""

from __future__ import annotations

import asyncio
import random
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from postroad.broker import planned_strategy, scheme_of
from postroad.broker.numbers import SUBSCRIPTION_BLOCK
from postroad.capacity import BatchCosts
from postroad.lab.scenarios import ContentScenario
from postroad.simulation import ServiceTimes, SimulatedNetwork
from postroad.testing.real_network import RealNetwork
from postroad.testing.virtual_network import as_text
from postroad.topology import Plan, cluster, line, square_with_diagonal, tree
from postroad.tracking import ExactRecorder, Reconstruction
from postroad.trail import Trail

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.messages import MessageId
    from postroad.tracking import Journey

# On a cyclic graph a flood crosses links in an order that only chance decides; on a line there is one way.
PLANS = {
    "drp": Plan.of(square_with_diagonal(), "twin"),
    "flood": Plan.of(line(4), "twin", strategy="flood"),
    "tree": Plan.of(tree(5, 2), "twin", strategy="tree"),
    "cluster": Plan.of(cluster(2, 1, 1, 0), "twin", strategy="cluster"),
}


class Told(NamedTuple):
    """What a network did, by places in the load instead of ids, which differ from run to run."""

    deliveries: dict[str, list[int]]
    traces: list[tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]]
    messages: dict[tuple[int, int], int]


def load(plan: Plan) -> ContentScenario:
    return ContentScenario(len(plan.brokers), clients=12, filters=60, rates=(3.0, 3.0), seconds=1.0, seed=3)


def told(journey: Journey) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """The hops, and the deliveries; brokers number subscriptions in the order they come, in blocks."""
    hops = frozenset((stop.parent, stop.broker) for stop in journey.stops)
    return hops, frozenset((broker, (hit.number - 1) % SUBSCRIPTION_BLOCK) for broker, hit in journey.delivered)


def simulated(plan: Plan) -> Told:
    scenario = load(plan)
    recorders: dict[int, ExactRecorder] = {}

    def recorder(broker: int) -> ExactRecorder:
        recorders[broker] = ExactRecorder(broker, 0)
        return recorders[broker]

    net = SimulatedNetwork(
        plan.graph(),
        planned_strategy(plan),
        random.Random(1),
        recorder=recorder,
        scheme=scheme_of(plan.settings),
        service=ServiceTimes(BatchCosts(batch=1e-4, receive=1e-6), control_us=50),
    )
    net.run(5_000)
    subscribers = scenario.subscribers()
    for place, one in enumerate(subscribers):
        net.subscribe(one.broker, str(place), one.topic, one.selector)
    net.run(5_000)
    before = {ends: way.messages for ends, way in net.links().items()}
    publications = scenario.publications()
    ids: list[MessageId] = []
    for row in range(len(publications)):
        ids += net.publish(int(publications.brokers[row]), [as_text(publications.draft(row))])
        net.run(10)
    net.run(5_000)

    def trace(message: MessageId) -> Journey:
        work = Reconstruction(message)
        while asked := work.to_ask():
            for broker in asked:
                work.tell(broker, recorders[broker].findings(message, net.now))
        return work.journey()

    return summary(
        ids,
        {str(place): net.delivered[str(place)] for place in range(len(subscribers))},
        [trace(message) for message in ids],
        {ends: way.messages - before[ends] for ends, way in net.links().items()},
    )


def summary(
    ids: list[MessageId],
    delivered: dict[str, list[MessageId]],
    journeys: list[Journey],
    messages: dict[tuple[int, int], int],
) -> Told:
    places = {message: place for place, message in enumerate(ids)}
    return Told(
        {name: sorted(places[message] for message in got) for name, got in delivered.items()},
        [told(journey) for journey in journeys],
        {ends: count for ends, count in messages.items() if count},
    )


def live(plan: Plan, data: Path) -> Told:
    scenario = load(plan)
    subscribers, publications = scenario.subscribers(), scenario.publications()

    async def play() -> tuple[list[MessageId], dict[str, list[MessageId]], dict[tuple[int, int], int]]:
        network = RealNetwork(plan, data)
        try:
            await network.open()
            await network.settled()
            for place, one in enumerate(subscribers):
                await network.subscribe(one.broker, one.topic, one.selector, name=str(place))
            await network.settled()
            before = network.traffic()
            ids: list[MessageId] = []
            for row in range(len(publications)):
                ids += await network.publish_many(int(publications.brokers[row]), [publications.draft(row)])
            await network.settled()
            carried = {ends: way.minus(before[ends]).messages for ends, way in network.traffic().items()}
            return ids, {str(place): network.delivered(str(place)) for place in range(len(subscribers))}, carried
        finally:
            await network.close()

    ids, delivered, carried = asyncio.run(asyncio.wait_for(play(), 200))
    merged = data / "merged"
    for manifests in sorted(data.glob("*/**/manifests")):
        shutil.copytree(manifests.parent, merged, dirs_exist_ok=True)
    trail = Trail(merged)
    journeys = [trail.trace(message).journey for message in ids]
    return summary(ids, delivered, journeys, carried)


@pytest.mark.parametrize("strategy", PLANS)
def test_simulated_and_live_networks_deliver_trace_and_carry_the_same(strategy: str, tmp_path: Path) -> None:
    plan = PLANS[strategy]
    virtual, real = simulated(plan), live(plan, tmp_path)
    assert sum(map(len, virtual.deliveries.values())) > 20
    assert virtual.deliveries == real.deliveries
    assert virtual.messages == real.messages
    assert virtual.traces == real.traces
