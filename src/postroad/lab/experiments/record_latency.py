"""The tracking paper (Jun and Astley, on Gryphon): Figure 3, what recorders cost a live broker in latency."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from postroad.lab.experiments.experiment import Experiment, Finding, Mode, Plot, PlottedLine, Results, RunRequest, Trial
from postroad.lab.papers.table_2 import BASE, RecorderSetup, setups
from postroad.lab.papers.tracked_turns import against_base, live_turns, with_base

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.lab.raw_events import RawEvents

__all__ = ["RecordLatencyExperiment"]

RECORDERS = ("log", "exact", "bloom", "sealed")
# Long enough to see a forced write, whatever the interval.
PAST_INTERVAL_SECONDS = 1.5
# Median latencies within this share of those without a recorder count as equal, and above the other as poor.
EQUAL, POOR = 0.05, 0.2
_FIGURES = (
    "commits_per_s",
    "fsyncs_per_s",
    "raw_bytes",
    "stored_bytes",
    "trail_bytes",
    "p50_ms",
    "p99_ms",
    "p50_ratio",
    "cpu_us",
    "flood_per_s",
    "flood_ratio",
)


class RecordLatencyExperiment(Experiment):
    """Latency of the paper's scenario with every recorder, row of Table 2 and interval, beside a broker without."""

    name: ClassVar[str] = "tracking-latency"
    title: ClassVar[str] = "latency, disk forces and throughput of a broker with each recorder"
    source: ClassVar[str] = "message tracking with Bloom filter histories (Jun, Astley), Figure 3"
    scaled: ClassVar[str] = "seconds of each turn (30 at scale 1); rows with longer intervals are left out"
    small: ClassVar[float] = 0.1
    modes: ClassVar[tuple[Mode, ...]] = ("live",)

    def trials(self, request: RunRequest) -> list[Trial]:
        seconds = 30 * request.scale
        found = []
        for recorder in RECORDERS:
            some = [one for one in setups() if one.recorder == recorder and one.interval_s <= max(1.0, seconds)]
            parameters = {"turns": len(some), "seconds": seconds}
            found.append(Trial(recorder, parameters, partial(_play, some, seconds)))
        return found

    def findings(self, results: Results) -> list[Finding]:
        def ratios(recorder: str, limit: str) -> list[float]:
            rows = [name for cell, name in _rows(results) if cell == recorder and name.split()[1] == limit]
            return [results.figure(recorder, f"{name}: p50_ratio") for name in rows]

        def ratio(recorder: str, limit: str) -> str:
            found = ratios(recorder, limit)
            return f"{min(found):.2f} to {max(found):.2f}" if found else "not measured"

        def equal(recorder: str, limit: str) -> bool | None:
            found = ratios(recorder, limit)
            return abs(median(found) - 1) <= EQUAL if found else None

        if results.is_crowded:
            loads, processors = results.machine
            busy = f"a load of {max(loads):.0f} on {processors} processors: times are those of waiting for one"
        else:
            busy = ""
        poor = ratios("log", "10K")
        tail, usual = (results.figure("log", f"{name}: p99_ms") for name in ("log 10K 1", "none 1"))
        found = [
            Finding(
                "ASYNC with 10,000 bytes: latency is poor, because the disk is forced so often",
                f"`log`: median {ratio('log', '10K')} times that without a recorder; p99 {tail:.1f} against "
                f"{usual:.1f} ms",
                max(poor) > 1 + POOR if poor else None,
                "our brokers write on another thread, so a forced disk does not stop messages; they share "
                "processors, which shows in the slowest ones",
            ),
            Finding(
                "ASYNC with 135,000 bytes: latency as without",
                f"`log`: median {ratio('log', '135K')} times that without a recorder",
                equal("log", "135K"),
                "buffers are stored once a second or less",
            ),
            Finding(
                "Bloom filters with 10,000 bytes: latency slightly above that without",
                f"`bloom`: median {ratio('bloom', '10K')} times that without a recorder",
                equal("bloom", "10K"),
                "as above; slightly is read as within 5 %",
            ),
            Finding(
                "Bloom filters with 135,000 bytes: latency as without",
                f"`bloom`: median {ratio('bloom', '135K')} times that without a recorder",
                equal("bloom", "135K"),
                "as above",
            ),
            Finding(
                "not stated (recorders that the paper does not have)",
                f"median against none: `exact` {ratio('exact', '135K')}, `sealed` {ratio('sealed', '135K')}; flooded, "
                f"`exact` carries {results.figure('exact', 'exact 135K 1: flood_ratio'):.0%} of what a broker "
                "without a recorder does",
                None,
                "a recorder costs processor time, and a second processor where one is free",
            ),
        ]
        # Waits for a processor hide what a recorder does: such a run is shown, and decides nothing.
        return [one._replace(agrees=None, why=busy) for one in found] if busy else found

    def plots(self, results: Results) -> list[Plot]:
        made = []
        for what, title in (("p50_ratio", "Median latency over that without a recorder"), ("commits_per_s", "Forces")):
            lines = [
                PlottedLine.of(
                    recorder,
                    [
                        (place, results.figure(cell, f"{name}: {what}"))
                        for place, (cell, name) in enumerate(_rows(results))
                        if cell == recorder and name.split()[0] != BASE.recorder
                    ],
                )
                for recorder in RECORDERS
            ]
            caption = "Across: rows of the table below, in order. The paper explains Figure 3 by the forces."
            made.append(Plot(what.replace("_", "-"), title, "row", title.lower(), lines, "", caption))
        return made

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        return {
            "Turns": [
                {
                    "place": place,
                    "recorder, row, interval in s": name,
                    **{
                        what.replace("_per_s", "/s").replace("_", " "): results.figure(cell, f"{name}: {what}")
                        for what in _FIGURES
                    },
                }
                for place, (cell, name) in enumerate(_rows(results))
            ]
        }


def _play(some: Sequence[RecorderSetup], seconds: float, events: RawEvents, tell: Callable[[float], None]) -> None:
    order = with_base(some)
    shown = []
    with live_turns() as turns:
        for place, setup in enumerate(order):
            tell(place / len(order))
            long_enough = max(seconds, setup.interval_s + PAST_INTERVAL_SECONDS)
            shown.append(turns.play(setup, long_enough, flood=setup.interval_s == 1))
    base = [one for one in shown if one.setup == BASE]
    for what in _FIGURES:
        events.measure(f"none 1: {what}", median(getattr(one, what) for one in base))
    for one in against_base(shown):
        for what in _FIGURES if one.setup != BASE else ():
            events.measure(f"{' '.join(map(str, one.setup))}: {what}", getattr(one, what))
    tell(1.0)


def _rows(results: Results) -> list[tuple[str, str]]:
    """Return (cell, name) of every row: without a recorder first, then by recorder, limit, accuracy and interval."""
    rows = [row for row in results.rows("figures") if row["cell"] in RECORDERS and ": " in row["name"]]
    found = {(row["cell"], row["name"].partition(":")[0]) for row in rows}

    def order(one: tuple[str, str]) -> tuple[object, ...]:
        cell, name = one
        *row, interval = name.split()
        return row[0] != BASE.recorder, RECORDERS.index(cell), row, int(interval)

    return sorted(found, key=order)
