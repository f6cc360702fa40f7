"""Every strategy that a plan may name can be made."""

from __future__ import annotations

import pytest

from postroad.broker import make_strategy
from postroad.topology import HIERARCHICAL, STRATEGY_NAMES, StrategyName


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_that_a_plan_may_name_can_be_made(name: StrategyName) -> None:
    strategy = make_strategy(name, 1, 0)
    assert type(strategy).__name__ == name.capitalize()
    assert (strategy.link_state is None) == (name in HIERARCHICAL or name == "flood")
