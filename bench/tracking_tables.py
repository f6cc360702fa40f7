"""The tables of docs/tracking.md, in its own notation, from what `scripts/bench tracking --save FILE` wrote."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["cost_table", "live_table", "saturation_table", "storage_table"]

# The rows of the virtual scenario that say the most; the pictures show all.
TOLD = (
    ("ASYNC", "10K", 1),
    ("log", "10K", 1),
    ("exact", "135K", 1),
    ("BF", "10K 99.999%", 1),
    ("bloom", "10K 99.999%", 1),
    ("sealed", "10K 99.999%", 1),
    ("BF", "135K 99.999%", 1),
    ("bloom", "135K 99.999%", 1),
    ("sealed", "135K 99.999%", 1),
    ("bloom", "135K 99.999%", 8),
)
PAPERS = ("ASYNC", "BF")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column to the left, the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def storage_table(results: dict[str, Any]) -> str:
    """Forces and bytes of the paper's strategies and of our recorders, in virtual time."""
    found = {(name, row, seconds): figures for name, row, seconds, *figures in results["stored_rows"]}
    rows = []
    for name, row, seconds in TOLD:
        forces, raw, compressed, filling = found[name, row, seconds]
        who = f"the paper's {name}" if name in PAPERS else f"`{name}`"
        rows.append([who, row, f"{seconds} s", f"{forces:.2f}", f"{raw:.1f}", f"{compressed:.1f}", f"{filling:.0%}"])
    return table(["recorder", "row", "interval", "forces/s", "bytes/message", "compressed", "filling"], rows)


def cost_table(results: dict[str, Any]) -> str:
    """What a recorder costs per message, by where."""
    rows = []
    for name in ("exact", "sealed", "bloom", "log"):
        told, alone, sealed, written, stored = (
            results[f"{name}_{key}"] for key in ("told_ns", "alone_ns", "sealed_ns", "written_ns", "stored_bytes")
        )
        rows.append([f"`{name}`", f"{told:.0f}", f"{alone:,.0f}", f"{sealed:.0f}", f"{written:.0f}", f"{stored:.2f}"])
    heads = ["recorder", "on the event loop", "one by one", "sealing", "writing", "bytes written"]
    return table(heads, rows)


def live_table(results: dict[str, Any]) -> str:
    """All turns of the live scenario, and what `none` did."""
    base = results["live"]["none"]
    none = [f"{base['p50_ms']:.2f}", f"{base['p99_ms']:.1f}", "1", f"{base['cpu_us']:.0f}", f"{base['flood_per_s']:,}"]
    rows = [["`none`", *[""] * 6, *none, "1"]]
    for name, one in results["live_rows"].items():
        who, *row, seconds = name.split()
        flood = [f"{one['flood_per_s']:,.0f}", f"{one['flood_ratio']:.2f}"] if one["flood_per_s"] else ["", ""]
        sizes = [f"{one[key]:.1f}" for key in ("raw_bytes", "stored_bytes", "trail_bytes")]
        forces = [f"{one['commits_per_s']:.2f}", f"{one['fsyncs_per_s']:.1f}"]
        times = [f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.1f}", f"{one['p50_ratio']:.2f}", f"{one['cpu_us']:.0f}"]
        rows.append([f"`{who}` {' '.join(row)}", f"{seconds} s", *forces, *sizes, *times, *flood])
    heads = ["recorder and row", "interval", "commits/s", "fsyncs/s", "raw", "stored", "trail"]
    return table([*heads, "p50 ms", "p99 ms", "p50 ratio", "CPU µs", "flood/s", "ratio"], rows)


def saturation_table(results: dict[str, Any]) -> str:
    """One publisher to one subscriber, as much as gets through."""
    rows = []
    for name, one in results["recorders"].items():
        low, high = results.get(f"throughput_quartiles_{name}_vs_none", (1, 1))
        ratios = [results.get(f"{kind}_{name}_vs_none", 1) for kind in ("throughput_ratio", "ratio_of_medians")]
        figures = [f"{one['messages_per_s'] / 1e6:.2f}", f"{ratios[0]:.2f}", f"{low:.2f} to {high:.2f}"]
        figures += [
            f"{ratios[1]:.2f}",
            f"{one['cpu_s_per_million']:.2f}",
            f"{one['p50_ms']:.2f}",
            f"{one['p99_ms']:.2f}",
        ]
        rows.append([f"`{name}`", *figures])
    heads = ["recorder", "million/s", "paired ratio", "quartiles", "of medians", "CPU s/million", "p50 ms", "p99 ms"]
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench tracking_tables", description=__doc__)
    parser.add_argument("results", type=Path, help="what `scripts/bench tracking --save FILE` wrote")
    results = json.loads(parser.parse_args().results.read_text())
    print("\n\n".join(make(results) for make in (storage_table, live_table, saturation_table, cost_table)))


if __name__ == "__main__":
    main()
