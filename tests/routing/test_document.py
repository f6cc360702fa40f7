"""What docs/routing.md shows is true."""

from __future__ import annotations

import re

from postroad.broker import order_wait, publisher_order
from postroad.broker.publisher_order import MAX_WAITING, MAX_WAITING_BYTES
from postroad.routing import Strategy
from postroad.routing.floors import MAX_PUBLISHERS
from postroad.routing.seen_ids import DEFAULT_WINDOW, MAX_REMEMBERED, REMEMBER_MS
from postroad.topology import Plan, Settings
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

DOCUMENT = ROOT / "docs" / "routing.md"


def test_plan_in_the_document_can_be_read() -> None:
    settings, order, shown = [block.text for block in blocks(DOCUMENT) if block.language == "toml"]
    assert Plan.parse(shown.replace("[settings]\n", order)).settings.order == "publisher"
    for text in (shown, shown.replace("[settings]\n", settings)):
        plan = Plan.parse(text)
        assert [broker.number for broker in plan.brokers] == [1, 2]
        assert Plan.parse(plan.to_toml()) == plan
    assert plan.settings.interest == "encoded"


def test_document_has_the_limits_of_the_memory_of_ids() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"| ids remembered, one origin | those of {REMEMBER_MS // 1_000} s and {DEFAULT_WINDOW:,} blocks |" in text
    assert f"| ids remembered, all origins | {MAX_REMEMBERED:,} blocks of 64 ids, 84 MB |" in text
    assert f"| publishers with a floor of their own, one origin | {MAX_PUBLISHERS:,} |" in text
    assert (
        f"| messages kept back for order, one broker | {MAX_WAITING:,} and {MAX_WAITING_BYTES // 2**20} MiB |" in text
    )
    assert f"| publishers whose last id is known for order | {publisher_order.MAX_PUBLISHERS:,} |" in text
    assert order_wait(Settings(order="publisher")) == 5_000


def test_document_names_every_method_of_the_contract() -> None:
    methods = {name for name in vars(Strategy) if not name.startswith("_")} - {"link_state", "membership", "statistics"}
    section = DOCUMENT.read_text("utf-8").split("## The contract")[1].split("\n**`Routed`**")[0]
    assert set(re.findall(r"`(\w+)\(", section)) == methods
