"""What tracking costs: filters against the limit, recorders alone, and a broker with each recorder at saturation."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.recorder_costs import recorder_costs, show_costs
from bench.recorder_ratios import recorder_ratios
from bench.tracked_broker import FLOORS, recorders_compared
from bench.tracking_filters import PROBES, build_costs, error_rate_measured, partial_fill, sizes_against_the_limit
from bench.trail_size import exact_size

if TYPE_CHECKING:
    from collections.abc import Callable

# Figures, and the most they may be.
CEILINGS = {
    "bloom_best_k_vs_limit": 1.46,
    "static_vs_limit": 1.08,
    "partial_fill_penalty_sealed": 1.1,
    "exact_bits": 13.0,
}
QUICK_PROBES = 4_000_000
QUICK_RECORDERS = ("none", "exact", "bloom", "sealed")
Figures = dict[str, Any]


def steps(quick: bool) -> dict[str, Callable[[], Figures]]:
    """What is measured, by name, in order."""
    return {
        "sizes of filters": lambda: sizes_against_the_limit() | partial_fill(),
        "false positives": lambda: error_rate_measured(QUICK_PROBES if quick else PROBES),
        "building filters": build_costs,
        "recorders alone": lambda: show_costs(recorder_costs(rounds=2 if quick else 5)),
        "the exact record of twenty brokers": lambda: exact_size(100_000 if quick else 1_000_000),
        "brokers at saturation": lambda: (
            recorders_compared(1, 1, 1.0, QUICK_RECORDERS) if quick else recorders_compared()
        ),
    }


def verdicts(result: Figures) -> list[str]:
    """Which bounds are met."""
    found = [_verdict(result[name] >= least, name, result[name], f"at least {least}") for name, least in FLOORS.items()]
    found += [_verdict(result[name] <= most, name, result[name], f"at most {most}") for name, most in CEILINGS.items()]
    off = abs(result["first_row_standard_errors"])
    return [*found, _verdict(off <= 3, "first_row_standard_errors", off, "at most 3")]


def _verdict(met: bool, name: str, value: float, bound: str) -> str:
    return f"{'meets ' if met else 'MISSES'} {name}: {value} ({bound})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench tracking", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer probes and rows, less time, less traffic")
    parser.add_argument("--save", type=Path, help="write all figures to this file, for tracking_tables")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit: only recorders, in turns with it")
    parser.add_argument("--rounds", type=int, default=3, help="turns with --before (default %(default)s)")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result: Figures = {"bench": "tracking", "quick": chosen.quick}
    if chosen.before is not None:
        print(json.dumps(result | {"rounds": chosen.rounds} | recorder_ratios(chosen.before, chosen.rounds)))
        return
    todo = steps(chosen.quick)
    begun = time.monotonic()
    for place, (name, step) in enumerate(todo.items()):
        print(f"{time.monotonic() - begun:5.0f} s  {place + 1}/{len(todo)} {name}", file=sys.stderr, flush=True)
        result |= step()
        print(flush=True)
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    if chosen.save is not None:
        chosen.save.write_text(json.dumps(result) + "\n")
    print("\n".join(verdicts(result)))
    print(json.dumps(result))
    if result["lost"]:
        sys.exit("deliveries did not come as sent: the figures above prove nothing")


if __name__ == "__main__":
    main()
