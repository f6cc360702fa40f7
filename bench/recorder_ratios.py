"""What recorders cost, as a part of what they cost in another checkout: processes of both in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.broker import tell
from bench.paired import Spread, against_neighbours, spread

__all__ = ["recorder_ratios"]

HERE = Path(__file__).resolve().parents[1]
BEFORE, NOW = "before", "now"
RECORDERS = ("exact", "sealed", "bloom", "log")
COSTS = {"told_ns": "on the loop", "alone_ns": "one by one", "sealed_ns": "sealing", "written_ns": "writing"}
# Costs below this are hardly more than what it takes to read the clock: the exact recorder has nothing to seal.
LEAST_NS = 0.5
# Of each process the least of some rounds counts: in the first, memory is used for the first time.
ROUNDS_OF_A_TURN = 3


def recorder_ratios(checkout: Path, rounds: int) -> dict[str, Any]:
    """Processor time over that of the checkout: each turn against the two turns of the checkout beside it."""
    places = {BEFORE: checkout.resolve(), NOW: HERE}
    turns: list[tuple[str, dict[str, float]]] = []
    for place, name in enumerate([BEFORE, *(NOW, BEFORE) * rounds]):
        tell(f"turn {place + 1} of {2 * rounds + 1}: {name}")
        turns.append((name, _measured(places[name])))
    tell("")
    print(f"processor time per message over that of {checkout}; {rounds} turns, each between two of the checkout")
    print(f"{'recorder':10}{'':14}{'before ns':>11}{'now ns':>9}{'ratio':>8}{'quartiles':>16}")
    found: dict[str, Any] = {}
    for recorder in RECORDERS:
        for cost, title in COSTS.items():
            figure = f"{recorder}_{cost}"
            if min(values[figure] for _, values in turns) < LEAST_NS:
                continue
            least = {who: min(values[figure] for name, values in turns if name == who) for who in places}
            ratio = _ratio(turns, figure)
            quartiles = f"{ratio.low:.3f} {ratio.high:.3f}"
            print(
                f"{recorder:10}{title:14}{least[BEFORE]:>11,.2f}{least[NOW]:>9,.2f}{ratio.middle:>8.3f}{quartiles:>16}"
            )
            found[f"{figure}_vs_before"] = round(ratio.middle, 3)
            found[f"{figure}_quartiles_vs_before"] = [round(ratio.low, 3), round(ratio.high, 3)]
    return found


def _ratio(turns: list[tuple[str, dict[str, float]]], figure: str) -> Spread:
    return spread(against_neighbours([(name, values[figure]) for name, values in turns], BEFORE)[NOW])


def _measured(checkout: Path) -> dict[str, float]:
    """The figures of the checkout's own benchmark of recorders, with the packages of this interpreter."""
    environment = os.environ | {"PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    command = [sys.executable, "-m", "bench.recorder_costs", "--rounds", str(ROUNDS_OF_A_TURN)]
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
