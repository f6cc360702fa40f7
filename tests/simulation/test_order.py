"""With `order = "publisher"` a publisher's messages keep their order through fail-over; what does not is marked."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import order_wait
from postroad.broker import publisher_order as module
from postroad.messages import Draft
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.topology import Graph, Settings
from tests.simulation.scene import SETTLED_MS, cyclic, strategy

if TYPE_CHECKING:
    import pytest

    from postroad.messages import MessageId

DIAMOND = Graph(range(1, 5), {(1, 2): 10, (2, 4): 10, (1, 3): 20, (3, 4): 20})
WAIT_MS = order_wait(Settings(order="publisher"))


def disorder(net: SimulatedNetwork, name: str) -> tuple[int, set[MessageId]]:
    """How many messages came after a later one of their publisher without being marked; and those that are marked."""
    late = {message for message, headers in net.headers[name] if headers.get("postroad-order") == "late"}
    highest: dict[tuple[int, int], MessageId] = {}
    wrong = 0
    for message in net.delivered[name]:
        publisher = (message.publisher, message.broker)
        wrong += message < highest.get(publisher, message) and message not in late
        highest[publisher] = max(message, highest.get(publisher, message))
    return wrong, late


def through_a_cut(wait_ms: int) -> tuple[SimulatedNetwork, list[MessageId]]:
    """The link from 2 to 4 breaks: broker 1 sends the other way, and overtakes what broker 2 has to send back."""
    quality = LinkQuality(delay_ms=(30, 30))
    net = SimulatedNetwork(DIAMOND, strategy("drp"), random.Random(1), quality=quality, order_wait_ms=wait_ms)
    net.subscribe(4, "far", "a")
    net.run(SETTLED_MS + WAIT_MS)
    ids: list[MessageId] = []
    for step in range(200):
        if step == 50:
            net.cut(2, 4)
        ids.extend(net.publish(1, [Draft("a")] * 3))
        net.run(5)
    net.run(SETTLED_MS + WAIT_MS)
    return net, ids


def test_a_fail_over_breaks_the_order_unless_it_is_asked_for() -> None:
    for wait, broken in ((0, True), (WAIT_MS, False)):
        net, ids = through_a_cut(wait)
        assert sorted(net.delivered["far"]) == ids
        wrong, late = disorder(net, "far")
        assert (wrong > 0, late) == (broken, set())
        counts = net.relay(4).statistics()
        assert (counts.late, counts.unordered, counts.order_held_now) == (0, 0, 0)


@settings(max_examples=12)
@given(graph=cyclic, seed=st.integers(0, 10_000), custody=st.booleans())
def test_order_holds_or_is_said_not_to_whoever_crashes(graph: Graph, seed: int, custody: bool) -> None:
    draw = random.Random(seed)
    net = SimulatedNetwork(
        graph,
        strategy("drp", custody),
        draw,
        custody=custody,
        quality=LinkQuality(delay_ms=(1, 40), loss=0.1),
        order_wait_ms=WAIT_MS,
    )
    source, doomed, *staying = draw.sample(sorted(graph.brokers), len(graph.brokers))
    for broker in (source, *staying):
        net.subscribe(broker, f"at {broker}", "a")
    net.run(SETTLED_MS)
    ids, crashed = [], False
    for _ in range(120):
        ids += net.publish(source, [Draft("a")] * draw.randrange(1, 4))
        net.run(draw.randrange(40))
        if draw.random() < 0.03:
            if crashed:
                net.start(doomed)
            else:
                net.crash(doomed)
            crashed = not crashed
    net.run(20_000)
    for broker in (source, *staying):
        name = f"at {broker}"
        assert len(net.delivered[name]) == len(set(net.delivered[name]))
        wrong, late = disorder(net, name)
        assert wrong == 0
        assert len(late) == net.relay(broker).statistics().late
        assert net.relay(broker).statistics().order_held_now == 0
        if custody and len(staying) > 1:
            assert set(net.delivered[name]) <= set(ids)


def test_without_room_to_wait_what_comes_late_is_marked_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    net, ids = through_a_cut(WAIT_MS)
    assert sorted(net.delivered["far"]) == ids
    wrong, late = disorder(net, "far")
    assert wrong == 0
    counts = net.relay(4).statistics()
    assert len(late) == counts.late > 0
    assert counts.unordered > 0


def test_a_quiet_network_keeps_nothing_back() -> None:
    net = SimulatedNetwork(DIAMOND, strategy("drp"), random.Random(1), order_wait_ms=WAIT_MS)
    net.subscribe(4, "far", "a")
    net.run(SETTLED_MS + WAIT_MS)
    ids = net.publish(1, [Draft("a")] * 3)
    net.run(100)
    assert net.delivered["far"] == ids
