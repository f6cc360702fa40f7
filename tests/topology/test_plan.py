"""Plans survive being written and read, and bad ones are refused by the name of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.topology import BrokerPlan, Graph, LinkPlan, Plan, PlanError, Settings, cluster, line, power_law, tree
from tests.topology.strategies import graphs

if TYPE_CHECKING:
    from postroad.topology import Delivery, StrategyName

GOOD = Plan.of(line(3), "three", settings=Settings(window=64)).to_toml()


@given(
    graphs(),
    st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20),
    st.sampled_from(["relay", "custody"]),
    st.builds(Settings, window=st.integers(64, 1000), broadcast_threshold=st.floats(0, 1)),
)
@settings(max_examples=60)
def test_plan_reads_what_it_wrote(graph: Graph, name: str, delivery: Delivery, chosen: Settings) -> None:
    plan = Plan.of(graph, name, delivery=delivery, settings=chosen, host=name)
    assert Plan.parse(plan.to_toml()) == plan
    assert plan.graph() == graph


def test_plan_keeps_the_places_of_a_hierarchy() -> None:
    shapes: dict[StrategyName, Any] = {"tree": tree(14, 3), "cluster": cluster(2, 2, 2, 2)}
    for strategy, shape in shapes.items():
        plan = Plan.of(shape, "h", strategy=strategy)
        assert Plan.parse(plan.to_toml()).hierarchy() == shape


def test_large_plan_reads_what_it_wrote() -> None:
    plan = Plan.of(power_law(1_000, 1), "large")
    assert Plan.parse(plan.to_toml()) == plan


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("version = 1", "version = 2", r"^version: .*version 1; the plan says 2"),
        ('name = "three"', "name = 3", r"^name: Expected `str`"),
        ('name = "three"', 'name = "thr ee"', r"^name: "),
        ('strategy = "drp"', 'strategy = "dip"', r"^strategy: Invalid enum value 'dip'"),
        ("window = 64", "window = 63", r"^settings\.window: Expected `int` >= 64"),
        ("window = 64", "widow = 64", r"^settings: .*unknown field `widow`"),
        ("refresh_ms = 30000", "refresh_ms = 100000", r"^settings\.lifetime_ms: must be longer"),
        ("number = 3", "number = 2", r"^brokers\[2\]\.number: the same number as brokers\[1\]\.number: 2"),
        ("number = 3", "number = 0", r"^brokers\[2\]\.number: Expected `int` >= 1"),
        ("link_port = 20005", "link_port = 20000", r"^brokers\[2\]\.link_port: the same host and port as brokers\[0\]"),
        ("link_port = 20005", "", r"^brokers\[2\]: .*missing required field `link_port`"),
        ("between = [2, 3]", "between = [2, 4]", r"^links\[1\]\.between: there is no broker 4"),
        ("between = [2, 3]", "between = [2, 2]", r"^links\[1\]\.between: broker 2 cannot be linked to itself"),
        ("between = [2, 3]", "between = [2, 1]", r"^links\[1\]\.between: the same pair as links\[0\]"),
        ("[[links]]\nbetween = [2, 3]\ncost = 10", "", r"^links: some brokers cannot be reached"),
        ("[settings]", "[settings", r"^not TOML"),
        ("cost = 10", "cost = 0", r"^links\[0\]\.cost: Expected `int` >= 1"),
    ],
)
def test_bad_plan_is_refused_by_the_name_of_the_field(before: str, after: str, said: str) -> None:
    assert before in GOOD
    with pytest.raises(PlanError, match=said):
        Plan.parse(GOOD.replace(before, after, 1))


def broker(number: int, **places: Any) -> BrokerPlan:
    return BrokerPlan(number=number, port=2 * number, link_port=2 * number + 1, **places)


@pytest.mark.parametrize(
    ("brokers", "strategy", "said"),
    [
        ([], "drp", "at least one broker"),
        ([broker(1), broker(2)], "tree", r"one broker without parents, its root; here are 2: \[1, 2\]"),
        ([broker(1, parents=(2,)), broker(2, parents=(1,))], "tree", r"brokers\[0\]\.parents: .* in a ring: \[1, 2\]"),
        ([broker(1), broker(2, parents=(3,))], "tree", r"brokers\[1\]\.parents: there is no other broker 3"),
        ([broker(1, peers=(2,)), broker(2)], "cluster", r"brokers\[0\]\.peers: broker 2 does not name 1"),
        ([broker(1), broker(2, parents=(1,), deputises_for=2)], "cluster", r"deputises_for: there is no other broker"),
    ],
)
def test_contradicting_places_are_refused(brokers: list[BrokerPlan], strategy: StrategyName, said: str) -> None:
    plan = Plan(name="p", strategy=strategy, brokers=tuple(brokers), links=(LinkPlan(between=(1, 2)),))
    with pytest.raises(PlanError, match=said):
        plan.checked()


def test_ports_that_run_out_are_refused() -> None:
    with pytest.raises(PlanError, match="use more hosts"):
        Plan.of(line(10), "p", first_port=65_530)
