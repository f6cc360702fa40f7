"""The settings of a broker follow from the plan of its network."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import msgspec
import pytest

from postroad.config import BrokerConfig, Neighbouring, broker_config
from postroad.server import Service
from postroad.topology import LinkPlan, Plan, PlanError, Settings, Station, cluster, line, power_law, tree

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.topology import StrategyName


def test_a_broker_knows_its_planned_neighbours_and_the_terms_of_the_network(tmp_path: Path) -> None:
    chosen = Settings(heartbeat_ms=200, window=128)
    plan = Plan.of(line(3), "three", strategy="flood", delivery="custody", settings=chosen, first_port=30_000)
    plan = msgspec.structs.replace(plan, links=(LinkPlan(between=(1, 2), cost=7), LinkPlan(between=(3, 2))))
    config = broker_config(plan, 2, tmp_path / "two", secret="s", admin_port=5)
    assert (config.number, config.port, config.admin_port) == (2, 30_002, 5)
    assert config.data == str(tmp_path / "two")
    network = config.network
    assert network is not None
    assert (network.name, network.port, network.secret) == ("three", 30_003, "s")
    assert (network.strategy, network.delivery, network.settings) == ("flood", "custody", chosen)
    assert network.neighbours == [
        Neighbouring(number=1, port=30_001, cost=7),
        Neighbouring(number=3, port=30_005),
    ]


def test_a_broker_of_a_tree_knows_whom_it_may_attach_to_when_others_fail(tmp_path: Path) -> None:
    plan = Plan.of(tree(7, 2), "seven", strategy="tree")
    network = broker_config(plan, 2, tmp_path).network
    assert network is not None
    assert network.station == Station((1,))
    assert {one.number: one.standby for one in network.neighbours} == {
        **{1: False, 4: False, 5: False},
        **{3: True, 6: True, 7: True},  # children of 3, should both 3 and 1 fail
    }


@pytest.mark.parametrize("strategy", ["tree", "cluster"])
def test_each_end_of_a_link_that_failures_call_for_knows_the_other(tmp_path: Path, strategy: StrategyName) -> None:
    shape = tree(11, 3) if strategy == "tree" else cluster(2, 2, 1, 2)
    plan = Plan.of(shape, "n", strategy=strategy)
    networks = {one.number: broker_config(plan, one.number, tmp_path).network for one in plan.brokers}
    known = {number: {one.number for one in network.neighbours} for number, network in networks.items() if network}
    for number, network in networks.items():
        assert network is not None
        station = network.station
        assert known[number] >= {*station.parents, *station.peers}
        assert all(number in known[other] for other in known[number])
        assert number not in known[number]


@pytest.mark.parametrize("strategy", ["drp", "flood"])
def test_brokers_without_places_have_no_links_on_standby(tmp_path: Path, strategy: StrategyName) -> None:
    plan = Plan.of(power_law(9, 1), "n", strategy=strategy)
    for one in plan.brokers:
        network = broker_config(plan, one.number, tmp_path).network
        assert network is not None
        assert {other.number for other in network.neighbours} == set(plan.graph().neighbours(one.number))


def test_a_place_can_be_written_in_a_file_of_settings() -> None:
    text = 'number = 3\n[network]\nstrategy = "cluster"\nstation = { parents = [1], peers = [2], deputises_for = 1 }\n'
    network = msgspec.convert(tomllib.loads(text), BrokerConfig).network
    assert network is not None
    assert network.station == Station((1,), (2,), 1)


@pytest.mark.parametrize("strategy", ["drp", "flood", "tree", "cluster"])
def test_a_service_takes_the_strategy_of_its_plan(tmp_path: Path, strategy: StrategyName) -> None:
    plan = Plan.of(cluster(1, 1, 1, 1), "n", strategy=strategy)
    service = Service(broker_config(plan, 2, tmp_path))
    relay = service.dispatcher.core.relay
    assert relay is not None
    assert type(relay.strategy).__name__.lower() == strategy


def test_a_broker_that_the_plan_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no broker 4"):
        broker_config(Plan.of(line(3), "three"), 4, tmp_path)
