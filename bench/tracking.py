"""What tracking costs: filters against the limit, records of the paper's scenario, and a broker with each recorder."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from bench.tracked_broker import FLOORS, recorders_compared
from bench.tracking_filters import PROBES, build_costs, error_rate_measured, partial_fill, sizes_against_the_limit
from bench.tracking_scenario import paper_scenario, recorder_costs
from bench.trail_size import exact_size

# Figures, and the most they may be.
CEILINGS = {
    "bloom_best_k_vs_limit": 1.46,
    "static_vs_limit": 1.08,
    "partial_fill_penalty_sealed": 1.1,
    "exact_bits": 13.0,
}
QUICK_PROBES = 4_000_000


def scenario(seconds: int) -> dict[str, Any]:
    """The paper's scenario as a table on the screen, and its chief figures."""
    print(f"the paper's scenario, {seconds} s of virtual time, 5,000 messages/s")
    print("recorder  row             Tp s   forces/s   bytes/message   compressed   filling")
    found = {}
    for one in paper_scenario(seconds):
        print(
            f"{one.recorder:8}  {one.row:14}  {one.interval_s:4}   {one.forces_per_s:8.2f}   {one.raw_bytes:13.2f}"
            f"   {one.compressed_bytes:10.2f}   {one.filling:6.0%}"
        )
        found[one.recorder, one.row, one.interval_s] = one
    log, bloom = found["log", "10K", 1], found["bloom", "10K 99.999%", 1]
    sealed = found["sealed", "10K 99.999%", 1]
    return {
        "log_forces_per_s": round(log.forces_per_s, 2),
        "bloom_forces_per_s": round(bloom.forces_per_s, 2),
        "force_ratio_log_vs_bloom": round(log.forces_per_s / bloom.forces_per_s, 2),
        "log_bytes": [round(log.raw_bytes, 2), round(log.compressed_bytes, 2)],
        "bloom_bytes": [round(bloom.raw_bytes, 2), round(bloom.compressed_bytes, 2)],
        "sealed_bytes": [round(sealed.raw_bytes, 2), round(sealed.compressed_bytes, 2)],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench tracking", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer probes, less virtual time, less traffic")
    parser.add_argument("--seconds", type=int, help="of virtual time in the paper's scenario, 30 or more")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result: dict[str, Any] = {"bench": "tracking", "quick": chosen.quick}
    result |= sizes_against_the_limit()
    result |= partial_fill()
    result |= error_rate_measured(QUICK_PROBES if chosen.quick else PROBES)
    result |= build_costs()
    result |= recorder_costs()
    result |= scenario(chosen.seconds or (60 if chosen.quick else 300))
    result |= exact_size(100_000 if chosen.quick else 1_000_000)
    result |= recorders_compared(3, 2.0) if chosen.quick else recorders_compared()
    for name, least in FLOORS.items():
        print(f"{'meets ' if result[name] >= least else 'MISSES'} {name}: {result[name]} (at least {least})")
    for name, most in CEILINGS.items():
        print(f"{'meets ' if result[name] <= most else 'MISSES'} {name}: {result[name]} (at most {most})")
    off = abs(result["first_row_standard_errors"])
    print(f"{'meets ' if off <= 3 else 'MISSES'} first_row_standard_errors: {off} (at most 3)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
