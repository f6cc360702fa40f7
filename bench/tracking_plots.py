"""The pictures of docs/tracking.md: what recorders write in the paper's scenario, and latency with each of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.tracked_broker import recorders_compared
from bench.tracking_scenario import paper_scenario

if TYPE_CHECKING:
    from bench.tracking_scenario import Written

FOLDER = Path("docs/img")
COLOURS = {"log": "#999999", "bloom": "#c46a1b", "sealed": "#1b6ac4"}
_WIDTH = 0.38


def storage(found: list[Written], path: Path) -> None:
    """Disk forces, and bytes per message raw and compressed, as the paper's Figures 4 and 5 have them."""
    from matplotlib import pyplot

    places = list(dict.fromkeys((one.row, one.interval_s) for one in found))
    figure, panels = pyplot.subplots(3, 1, figsize=(9, 7), sharex=True)
    panels_of = (
        ("forces_per_s", "disk forces/s"),
        ("raw_bytes", "bytes/message (Fig. 4)"),
        ("compressed_bytes", "compressed (Fig. 5)"),
    )
    for panel, (name, title) in zip(panels, panels_of, strict=True):
        for shift, recorder in ((0.0, "log"), (-_WIDTH / 2, "bloom"), (_WIDTH / 2, "sealed")):
            some = [one for one in found if one.recorder == recorder]
            at = [places.index((one.row, one.interval_s)) + shift for one in some]
            heights = [getattr(one, name) for one in some]
            panel.bar(at, heights, _WIDTH, color=COLOURS[recorder], label=recorder)
        panel.set_yscale("log")
        panel.minorticks_off()
        panel.set_ylabel(title)
        panel.grid(axis="y", alpha=0.3)
    panels[0].legend(ncols=3)
    panels[-1].set_xticks(
        range(len(places)), [f"{row}, {seconds} s" for row, seconds in places], rotation=60, ha="right"
    )
    _save(figure, path)


def latency(recorders: dict[str, dict[str, float]], path: Path) -> None:
    """Latency of a broker with each recorder, as the paper's Figure 3 has it for its strategies."""
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(6, 3))
    for shift, name, colour in ((-_WIDTH / 2, "p50_ms", "#1b6ac4"), (_WIDTH / 2, "p99_ms", "#c46a1b")):
        at = [place + shift for place in range(len(recorders))]
        panel.bar(at, [one[name] for one in recorders.values()], _WIDTH, color=colour, label=name.removesuffix("_ms"))
    panel.set_xticks(range(len(recorders)), list(recorders))
    panel.set_yscale("log")
    panel.minorticks_off()
    panel.set_ylabel("latency, ms (Fig. 3)")
    panel.grid(axis="y", alpha=0.3)
    panel.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench tracking_plots", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="of virtual time in the paper's scenario")
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison of brokers; 0 leaves it out")
    chosen = parser.parse_args()
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        sys.exit("the pictures need the library matplotlib: pip install matplotlib")
    mpl.use("svg")
    # Text stays text, and the same figures give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "postroad", "font.size": 8})
    storage(paper_scenario(chosen.seconds), FOLDER / "tracking-storage.svg")
    if chosen.rounds:
        latency(recorders_compared(chosen.rounds, 4.0)["recorders"], FOLDER / "tracking-latency.svg")


if __name__ == "__main__":
    main()
