"""The benchmark of routing draws one load for all strategies, and notices what must never happen."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from bench.routing_core import tree_edges

from bench import routing
from postroad.lab.shapes import SHAPES
from postroad.messages import MessageId
from postroad.selectors import Selector
from postroad.topology import line

CLIENTS, MESSAGES = 12, 100


class Got:
    """A network whose subscribers got what a test says."""

    def __init__(self, got: dict[str, list[MessageId]]) -> None:
        self.got = got

    def delivered(self, name: str) -> list[MessageId]:
        return self.got[name]


def test_the_truth_is_what_selectors_say() -> None:
    given = routing.load(4, CLIENTS, MESSAGES)
    selectors = [Selector.parse(text) for text in given.selectors]
    expected = [[selector.matches(draft.attributes) for selector in selectors] for draft in given.drafts]
    assert given.wanted.tolist() == expected
    assert given.wanted.any()
    assert {len(text.split(" OR ")) for text in given.selectors} == {routing.PER_CLIENT}
    at = given.wanted_at(4)
    assert at[:, 1].tolist() == given.wanted[:, [1, 5, 9]].any(axis=1).tolist()
    assert given.first(10).wanted.tolist() == expected[:10]


def network_that_gave(messages: list[MessageId]) -> Any:
    return Got({"0": messages})


def test_a_delivery_too_many_or_too_few_stops_it() -> None:
    given = routing.load(1, 1, 40)
    ids = [MessageId(1, 1, 1, place) for place in range(40)]
    wanted = [ids[row] for row in np.flatnonzero(given.wanted[:, 0])]
    assert wanted
    assert routing.check("drp", network_that_gave(wanted), given, ids) == len(wanted)
    for got in (wanted[1:], [*wanted, wanted[0]], ids):
        with pytest.raises(SystemExit, match="this must never happen"):
            routing.check("drp", network_that_gave(got), given, ids)


def test_every_strategy_delivers_the_load() -> None:
    given = routing.load(4, CLIENTS, MESSAGES)
    for strategy in routing.STRATEGIES:
        outcome = asyncio.run(routing.measured(strategy, 4, given, "virtual"))
        assert outcome.deliveries == given.wanted.sum()
        assert outcome.bytes > outcome.total.data_bytes > 0 or strategy == "flood"
    packets, size = routing.lower_bound(4, given)
    assert 0 < packets < size


def test_the_bound_counts_each_link_once() -> None:
    edges = tree_edges(line(5))
    assert edges(1, (2, 3, 4)) == 3
    assert edges(3, (1, 5)) == 4
    assert edges(2, (2,)) == 0
    assert tree_edges(SHAPES[4])(1, (2, 3, 4)) == 3
