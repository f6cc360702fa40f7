"""The tracking paper (Jun and Astley, on Gryphon): Table 2 and Figures 4 and 5, the size of its scenario's records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from postroad.filters import TABLE_2, false_positive_rate
from postroad.lab.experiments.experiment import Experiment, Finding, Plot, PlottedLine, Results, RunRequest, Trial
from postroad.lab.papers.table_2 import LIMITS
from postroad.lab.papers.tracked_storage import paper_scenario, paper_strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.lab.raw_events import RawEvents

__all__ = ["RecordSizeExperiment"]

# The longest persistence interval of Table 2 is 27 s: a shorter run stores nothing of that row.
LEAST_SECONDS = 30
_FIGURES = ("forces/s", "raw bytes", "compressed bytes", "filling")
# The matching set that Table 2 assumes.
_MATCHING = 2


class RecordSizeExperiment(Experiment):
    """What the paper's strategies and our recorders store of 200 publishers with 25 messages a second each."""

    name: ClassVar[str] = "tracking-storage"
    title: ClassVar[str] = "disk forces and bytes per message: the paper's strategies and our recorders"
    source: ClassVar[str] = "message tracking with Bloom filter histories (Jun, Astley), Table 2, Figures 4 and 5"
    scaled: ClassVar[str] = f"seconds of virtual time (1,800 at scale 1, {LEAST_SECONDS} at least)"
    small: ClassVar[float] = LEAST_SECONDS / 1_800

    def trials(self, request: RunRequest) -> list[Trial]:
        seconds = max(LEAST_SECONDS, round(1_800 * request.scale))
        kinds: dict[str, Callable[[int], Iterable[Any]]] = {"paper": paper_strategies, "ours": paper_scenario}
        return [Trial(key, {"seconds": seconds}, partial(_play, make, seconds)) for key, make in kinds.items()]

    def findings(self, results: Results) -> list[Finding]:
        def figure(cell: str, row: str, what: str) -> float:
            return results.figure(cell, f"{row}: {what}")

        log, bloom = figure("ours", "log 10K 1 s", "forces/s"), figure("ours", "bloom 10K 99.999% 1 s", "forces/s")
        accuracies = {row: 1 - (1 - (1 - false_positive_rate(*shape)) ** _MATCHING) for row, shape in TABLE_2.items()}
        worst = min(accuracies[row] - float(row.split()[1].rstrip("%")) / 100 for row in accuracies)
        saved = 1 - figure("paper", "BF 10K 99.999% 1 s", "compressed bytes") / figure(
            "paper", "BF 10K 99.999% 1 s", "raw bytes"
        )
        packed = figure("paper", "ASYNC 10K 1 s", "compressed bytes") / figure("paper", "ASYNC 10K 1 s", "raw bytes")
        exact = 8 * figure("ours", "exact 135K 1 s", "compressed bytes")
        sure = 8 * figure("paper", "BF 135K 99.999% 8 s", "raw bytes")
        return [
            Finding(
                "Table 2: the shapes of filters meet 99.999, 99 and 95 %",
                f"by the paper's equations every row meets its accuracy; the tightest by {worst:.5%}",
                worst >= -1e-6,
                "k follows from how many positions an MD5 digest gives, so some rows are better than they need to be",
            ),
            Finding(
                "a buffer of 10,000 bytes holds 625 ids, one of 135,000 about 8,437",
                f"{LIMITS['10K'] // 16} and {LIMITS['135K'] // 16:,}",
                True,
                "an id has 16 bytes",
            ),
            Finding(
                "with 10,000 bytes ASYNC forces the disk about 8 times a second, BF fewer than 2 times",
                f"log {log:.2f}, bloom {bloom:.2f}; a ratio of {log / bloom:.2f}",
                results.verdict(7.5 < log < 8.5 and bloom < 2, "ours"),
                "a filter holds four times as many ids in the same memory",
            ),
            Finding(
                "full filters cannot be compressed",
                f"gzip saves {saved:.0%} of BF 10K 99.999 %",
                results.verdict(saved < 0.06, "paper"),
                "half of the bits of a full filter are set, at random places",
            ),
            Finding(
                "ASYNC compresses well",
                f"to {packed:.0%} of its size",
                results.verdict(packed < 0.5, "paper"),
                "ids of one buffer share publishers and the beginning of their times",
            ),
            Finding(
                "a Bloom filter stores fewer bytes than a log of ids",
                f"our exact record takes {exact:.1f} bits a message, a full filter for 99.999 % {sure:.1f}",
                results.verdict(exact > sure, "ours", "paper"),
                "sorted ids of known publishers need 7 bits or so each, and some more in a file; "
                "a filter for 95 % takes 8 bits, and errs",
            ),
        ]

    def plots(self, results: Results) -> list[Plot]:
        made = []
        for figure, what in (("4", "raw bytes"), ("5", "compressed bytes")):
            lines = [
                PlottedLine.of(
                    who,
                    [
                        (place, results.figure(cell, f"{name}: {what}"))
                        for place, (cell, name) in enumerate(_places(results))
                        if name.split()[0] == who
                    ],
                )
                for who in ("ASYNC", "BF", "log", "exact", "bloom", "sealed")
            ]
            caption = (
                f"Figure {figure} of the paper, computed anew (ASYNC, BF), beside our recorders. Across: rows of the "
                "table below, in order."
            )
            made.append(Plot(f"figure-{figure}", what.capitalize(), "row", f"{what} per message", lines, "y", caption))
        return made

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        return {
            "Rows": [
                {
                    "place": place,
                    "recorder, row, interval": name,
                    **{what: round(results.figure(cell, f"{name}: {what}"), 3) for what in _FIGURES},
                }
                for place, (cell, name) in enumerate(_places(results))
            ]
        }


def _play(make: Callable[[int], Iterable[Any]], seconds: int, events: RawEvents, tell: Callable[[float], None]) -> None:
    for who, row, interval, *figures in make(seconds):
        for what, value in zip(_FIGURES, figures, strict=True):
            events.measure(f"{who} {row} {interval} s: {what}", value)
    tell(1.0)


def _places(results: Results) -> list[tuple[str, str]]:
    """Return (cell, name) of every row, sorted by name."""
    found = {(row["cell"], row["name"].partition(":")[0]) for row in results.rows("figures")}
    return sorted(found, key=lambda one: (one[1].split()[1:], one[1]))
