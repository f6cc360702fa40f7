"""Plans keep the promise with as few brokers as they say, or say why none can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.capacity import BatchCosts, CapacityError
from postroad.capacity.plan import Demand, Storage, evaluate, options, placements, recommend

COSTS = BatchCosts(batch=40e-6, receive=2e-7, lookup=3e-8, send=1.5e-7, byte=2e-10, sent_byte=8e-10)
SLOW = BatchCosts(batch=1e-3, receive=50e-6, match=1e-6, send=20e-6)

demands = st.builds(
    Demand,
    rate=st.floats(1, 1e6),
    subscriptions=st.floats(10, 1e5),
    copies=st.floats(0, 10),
    size=st.floats(0, 1e4),
    p99=st.floats(1e-3, 1),
)


def test_one_broker_carries_a_modest_load() -> None:
    demand = Demand(rate=5_000, subscriptions=20_000, copies=4, size=200, p99=0.05)
    (only,) = options(demand, COSTS)
    assert (only.brokers, only.problem) == (1, None)
    assert only.p99 < 0.001
    assert only.utilisation == pytest.approx(demand.rate * COSTS.marginal(20_000, 4, 200))


def test_a_load_beyond_one_broker_is_placed_three_ways() -> None:
    demand = Demand(rate=20_000, subscriptions=1_000, copies=2, size=100, p99=0.2)
    found = {option.placement.name: option for option in options(demand, SLOW)}
    assert set(found) == {"spread", "publisher side", "subscriber side"}
    # Filters dominate and subscribers are many: holding all of them at every publisher's broker costs most.
    assert found["spread"].brokers < found["publisher side"].brokers
    best = recommend(list(found.values()))
    assert best.problem is None
    assert all(best.brokers <= option.brokers for option in found.values() if option.problem is None)


@given(demands)
def test_the_recommended_number_keeps_the_promise_and_one_less_does_not(demand: Demand) -> None:
    try:
        best = recommend(options(demand, COSTS))
    except CapacityError:
        return
    assert best.utilisation <= demand.utilisation
    assert best.p99 <= demand.p99
    if 1 < best.brokers <= 32:
        for placement in placements(demand, best.brokers - 1):
            if placement.name == best.placement.name:
                assert evaluate(demand, COSTS, placement, best.brokers - 1, Storage()).problem is not None


def test_disk_per_day_counts_every_broker_that_a_message_passes() -> None:
    demand = Demand(rate=1_000, subscriptions=100, copies=1, size=500, p99=0.1)
    (spread, *_) = placements(demand, 2)
    option = evaluate(demand, COSTS, spread, 2, Storage(record=10, durable=1.1))
    assert spread.arrivals == pytest.approx(1.5)
    assert option.record_per_day == pytest.approx(86_400 * 1_000 * 1.5 * 10)
    assert option.durable_per_day == pytest.approx(86_400 * 1_000 * 1.5 * 1.1 * 500)


def test_relays_go_to_the_brokers_that_want_a_message() -> None:
    demand = Demand(rate=1, subscriptions=1_000, copies=1_000, size=1, p99=1)
    assert placements(demand, 5)[0].arrivals == pytest.approx(5)  # so many copies that all brokers want it
    assert placements(demand._replace(copies=0), 5)[0].arrivals == 1


def test_the_routing_strategy_follows_from_who_wants_a_message() -> None:
    demand = Demand(rate=1, subscriptions=1_000, copies=2, size=1, p99=1)
    (alone,) = placements(demand, 1)
    assert alone.strategy == "none"
    spread, publishers, subscribers = placements(demand, 10)
    assert (spread.strategy, publishers.strategy, subscribers.strategy) == ("drp", "none", "none")
    assert "1.7 of 9 other brokers want a message" in spread.reason
    assert placements(demand._replace(copies=1_000), 10)[0].strategy == "flood"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rate": 0}, "needs no broker"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"size": float("inf")}, "size is inf"),
        ({"rate": 1e12}, "no placement of up to 1,000 brokers keeps the promise"),
        ({"copies": 50, "subscriptions": 10}, "cannot have 50 copies where there are 10"),
        ({"utilisation": 1.5}, "not between 0 and 1"),
        ({"p99": 0}, "within 0 s"),
        ({"p99": 1e-6}, "a single batch takes 1 ms: no number of brokers"),
    ],
)
def test_contradictions_are_answered_with_the_reason(change: dict[str, float], reason: str) -> None:
    demand = Demand(rate=1_000, subscriptions=100, copies=1, size=100, p99=0.1)._replace(**change)
    with pytest.raises(CapacityError, match=reason):
        recommend(options(demand, SLOW))
