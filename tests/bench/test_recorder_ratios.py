"""The comparison of recorders with those of another checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.recorder_ratios import COSTS, RECORDERS, recorder_ratios

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# Stands for the benchmark of a checkout: the same figures in every turn.
BENCHMARK = """\
import json, sys
assert sys.argv[1:] == ["--rounds", "3"]
print("a table")
print(json.dumps({figures}))
"""


def checkout(root: Path, figures: dict[str, float]) -> Path:
    (root / "bench").mkdir(parents=True)
    (root / "bench" / "recorder_costs.py").write_text(BENCHMARK.format(figures=figures))
    return root


def test_costs_are_compared_with_those_of_the_other_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {f"{recorder}_{cost}": 4.0 for recorder in RECORDERS for cost in COSTS}
    before = checkout(tmp_path / "before", figures)
    now = checkout(tmp_path / "now", figures | {"exact_written_ns": 3.0, "bloom_told_ns": 0.2})
    monkeypatch.setattr("bench.recorder_ratios.HERE", now)
    found = recorder_ratios(before, rounds=2)
    assert found["exact_written_ns_vs_before"] == 0.75
    assert found["exact_written_ns_quartiles_vs_before"] == [0.75, 0.75]
    assert found["sealed_written_ns_vs_before"] == 1.0
    assert "bloom_told_ns_vs_before" not in found
    assert "exact     writing              4.00     3.00   0.750" in capsys.readouterr().out
