"""A whole tree of brokers goes back to its plan when a broker does, under load, and nothing is lost or doubled."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import planned_strategy
from postroad.messages import Draft
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.topology import Plan, Settings, cluster, tree

if TYPE_CHECKING:
    from postroad.topology import Delivery, StrategyName

QUICK = Settings(heartbeat_ms=50)
SETTLED_MS = 4_000
SHAPES = {"tree": tree(7, 2), "cluster": cluster(1, 2, 2, 1)}


def parent(net: SimulatedNetwork, broker: int) -> int:
    return net.relay(broker).strategy.statistics()["parent"]


@pytest.mark.parametrize("delivery", ["relay", "custody"])
@pytest.mark.parametrize("kind", SHAPES)
@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_a_subtree_that_returns_to_its_parent_loses_and_doubles_nothing(
    kind: StrategyName, delivery: Delivery, seed: int
) -> None:
    draw = random.Random(seed)
    hierarchy = SHAPES[kind]
    plan = Plan.of(hierarchy, "returning", strategy=kind, delivery=delivery, settings=QUICK)
    net = SimulatedNetwork(
        plan.graph(),
        planned_strategy(plan),
        draw,
        quality=LinkQuality(delay_ms=(1, 30), loss=0.05),
        custody=delivery == "custody",
    )
    gone = draw.choice([one for one, at in hierarchy.stations.items() if at.parents and hierarchy.children(one)])
    staying = [number for number in plan.graph().brokers if number != gone]
    for broker in staying:
        net.subscribe(broker, f"at {broker}", "a")
    net.run(SETTLED_MS)
    net.crash(gone)
    net.run(SETTLED_MS)
    assert all(parent(net, child) != gone for child in hierarchy.children(gone))
    net.start(gone)
    ids = []
    for _ in range(60):
        ids += net.publish(draw.choice(staying), [Draft("a")] * 3)
        net.run(draw.randrange(30))
    net.run(SETTLED_MS)
    assert all(parent(net, child) == gone for child in hierarchy.children(gone))
    for broker in staying:
        assert Counter(net.delivered[f"at {broker}"]) == dict.fromkeys(ids, 1)
