"""Tables of docs/tracking.md are made of what the benchmark saved, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from bench.tracked_broker import FLOORS
from bench.tracking import CEILINGS, verdicts
from bench.tracking_tables import cost_table, saturation_table


@pytest.fixture
def results() -> dict[str, Any]:
    """As a run would save them; every figure is made up."""
    costs = {
        f"{name}_{key}": 12.5
        for name in ("exact", "sealed", "bloom", "log")
        for key in ("told_ns", "alone_ns", "sealed_ns", "written_ns", "stored_bytes")
    }
    one = {"messages_per_s": 2_900_000, "cpu_s_per_million": 0.34, "p50_ms": 0.3, "p99_ms": 0.5}
    ratios = {"throughput_ratio_exact_vs_none": 0.91, "throughput_quartiles_exact_vs_none": [0.88, 0.93]}
    ratios["ratio_of_medians_exact_vs_none"] = 0.9
    return {**costs, "recorders": {"none": one, "exact": one}, **ratios}


def test_tables_have_a_line_for_every_row(results: dict[str, Any]) -> None:
    found = [make(results).splitlines() for make in (saturation_table, cost_table)]
    assert [len(lines) - 2 for lines in found] == [2, 4]
    for lines in found:
        assert len({line.count(" | ") for line in lines}) == 1
    assert "| 0.91 | 0.88 to 0.93 | 0.90 |" in found[0][-1]


def test_every_bound_gets_a_verdict() -> None:
    result = dict.fromkeys([*FLOORS, *CEILINGS], 1.05) | {"first_row_standard_errors": -4.0}
    words = (line.split(":")[0].split() for line in verdicts(result))
    told = {name: verdict for verdict, name in words}
    assert told["throughput_ratio_exact_vs_none"] == "meets"
    assert told["bloom_best_k_vs_limit"] == "meets"
    assert told["first_row_standard_errors"] == "MISSES"
    assert len(told) == len(FLOORS) + len(CEILINGS) + 1
