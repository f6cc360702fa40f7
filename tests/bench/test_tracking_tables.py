"""The tables and pictures of docs/tracking.md are made of what the benchmark saved, row by row."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bench.scene import Shown, show_scene
from bench.tracking import CEILINGS, FLOORS, verdicts  # type: ignore[attr-defined]
from bench.tracking_tables import cost_table, live_table, saturation_table, storage_table

from bench import tracking_plots
from postroad.lab.papers.table_2 import BASE, INTERVALS, LOG_INTERVALS, setups

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """As a run would save them; every figure is made up."""
    turns = [BASE, *setups()]
    shown = [Shown(setup, 1.5, 9.0, 4.0, 3.0, 8.0, 20_000, 0.6, 0.5, 2.0, 70.0, 0, flood_per_s=1e5) for setup in turns]
    scene = show_scene(shown)
    capsys.readouterr()
    rows = [
        [name, row, seconds, 2.0, 16.0, 2.5, 1.0]
        for names, table in ((("ASYNC", "log", "exact"), LOG_INTERVALS), (("BF", "bloom", "sealed"), INTERVALS))
        for row, some in table.items()
        for seconds in some
        for name in names
    ]
    costs = {
        f"{name}_{key}": 12.5
        for name in ("exact", "sealed", "bloom", "log")
        for key in ("told_ns", "alone_ns", "sealed_ns", "written_ns", "stored_bytes")
    }
    one = {"messages_per_s": 2_900_000, "cpu_s_per_million": 0.34, "p50_ms": 0.3, "p99_ms": 0.5}
    ratios = {"throughput_ratio_exact_vs_none": 0.91, "throughput_quartiles_exact_vs_none": [0.88, 0.93]}
    ratios["ratio_of_medians_exact_vs_none"] = 0.9
    return {**scene, "stored_rows": rows, **costs, "recorders": {"none": one, "exact": one}, **ratios}


def test_tables_have_a_line_for_every_row(results: dict[str, Any]) -> None:
    found = [make(results).splitlines() for make in (storage_table, live_table, saturation_table, cost_table)]
    assert [len(lines) - 2 for lines in found] == [10, 1 + len(setups()), 2, 4]
    for lines in found:
        assert len({line.count(" | ") for line in lines}) == 1
    assert "| 0.91 | 0.88 to 0.93 | 0.90 |" in found[2][-1]


def test_pictures_are_drawn_alike_from_the_same_figures(
    results: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "results.json"
    saved.write_text(json.dumps(results))
    drawn = []
    for folder in (tmp_path / "once", tmp_path / "again"):
        monkeypatch.setattr(sys, "argv", ["tracking_plots", str(saved), "--folder", str(folder)])
        tracking_plots.main()
        drawn.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(drawn[0]) == [f"tracking-figure-{number}.svg" for number in (3, 4, 5)]
    assert drawn[0] == drawn[1]


def test_every_bound_gets_a_verdict() -> None:
    result = dict.fromkeys([*FLOORS, *CEILINGS], 1.05) | {"first_row_standard_errors": -4.0}
    told: dict[Any, Any] = dict(reversed(line.split(":")[0].split()) for line in verdicts(result))  # type: ignore[misc]
    assert told["throughput_ratio_exact_vs_none"] == "meets"
    assert told["bloom_best_k_vs_limit"] == "meets"
    assert told["first_row_standard_errors"] == "MISSES"
    assert len(told) == len(FLOORS) + len(CEILINGS) + 1
