"""The pictures of docs/tracking.md: the paper's Figures 3 to 5 beside ours, from what `bench tracking` saved."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from postroad.lab.papers.table_2 import INTERVALS, LOG_INTERVALS

FOLDER = Path("docs/img")
COLOURS = {"paper": "#b5b5b5", "log": "#555555", "exact": "#2a8f4f", "bloom": "#c46a1b", "sealed": "#1b6ac4"}
LABELS = {"paper": "the paper's ASYNC and BF, computed anew"}
# What the paper's text says of its Figure 3, by the first and last place that it says it of.
WORDS = (
    (0, 0, "paper:\npoor"),
    (1, 2, "paper:\nas NULL"),
    (3, 7, "paper:\na little above NULL"),
    (8, 19, "paper:\nhardly above NULL"),
)
PLACES = [("log", limit, seconds) for limit, some in LOG_INTERVALS.items() for seconds in some] + [
    ("bloom", row, seconds) for row, some in INTERVALS.items() for seconds in some
]
_WIDTH = 0.27


class Bar(NamedTuple):
    """One bar."""

    who: str
    row: str
    interval_s: int
    height: float


def stored(results: dict[str, Any], column: int) -> list[Bar]:
    """A column of the table of the virtual scenario; the paper's strategies are one series."""
    return [
        Bar("paper" if row[0] in ("ASYNC", "BF") else row[0], row[1], row[2], row[column])
        for row in results["stored_rows"]
    ]


def live(results: dict[str, Any], figure: str) -> list[Bar]:
    """A figure of the live scenario."""
    found = []
    for name, figures in results["live_rows"].items():
        who, *row, seconds = name.split()
        found.append(Bar(who, " ".join(row), int(seconds), figures[figure]))
    return found


def draw(panel: Any, bars: list[Bar], title: str) -> None:
    """Bars of one row and interval side by side."""
    drawn = set()
    for place, (_, row, seconds) in enumerate(PLACES):
        here = [bar for bar in bars if (bar.row, bar.interval_s) == (row, seconds)]
        for turn, bar in enumerate(sorted(here, key=lambda one: list(COLOURS).index(one.who))):
            label = "" if bar.who in drawn else LABELS.get(bar.who, bar.who)
            drawn.add(bar.who)
            at = place + (turn - (len(here) - 1) / 2) * _WIDTH
            panel.bar(at, bar.height, _WIDTH, color=COLOURS[bar.who], label=label or "_")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.set_ylabel(title)
    panel.grid(axis="y", alpha=0.3)
    panel.set_xlim(-0.7, len(PLACES) - 0.3)


def name_places(panel: Any) -> None:
    panel.set_xticks(range(len(PLACES)), [f"{row}, {seconds} s" for _, row, seconds in PLACES], rotation=60, ha="right")


def figure_3(results: dict[str, Any], path: Path) -> None:
    """Latency, and the disk forces that the paper explains it by."""
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
    draw(upper, live(results, "p50_ratio"), "median latency, live, over that of none")
    upper.axhline(1.0, color="black", linewidth=0.8)
    top = upper.get_ylim()[1]
    upper.set_ylim(top=top * 2.5)
    for first, last, words in WORDS:
        upper.text((first + last) / 2, top * 1.05, words, ha="center", va="bottom", fontsize=7, style="italic")
        upper.axvspan(first - 0.5, last + 0.5, color="black", alpha=0.03 if first in (0, 3) else 0.07, linewidth=0)
    draw(lower, [bar for bar in stored(results, 3) if bar.who == "paper"] + live(results, "commits_per_s"), "forces/s")
    _explain(figure, lower)
    name_places(lower)
    _save(figure, path)


def figure_of_bytes(results: dict[str, Any], column: int, title: str, path: Path) -> None:
    """Bytes per message, before or after compression."""
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(9, 3.6))
    draw(panel, stored(results, column), title)
    _explain(figure, panel)
    name_places(panel)
    _save(figure, path)


def _explain(figure: Any, panel: Any) -> None:
    figure.legend(*panel.get_legend_handles_labels(), ncols=5, fontsize=7, loc="upper center", frameon=False)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Room for the legend on top.
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(path, metadata={"Date": None})
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench tracking_plots", description=__doc__)
    parser.add_argument("results", type=Path, help="what `scripts/bench tracking --save FILE` wrote")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the pictures (default %(default)s)")
    chosen = parser.parse_args()
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        sys.exit("the pictures need the library matplotlib: pip install matplotlib")
    mpl.use("svg")
    # Text stays text, and the same figures give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "postroad", "font.size": 8})
    results = json.loads(chosen.results.read_text())
    figure_3(results, chosen.folder / "tracking-figure-3.svg")
    figure_of_bytes(results, 4, "bytes per message", chosen.folder / "tracking-figure-4.svg")
    figure_of_bytes(results, 5, "bytes per message, compressed", chosen.folder / "tracking-figure-5.svg")


if __name__ == "__main__":
    main()
