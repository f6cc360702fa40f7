"""Small buffers and slow links: publishers wait, what does not fit is shed and told, and nothing ever stops."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Draft
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.topology import line, ring, star
from tests.simulation.scene import SETTLED_MS, Losses, at_rest, graphs, strategy

if TYPE_CHECKING:
    from postroad.messages import MessageId
    from postroad.topology import Graph, StrategyName

# Two or three of the parcels below fill a buffer, and a link takes a while to carry one.
NARROW = LinkQuality(delay_ms=(1, 20), bytes_per_ms=50, loss=0.02, buffer_bytes=3_000)


@pytest.mark.parametrize("custody", [False, True], ids=["relay", "custody"])
@pytest.mark.parametrize("kind", ["drp", "flood"])
@settings(max_examples=20)
@given(graph=graphs, seed=st.integers(0, 10_000))
def test_no_topology_stops_when_all_publish_at_once(kind: StrategyName, custody: bool, graph: Graph, seed: int) -> None:
    draw, losses = random.Random(seed), Losses()
    net = SimulatedNetwork(
        graph, strategy(kind, custody), draw, quality=NARROW, custody=custody, recorder=lambda number: losses
    )
    wanting = [broker for broker in graph.brokers if draw.random() < 0.7]
    for broker in wanting:
        net.subscribe(broker, f"at {broker}", "a")
    net.run(2 * SETTLED_MS)
    accepted: list[MessageId] = []
    for _ in range(20):
        for broker in graph.brokers:
            if broker not in net.paused:
                accepted += net.publish(broker, [Draft("a", body=bytes(draw.randrange(200)))] * draw.randrange(1, 4))
        net.run(draw.randrange(20))
    net.run(5 * SETTLED_MS)
    assert at_rest(net, graph.brokers)
    for broker in wanting:
        got = net.delivered[f"at {broker}"]
        assert len(got) == len(set(got))
        assert set(accepted) - losses.ids <= set(got) <= set(accepted)
    # Everybody can go on.
    more = [each for broker in graph.brokers for each in net.publish(broker, [Draft("a")])]
    net.run(SETTLED_MS)
    for broker in wanting:
        assert set(more) - losses.ids <= set(net.delivered[f"at {broker}"])


def test_a_publisher_waits_for_a_slow_link_and_nothing_of_its_own_is_lost() -> None:
    losses = Losses()
    net = SimulatedNetwork(line(2), strategy("drp"), random.Random(1), quality=NARROW, recorder=lambda number: losses)
    net.subscribe(2, "far", "a")
    net.run(2 * SETTLED_MS)
    ids: list[MessageId] = []
    waited = 0
    for _ in range(400):
        if 1 in net.paused:
            waited += 1
        else:
            ids += net.publish(1, [Draft("a", body=bytes(200))])
        net.run(1)
    net.run(SETTLED_MS)
    assert waited > 100
    assert net.delivered["far"] == ids
    assert not losses.ids
    assert net.core(1).statistics().paused_publishers_now == 0


def test_a_publisher_whose_messages_go_elsewhere_does_not_wait() -> None:
    net = SimulatedNetwork(star(4), strategy("drp"), random.Random(1), quality=NARROW)
    net.subscribe(2, "two", "a")
    net.subscribe(3, "three", "c")
    net.run(2 * SETTLED_MS)
    for _ in range(6):
        net.publish(1, [Draft("a", body=bytes(400))])
    assert 1 in net.paused
    other = net.core(1).attached("other")
    batch = [Draft("c")]
    net.publish_as(other, 1, batch)
    assert not other.paused
    assert net.core(1).statistics().paused_publishers_now == 1


def test_what_is_in_transit_and_does_not_fit_is_shed_and_told() -> None:
    losses = Losses()
    net = SimulatedNetwork(star(5), strategy("drp"), random.Random(1), quality=NARROW, recorder=lambda number: losses)
    net.subscribe(5, "far", "a")
    net.run(2 * SETTLED_MS)
    ids: list[MessageId] = []
    for _ in range(40):
        for broker in (2, 3, 4):
            if broker not in net.paused:
                ids += net.publish(broker, [Draft("a", body=bytes(200))])
        net.run(5)
    net.run(SETTLED_MS)
    assert losses.reasons == {"link full"}
    assert net.relay(1).statistics().shed_link_full == len(losses.ids) > 0
    assert sorted(net.delivered["far"]) == sorted(set(ids) - losses.ids)


def test_a_lost_frame_costs_time_and_bytes_only() -> None:
    sent = {}
    for loss in (0.0, 0.4):
        net = SimulatedNetwork(ring(3), strategy("drp"), random.Random(1), quality=LinkQuality(loss=loss))
        net.subscribe(2, "far", "a")
        net.run(SETTLED_MS)
        ids = [each for _ in range(30) for each in net.publish(1, [Draft("a")])]
        net.run(SETTLED_MS)
        assert net.delivered["far"] == ids
        sent[loss] = net.link(1, 2)
    assert sent[0.0].lost == 0 < sent[0.4].lost
    assert sent[0.0].messages == sent[0.4].messages
