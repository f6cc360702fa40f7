"""A broker that freezes and goes on: what it still holds went another way meanwhile, and nobody gets it twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Draft
from postroad.routing import seen_ids
from postroad.simulation import SimulatedNetwork
from postroad.topology import Graph, Settings
from tests.simulation.scene import SETTLED_MS, cyclic, strategy

if TYPE_CHECKING:
    from postroad.messages import MessageId
    from postroad.topology import StrategyName

DIAMOND = Graph(range(1, 5), {(1, 2): 10, (2, 4): 10, (1, 3): 20, (3, 4): 20})
# Far fewer ids than pass while a broker is frozen: a minute is remembered anyway.
SHORT = Settings(window=64)
SILENCE_MS = 3_000


def through_a_freeze(net: SimulatedNetwork, source: int, frozen: int, frozen_ms: int) -> list[MessageId]:
    """Publish all the time, while a broker in between freezes and goes on; returns what was published."""
    ids: list[MessageId] = []

    def publish(milliseconds: int) -> None:
        for _ in range(milliseconds // 50):
            ids.extend(net.publish(source, [Draft("a")] * 7))
            net.run(50)

    publish(500)
    net.freeze(frozen, SILENCE_MS)
    publish(frozen_ms)
    net.thaw(frozen)
    publish(500)
    net.run(SETTLED_MS)
    return ids


@pytest.mark.parametrize("kind", ["drp", "flood"])
def test_what_a_frozen_broker_still_held_is_not_delivered_again(kind: StrategyName) -> None:
    net = SimulatedNetwork(DIAMOND, strategy(kind, settings=SHORT), random.Random(1))
    net.subscribe(4, "far", "a")
    net.run(SETTLED_MS)
    ids = through_a_freeze(net, 1, 2, 7_000)
    assert len(ids) > 1_000
    got = Counter(net.delivered["far"])
    assert set(got.values()) == {1}
    assert set(got) == set(ids)
    statistics = net.relay(4).statistics()
    assert statistics.duplicates > 100
    assert statistics.maybe_duplicates == 0


@settings(max_examples=15)
@given(graph=cyclic, seed=st.integers(0, 10_000), custody=st.booleans(), frozen_ms=st.integers(500, 9_000))
def test_nobody_gets_anything_twice_whoever_freezes(graph: Graph, seed: int, custody: bool, frozen_ms: int) -> None:
    draw = random.Random(seed)
    net = SimulatedNetwork(graph, strategy("drp", custody, SHORT), draw, custody=custody)
    source, frozen = draw.sample(sorted(graph.brokers), 2)
    for broker in graph.brokers:
        net.subscribe(broker, f"at {broker}", "a")
    net.run(SETTLED_MS)
    ids = through_a_freeze(net, source, frozen, frozen_ms)
    for broker in graph.brokers:
        got = Counter(net.delivered[f"at {broker}"])
        assert set(got.values()) <= {1}
        assert set(got) <= set(ids)
        if custody:
            assert set(got) == set(ids)


def test_a_copy_that_comes_when_its_id_is_forgotten_is_marked_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # No room for more than 128 blocks: each of the batches takes one.
    monkeypatch.setattr(seen_ids, "MAX_REMEMBERED", 128)
    net = SimulatedNetwork(DIAMOND, strategy("drp", settings=SHORT), random.Random(1))
    net.subscribe(4, "far", "a")
    net.run(SETTLED_MS)
    ids = through_a_freeze(net, 1, 2, 12_000)
    got = Counter(net.delivered["far"])
    assert set(got) == set(ids)
    doubled = {each for each, times in got.items() if times > 1}
    assert doubled
    assert net.relay(4).statistics().maybe_duplicates >= len(doubled)
    told = [each for each, headers in net.headers["far"] if headers == {"postroad-duplicate": "maybe"}]
    # Of two deliveries the second is marked.
    assert doubled <= set(told)
