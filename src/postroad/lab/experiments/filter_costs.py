"""Menth and Henjes' measurements of FioranoMQ, for our broker: throughput by filters and copies, and its costs."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from postroad.capacity import CORRELATION, LINEAR, BatchSamples, fit_every_form
from postroad.lab.calibration import Programme, cell_samples, measure
from postroad.lab.experiments.experiment import Experiment, Finding, Mode, Plot, PlottedLine, Results, RunRequest, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.lab.raw_events import RawEvents

__all__ = ["FilterCostExperiment"]

OTHERS = (5, 10, 20, 40, 80, 160)
COPIES = (1, 2, 5, 10, 20, 40)
_SAMPLE = ("messages", "subscriptions", "copies", "destinations", "bytes", "seconds")


class FilterCostExperiment(Experiment):
    """Figure 4 and Table I: R filters that match and n that do not, on a live broker kept saturated."""

    name: ClassVar[str] = "fiorano-grid"
    title: ClassVar[str] = "throughput of one broker by filters that match and filters that do not"
    source: ClassVar[str] = "waiting times of FioranoMQ 7.5 (Menth, Henjes), Figure 4 and Table I"
    scaled: ClassVar[str] = "seconds of each load (100 at scale 1)"
    small: ClassVar[float] = 0.002
    modes: ClassVar[tuple[Mode, ...]] = ("live",)

    def trials(self, request: RunRequest) -> list[Trial]:
        seconds = 100 * request.scale
        return [
            Trial(f"filters-{others}", {"others": others, "seconds": seconds}, partial(_play, others, seconds))
            for others in OTHERS
        ]

    def findings(self, results: Results) -> list[Finding]:
        def rate(others: int, copies: int) -> float:
            return results.figure(f"filters-{others}", f"overall rate, R={copies}")

        costs = self._fit(results)
        ours = rate(160, 1) / rate(5, 1)
        many = rate(5, 40) / rate(5, 1)
        return [
            Finding(
                "Figure 4: with one copy, 155 more filters that do not match leave 5 % of the throughput "
                "(33,349 to 1,742 messages/s, received and sent)",
                f"{rate(5, 1):,.0f} to {rate(160, 1):,.0f} messages/s: {ours:.0%} are left",
                results.verdict(ours < 0.2, "filters-5", "filters-160"),
                "FioranoMQ tests one filter after the other; ours looks correlation ids up in an index, so that what "
                "is left is noise: of short loads, and of what else the machine does",
            ),
            Finding(
                "Figure 4: with 5 filters, 40 copies instead of one raise the overall throughput "
                "(33,349 to 41,134 messages/s)",
                f"{rate(5, 1):,.0f} to {rate(5, 40):,.0f} messages/s",
                results.verdict(many > 1, "filters-5"),
                "a message is received once and sent many times",
            ),
            Finding(
                "Table I, correlation ids: 0.852 us to receive, 7.02 us for each filter, 17.0 us for each copy",
                f"by the same form: {1e6 * costs['receive']:.3g} us, {1e6 * costs['match']:.3g} us, "
                f"{1e6 * costs['send']:.3g} us",
                results.verdict(costs["match"] > CORRELATION.match / 2, *(f"filters-{one}" for one in OTHERS)),
                "the form charges every message for every filter, which is not what an index costs; "
                "the form `batched` of docs/capacity.md fits better",
            ),
        ]

    @staticmethod
    def _fit(results: Results) -> dict[str, float]:
        rows: dict[str, dict[str, float]] = {}
        for row in results.rows("figures"):
            key, _, what = row["name"].partition("; ")
            if what in _SAMPLE:
                rows.setdefault(f"{row['cell']} {key}", {})[what] = row["value"]
        if not rows:
            return dict.fromkeys(("receive", "match", "send"), float("nan"))
        columns = np.array([[one[name] for name in _SAMPLE] for one in rows.values()], np.float64).T
        samples = BatchSamples(*columns)
        fits = fit_every_form(samples, np.arange(len(samples.seconds)))
        return next(dict(fit.estimates) for fit in fits if fit.form is LINEAR)

    def plots(self, results: Results) -> list[Plot]:
        lines = [
            PlottedLine.of(
                f"R = {copies}",
                [(others, results.figure(f"filters-{others}", f"overall rate, R={copies}")) for others in OTHERS],
            )
            for copies in COPIES
        ]
        caption = "Figure 4 for our broker: messages received and sent a second, by filters that do not match."
        return [Plot("grid", "Throughput by filters", "filters that do not match", "messages/s", lines, "xy", caption)]

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        return {
            "Messages received and sent a second": [
                {
                    "filters that do not match": others,
                    **{
                        f"R = {copies}": round(results.figure(f"filters-{others}", f"overall rate, R={copies}"))
                        for copies in COPIES
                    },
                }
                for others in OTHERS
            ]
        }


def _play(others: int, seconds: float, events: RawEvents, tell: Callable[[float], None]) -> None:
    programme = Programme((others,), COPIES, (0,), (1, 16), seconds, by_selector=True)
    done = 0

    def line(_: str) -> None:
        nonlocal done
        done += 1
        tell(min(0.99, done / (len(programme) + 1)))

    with tempfile.TemporaryDirectory(prefix="postroad-lab-") as folder:
        measured = asyncio.run(measure(programme, Path(folder), line))
    for one in measured:
        if one.cell.saturated:
            copies = one.cell.copies
            events.measure(f"overall rate, R={copies}", (1 + copies) * one.rate / max(one.busy, 1e-9), "messages/s")
            events.measure(f"processors, R={copies}", one.busy)
    samples = cell_samples(measured)
    for place, row in enumerate(zip(*samples, strict=True)):
        for name, value in zip(_SAMPLE, row, strict=True):
            events.measure(f"sample {place}; {name}", float(value))
    tell(1.0)
