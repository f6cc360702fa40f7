"""Bulk trace on Spark: ids per second, against a loop and a plain join, before and after compaction.

One run makes the trails (or takes those of `--work`), asks for ids of which half never existed, and holds every answer
against the truth: no hop may be missed, false ones must stay within what filters promise. Each way of asking runs once
cold, with the start of Spark, and again warm. Figures are of this machine and of what else runs on it.

The run is one of sections, in the order of `--help`, for each size. What a section gave is kept in `--work`: a run that
was cut, or that was told `--only` some sections, is gone on with by the next. The last line is one object of JSON, in
which null stands for what was not measured, and `not_measured` says why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import psutil  # type: ignore[import-untyped]

from bench.bulk import stop_session
from bench.ends import driver_memory_growth, in_a_store, small_jobs, ten_ids
from bench.kept_figures import KeptFigures, digest_of
from bench.pipeline_sections import compaction, growth, hundred, journeys, loop, recorder
from bench.pipeline_trails import LARGE, Trails
from bench.stores import STORE_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

RECORDERS = ("exact", "sealed", "bloom")
# What is promised, and whether it is at least or at most.
TARGETS = {
    "bulk_vs_loop": (20.0, "at least"),
    "journeys_vs_plain_join": (6.0, "at least"),
    "growth_trail_10x": (8.0, "at most"),
    "growth_trail_100m": (8.0, "at most"),
    "ten_ids_bytes_read_share": (0.02, "at most"),
    "driver_memory_growth_10x": (1.2, "at most"),
    "small_job_vs_bare_session": (2.0, "at most"),
    "s3_vs_local": (2.0, "at most"),
    "growth_ids_10x": (8.0, "at most"),
    "journey_bytes_per_message": (10.0, "at most"),
}
# What the other sections give; `null` where they were not measured.
FIGURES = {
    "small": ("small_job_vs_bare_session", "small_spark_job_vs_bare_session", "warm_small_job_seconds"),
    "ten_ids": ("ten_ids_bytes_read_share",),
    "journeys": ("journeys_vs_plain_join",),
    "memory": ("driver_memory_growth_10x",),
    "store": ("s3_vs_local",),
    "compaction": ("journey_bytes_per_message",),
    "growth": ("growth_trail_10x", "growth_ids_10x"),
    "loop": ("bulk_vs_loop",),
    "hundred": ("growth_trail_100m",),
}
SECTIONS = (
    "small",
    "exact",
    "ten_ids",
    "journeys",
    "memory",
    "store",
    "compaction",
    "growth",
    "loop",
    "hundred",
    *RECORDERS[1:],
)
QUICK, TEN_MILLION, HUNDRED_MILLION = 200_000, 10_000_000, 100_000_000
IDS = 1_000_000
# Few messages of an hour would be thousands of files of some hundred bytes.
QUICK_SECONDS = 300
SOURCES = ("bench", *(f"src/postroad/{room}" for room in ("pipeline", "trail", "tracking", "filters", "lab/trails")))


class Step(NamedTuple):
    """A section on trails of one size; 0 for that of a demonstration."""

    section: str
    messages: int
    work: Callable[[], dict[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.section}@{self.messages}" if self.messages else self.section


def main() -> None:
    """Measure, and print tables and one line of JSON."""
    began = time.perf_counter()
    options = _options()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    trails = Trails(work, options.seed, options.ids, 3_600 if max(options.messages) >= LARGE else QUICK_SECONDS)
    root = Path(__file__).resolve().parent.parent
    path = work / f"figures-{options.seed}-{options.ids}.json"
    if options.fresh:
        path.unlink(missing_ok=True)
    kept = KeptFigures(path, digest_of(root / one for one in SOURCES), options.minutes)
    _measure(trails, kept, options)
    figures = _figures(kept, options)
    figures["bench_s"] = round(time.perf_counter() - began)
    _show(figures, options.messages)
    if not options.keep and not kept.skipped:
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(figures))
    sys.exit(1 if kept.failed or figures["missed_hops"] or figures["recorders_over_budget"] else 0)


def _measure(trails: Trails, kept: KeptFigures, options: argparse.Namespace) -> None:
    # Whoever ends this run gets what it has measured so far.
    before = signal.signal(signal.SIGTERM, _interrupt)
    with patch.dict(os.environ, STORE_ENVIRONMENT):
        for step in _steps(trails, kept, options):
            if step.section not in options.only:
                kept.skipped[step.name] = "not asked for (--only)"
            elif kept.measure(step.name, step.work) is None:
                stop_session()  # It may have failed with the section.
        stop_session()
    signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200,000 messages and 20,000 ids: to see that all runs")
    parser.add_argument("--messages", type=int, nargs="+", help="sizes, ascending; 1,000,000 and 10,000,000 by default")
    parser.add_argument("--hundred", action="store_true", help="a hundred million messages too: exact, hundred")
    parser.add_argument("--ids", type=int, help="1,000,000 by default; half of them never existed")
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=SECTIONS, help="some of the sections")
    parser.add_argument("--minutes", type=float, default=0, help="begin no further section after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default=".cache/bench-pipeline", help="where trails, results and figures go")
    parser.add_argument("--fresh", action="store_true", help="measure again what an earlier run has measured")
    parser.add_argument("--keep", action="store_true", help="keep the trails for the next run")
    chosen = parser.parse_args()
    chosen.messages = chosen.messages or ([QUICK] if chosen.quick else [LARGE, TEN_MILLION])
    chosen.messages += [HUNDRED_MILLION] if chosen.hundred else []
    chosen.ids = chosen.ids or min(IDS, min(chosen.messages) if min(chosen.messages) >= LARGE else QUICK // 10)
    return chosen


def _steps(trails: Trails, kept: KeptFigures, options: argparse.Namespace) -> Iterator[Step]:
    """What to measure, the sizes ascending: what is cut off first is what takes longest."""
    yield Step("small", 0, partial(small_jobs, trails))
    for size in options.messages:
        yield Step("exact", size, partial(recorder, trails, size, "exact"))
        if size >= HUNDRED_MILLION:
            yield Step("hundred", size, partial(hundred, trails, size // 10, size))
            continue
        yield Step("ten_ids", size, partial(ten_ids, trails, size))
        yield Step("compaction", size, partial(compaction, trails, size))
        yield Step("journeys", size, partial(journeys, trails, size))
        yield Step("memory", size, partial(driver_memory_growth, trails, size))
        # The server is one of Python in this process: more would be about it.
        yield Step("store", size, partial(in_a_store, trails, min(size, LARGE)))
        yield Step("growth", size, partial(growth, trails, size))
        bulk = (kept.of(f"exact@{size}") or {}).get("ids_per_s_with_start")
        yield Step("loop", size, partial(loop, trails, size, bulk))
        for name in RECORDERS[1:]:
            yield Step(name, size, partial(recorder, trails, size, name))


def _figures(kept: KeptFigures, options: argparse.Namespace) -> dict[str, Any]:
    """All that was measured: at the top what is of the largest size that has it, below it all sizes."""
    found: dict[str, Any] = {"messages": options.messages, "ids": options.ids, "cores": psutil.cpu_count()}
    for names in FIGURES.values():
        found |= dict.fromkeys(names)
    found |= dict.fromkeys(RECORDERS)
    found |= kept.of("small") or {}
    sizes: dict[str, dict[str, Any]] = {}
    wrong = over = 0
    for size in options.messages:
        here = sizes[str(size)] = {}
        for section in SECTIONS[1:]:
            figures = kept.of(f"{section}@{size}")
            if figures is None:
                continue
            if section in RECORDERS:
                here[section] = figures
                wrong, over = wrong + figures["missed_hops"], over + (not figures["false_hops_within_budget"])
            else:
                here |= figures
                wrong += figures.get("compacted_missed_hops", 0)
        # Of a hundred million messages only what no other size has; the recorders beside their smaller sizes.
        found |= here if size < HUNDRED_MILLION else {name: here[name] for name in here.keys() - {*RECORDERS}}
    found |= {"missed_hops": wrong, "recorders_over_budget": over, "sizes": sizes}
    return found | {"loads": kept.loads(), "not_measured": kept.skipped}


def _show(figures: dict[str, Any], sizes: list[int]) -> None:
    """A column for each recorder and size, then a row for each figure, and what is promised of some."""
    columns = {
        f"{name} {size:,}": figures["sizes"][str(size)][name]
        for size in sizes
        for name in RECORDERS
        if name in figures["sizes"][str(size)]
    }
    print(f"\n{'':32}" + "".join(f"{name:>20}" for name in columns))
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        cells = [column.get(name, "") for column in columns.values()]
        print(f"{name:32}" + "".join(f"{cell:>20,}" if cell != "" else " " * 20 for cell in cells))
    print()
    for name, value in figures.items():
        if name not in TARGETS and isinstance(value, int | float):
            print(f"{name:32}{value:>16,}")
    for name, (target, way) in TARGETS.items():
        value = figures[name]
        if value is None:
            print(f"{name:32}{'not measured':>16}   {way} {target:g}")
            continue
        good = value >= target if way == "at least" else value <= target
        print(f"{name:32}{value:>16g}   {way} {target:g}{'' if good else ': missed'}")
    for name, reason in figures["not_measured"].items():
        print(f"{name}: not measured: {reason}")


if __name__ == "__main__":
    main()
