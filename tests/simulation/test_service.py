"""Simulated processors and links take their time, and everything follows from the seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.capacity import BatchCosts, Moments, SingleServer
from postroad.messages import Batch, Draft
from postroad.simulation import LinkQuality, ServiceTimes, SimulatedNetwork
from postroad.topology import line, power_law, ring
from tests.simulation.scene import SETTLED_MS, strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker import Subscription
    from postroad.topology import Graph, StrategyName

# A batch takes a tenth of a millisecond, whatever is in it and whatever becomes of it.
STEADY = ServiceTimes(BatchCosts(batch=100e-6), control_us=20)


class Witness:
    """Puts down what happens, with its time in microseconds."""

    def __init__(self) -> None:
        self.offered: list[int] = []
        self.deliveries: list[tuple[int, str, int, int]] = []

    def accepted(self, broker: int, client: int, batch: Batch, offered: int) -> None:
        self.offered += [offered] * len(batch)

    def delivered(
        self, broker: int, subscription: Subscription, batch: Batch, rows: NDArray[np.int64], now: int
    ) -> None:
        self.deliveries += [(broker, subscription.key, int(tail), now) for tail in batch.ids[rows, 1]]


def network(
    graph: Graph,
    witness: Witness,
    kind: StrategyName = "drp",
    service: ServiceTimes | None = STEADY,
    quality: LinkQuality | None = None,
    silent: bool = False,
) -> SimulatedNetwork:
    return SimulatedNetwork(
        graph, strategy(kind), random.Random(1), service=service, quality=quality, observer=witness, silent=silent
    )


def test_waits_at_a_simulated_processor_are_those_of_the_queue_in_theory() -> None:
    witness = Witness()
    net = network(line(1), witness)
    net.subscribe(1, "all", ">")
    draw = random.Random(4)
    utilisation, service, count = 0.7, 100e-6, 6_000
    for _ in range(count):
        net.timeline.run_until(net.timeline.now + round(draw.expovariate(utilisation / service) * 1e6))
        net.offer(1, Batch.build([Draft("a")]))
    net.run(SETTLED_MS)
    spent = np.array([now for *_, now in witness.deliveries]) - np.array(witness.offered)
    assert len(spent) == count
    expected = SingleServer(utilisation / service, Moments(service, service**2, service**3)).mean_wait() + service
    # Waits of 6,000 messages in a row are far from independent: their mean is off by some percent.
    assert spent.mean() / 1e6 == pytest.approx(expected, rel=0.1)
    assert net.host(1).busy_us == count * 100


def test_a_broker_without_service_times_takes_no_time() -> None:
    witness = Witness()
    net = network(line(1), witness, service=None)
    net.subscribe(1, "all", ">")
    net.offer(1, Batch.build([Draft("a"), Draft("b")]))
    assert [now for *_, now in witness.deliveries] == [net.timeline.now] * 2


def test_a_narrow_link_delivers_as_fast_as_it_carries_and_the_publisher_waits() -> None:
    witness = Witness()
    quality = LinkQuality(delay_ms=(5, 5), bytes_per_ms=100, buffer_bytes=5_000)
    net = network(line(2), witness, quality=quality)
    net.run(SETTLED_MS)
    net.subscribe(2, "far", "a")
    net.run(SETTLED_MS)
    begun, before = net.timeline.now, net.link(1, 2).bytes
    for _ in range(100):
        net.offer(1, Batch.build([Draft("a", body=bytes(500))]))
    assert net.paused == set()
    net.run(100)
    assert net.paused == {1}
    assert len(net.host(1).offered) > 0
    net.run(60_000)
    times = [now - begun for *_, now in witness.deliveries]
    assert len(times) == 100
    carried = net.link(1, 2).bytes - before
    # It sends all the time: as long as the bytes take, the delay, and no message is shed on the way.
    assert carried / 100 * 1_000 <= times[-1] <= carried / 100 * 1_000 * 1.2 + 50_000
    assert net.paused == set()


def test_what_a_crashed_broker_had_not_read_is_gone_and_the_rest_goes_on() -> None:
    witness = Witness()
    net = network(ring(3), witness)
    net.run(SETTLED_MS)
    net.subscribe(1, "one", "a")
    net.run(SETTLED_MS)
    for _ in range(50):
        net.offer(1, Batch.build([Draft("a")]))
    net.timeline.run_until(net.timeline.now + 1_050)
    net.crash(1)
    net.offer(1, Batch.build([Draft("a")]))
    net.run(SETTLED_MS)
    # The eleventh was being worked on: what would have followed from it did not happen.
    assert len(witness.offered) == 11
    assert len(witness.deliveries) == 10


@pytest.mark.parametrize("kind", ["drp", "flood"])
def test_the_same_seed_gives_the_same_run_to_the_microsecond(kind: StrategyName) -> None:
    def play() -> tuple[list[tuple[int, str, int, int]], list[tuple[int, int, int, int]], int]:
        witness = Witness()
        quality = LinkQuality(delay_ms=(1, 20), bytes_per_ms=200, loss=0.05, buffer_bytes=100_000)
        net = network(power_law(12, 3), witness, kind, quality=quality)
        net.run(SETTLED_MS)
        draw = random.Random(9)
        for broker in net.graph.brokers:
            net.subscribe(broker, f"at {broker}", f"t.{broker % 3}")
        net.run(SETTLED_MS)
        for step in range(200):
            net.offer(draw.choice(net.graph.brokers), Batch.build([Draft(f"t.{draw.randrange(3)}")]))
            net.timeline.run_until(net.timeline.now + draw.randrange(5_000))
            if step == 80:
                net.cut(1, 2)
            if step == 120:
                net.join(1, 2)
        net.run(SETTLED_MS)
        links = [(way.messages, way.bytes, way.control_bytes, way.lost) for way in net.links().values()]
        return witness.deliveries, links, net.events

    one, other = play(), play()
    assert len(one[0]) > 100
    assert one == other


def test_brokers_that_begin_agreed_know_and_do_what_others_learn_by_talking() -> None:
    def play(
        agreed: bool,
    ) -> tuple[list[tuple[int, str]], list[dict[int, dict[int, int]]], int, dict[tuple[int, int], int]]:
        witness = Witness()
        net = network(power_law(20, 2), witness, silent=agreed)
        if not agreed:
            net.run(SETTLED_MS)
        for broker in net.graph.brokers:
            net.subscribe(broker, f"at {broker}", f"t.{broker % 4}")
            # More than one, so that some brokers tell what they want as a change of what they wanted before.
            for other in range(broker % 6):
                net.subscribe(broker, f"also {other}", f"other.{other}")
        if agreed:
            net.agree()
        else:
            net.run(SETTLED_MS)
        said = sum(way.control_bytes for way in net.links().values())
        states = [net.relay(broker).strategy.link_state for broker in net.graph.brokers]
        known = [{} if state is None else state.graph() for state in states]
        before = {ends: way.messages for ends, way in net.links().items()}
        for broker in net.graph.brokers:
            net.offer(broker, Batch.build([Draft(f"t.{topic}") for topic in range(4)]))
        net.run(SETTLED_MS)
        carried = {ends: way.messages - before[ends] for ends, way in net.links().items()}
        return sorted((broker, key) for broker, key, *_ in witness.deliveries), known, said, carried

    told, silent = play(agreed=False), play(agreed=True)
    assert len(silent[0]) == 20 * 20
    assert silent[0] == told[0]
    assert silent[1] == told[1]
    assert silent[3] == told[3]
    assert silent[2] == 0 < told[2]
