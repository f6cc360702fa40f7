"""A network inside a test behaves the same by either clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from postroad.errors import PostroadError
from postroad.messages import Draft
from postroad.testing import broker_network
from postroad.topology import Plan, Settings, cluster, line, ring, tree

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from postroad.testing import BrokerNetwork, Clock

CLOCKS = ("virtual", "real")
# Real brokers notice a silent neighbour after three of these.
QUICK = Settings(heartbeat_ms=200)
PLANS = {
    "drp": Plan.of(ring(4), "ring", settings=QUICK),
    "flood": Plan.of(ring(4), "ring", strategy="flood", settings=QUICK),
    "tree": Plan.of(tree(5, 2), "tree", strategy="tree", settings=QUICK),
    "cluster": Plan.of(cluster(2, 1, 1, 1), "cluster", strategy="cluster", settings=QUICK),
}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("strategy", PLANS)
def test_subscribers_everywhere_get_what_they_want(strategy: str, clock: Clock) -> None:
    async def talk() -> None:
        async with broker_network(PLANS[strategy], clock) as network:
            assert network.plan is PLANS[strategy]
            everything = [await network.subscribe(broker, "quotes.>") for broker in sorted(network.running)]
            dear = await network.subscribe(1, "quotes.*", "price > 20", name="dear")
            await network.settled()
            cheap = await network.publish(2, "quotes.tokyo", {"price": 10, "stock": "S1"}, "body")
            many = await network.publish_many(3, [Draft("quotes.paris", {"price": price}) for price in (15, 25)])
            await network.publish(3, "news", {"price": 99})
            await network.settled()
            for name in everything:
                assert sorted(network.delivered(name)) == sorted([cheap, *many]), (strategy, name)
            assert dear == "dear"
            assert network.delivered(dear) == many[1:]

    run(talk())


@pytest.mark.parametrize("clock", CLOCKS)
def test_messages_go_round_a_cut_and_straight_again_when_it_is_mended(clock: Clock) -> None:
    async def talk() -> None:
        async with broker_network(PLANS["drp"], clock) as network:
            name = await network.subscribe(2, "quotes")
            await network.settled()
            sent = [await network.publish(1, "quotes")]
            await network.settled()
            assert network.traffic()[1, 2].messages == 1
            await network.cut(1, 2)
            await network.settled()
            sent.append(await network.publish(1, "quotes"))
            await network.settled()
            assert network.traffic()[1, 4].messages == network.traffic()[3, 2].messages == 1
            await network.join(1, 2)
            await network.settled()
            sent.append(await network.publish(1, "quotes"))
            await network.settled()
            assert network.traffic()[1, 2].messages == 2
            assert network.delivered(name) == sent

    run(talk())


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_broker_crashes_with_its_subscribers_and_starts_without_them(clock: Clock) -> None:
    async def talk() -> None:
        async with broker_network(PLANS["drp"], clock) as network:
            lost = await network.subscribe(2, "quotes")
            kept = await network.subscribe(3, "quotes")
            await network.settled()
            await network.publish(2, "quotes")
            await network.settled()
            await network.crash(2)
            assert network.running == {1, 3, 4}
            with pytest.raises(PostroadError, match=r"broker 2 does not run; those that do: \[1, 3, 4\]"):
                await network.publish(2, "quotes")
            await network.settled()
            await network.publish(1, "quotes")
            await network.settled()
            await network.start(2)
            await network.settled()
            await network.publish(2, "quotes")
            await network.settled()
            assert len(network.delivered(lost)) == 1
            assert len(network.delivered(kept)) == 3

    run(talk())


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_subscriber_that_left_gets_nothing_more(clock: Clock) -> None:
    async def talk() -> None:
        async with broker_network(Plan.of(line(2), "two"), clock) as network:
            name = await network.subscribe(2, "quotes")
            await network.settled()
            first = await network.publish(1, "quotes")
            await network.settled()
            await network.unsubscribe(name)
            await network.settled()
            await network.publish(1, "quotes")
            await network.run(0.1)
            await network.settled()
            assert network.delivered(name) == [first]
            assert network.traffic()[1, 2].messages == 1
            assert network.traffic()[2, 1].control_bytes > 0

    run(talk())


def test_a_virtual_network_runs_the_same_way_every_time() -> None:
    async def story(network: BrokerNetwork) -> object:
        names = [await network.subscribe(broker, "quotes") for broker in (2, 3)]
        await network.run(0.013)
        for _ in range(5):
            await network.publish(1, "quotes")
            await network.run(0.007)
        await network.crash(4)
        await network.settled()
        return [network.delivered(name) for name in names], network.traffic()

    async def told(seed: int) -> object:
        async with broker_network(PLANS["drp"], seed=seed) as network:
            return await story(network)

    assert asyncio.run(told(3)) == asyncio.run(told(3))


def test_a_clock_that_there_is_not_is_refused() -> None:
    async def talk() -> None:
        async with broker_network(PLANS["drp"], "wall"):  # type: ignore[arg-type]
            pass

    with pytest.raises(PostroadError, match='"virtual" clock or by the "real" one'):
        run(talk())
