"""The tables of docs/tracking.md, in its own notation, from what `scripts/bench tracking --save FILE` wrote."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["cost_table", "saturation_table"]


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column to the left, the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    print("\n\n".join(make(results) for make in (saturation_table, cost_table)))


if __name__ == "__main__":
    main()
