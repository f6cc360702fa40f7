"""Bulk trace on Spark: ids per second, against a loop and a plain join, before and after compaction.

One run makes the trails (or takes those of `--work`), asks for ids of which half never existed, and holds every answer
against the truth: no hop may be missed, false ones must stay within what filters promise. Each way of asking runs once
cold, with the start of Spark, and again warm. Figures are of this machine and of what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from bench.bulk import Answered, Session, answered, compacted, plain_join
from bench.ends import driver_memory_growth, hundred_million, in_a_store, small_jobs, ten_ids
from bench.truthful import Judgement, judge_answers
from postroad.lab.trails import Scale, sample_ids, write_trail
from postroad.messages import MessageId
from postroad.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Iterable

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
LOOP_IDS = 1_000
SUBSCRIBERS = Scale().subscriptions


def main() -> None:
    """Measure, and print tables and one line of JSON."""
    began = time.perf_counter()
    options = _options()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"messages": options.messages, "ids": options.ids, "cores": psutil.cpu_count()}
    trails = {name: _trail(work, name, options.messages, options.seed) for name in options.recorders}
    small = _trail(work, "exact", options.messages // 10, options.seed)
    asked = _asked(work, trails[options.recorders[0]], options.ids, "ids")
    few = _asked(work, trails[options.recorders[0]], options.ids // 10, "few")
    wrong = 0
    over = 0
    for name, trail in trails.items():
        figures[name], judgement = _recorder(work, name, trail, asked)
        wrong += judgement.missed
        over += not judgement.is_within_promise
    probing = [figures[name]["filters_probed_per_s_per_core"] for name in trails if name != "exact"]
    if probing:
        figures["filters_probed_per_s_per_core"] = min(probing)
    if "exact" in trails:
        figures |= _growth(work, trails["exact"], small, asked, few, figures["exact"]["warm_s"])
        loop = _loop(trails["exact"], asked)
        figures["loop_ids_per_s"] = round(loop, 1)
        bulk = figures["exact"]["ids_per_s_with_start"]
        figures["bulk_vs_loop"] = round(bulk / loop, 2)
        after, judgement = _compaction(work, trails["exact"], asked, options.messages)
        wrong += judgement.missed
        figures |= after
        figures |= driver_memory_growth(work, small, trails["exact"], asked)
        figures |= in_a_store(work, small, few)
    figures |= ten_ids(work, options.messages, options.seed)
    figures |= small_jobs(work)
    if options.hundred and "exact" in trails:
        figures |= hundred_million(work, options.ids, options.seed, figures["exact"]["warm_s"])
    for name in trails:
        figures[name]["ids_per_s_per_core"] = round(figures[name]["ids_per_s_warm"] / (psutil.cpu_count() or 1))
    figures["missed_hops"] = wrong
    figures["recorders_over_budget"] = over
    figures["bench_s"] = round(time.perf_counter() - began)
    _show(figures, list(trails))
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if wrong or over else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200,000 messages and 20,000 ids: to see that all runs")
    parser.add_argument("--messages", type=int, help="10,000,000 by default")
    parser.add_argument("--ids", type=int, help="1,000,000 by default; half of them never existed")
    parser.add_argument("--recorders", nargs="+", default=list(RECORDERS), choices=RECORDERS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default=".cache/bench-pipeline", help="where trails and results go")
    parser.add_argument("--hundred", action="store_true", help="a hundred million messages too: an hour, and 20 GB")
    parser.add_argument("--keep", action="store_true", help="keep the trails for the next run")
    chosen = parser.parse_args()
    chosen.messages = chosen.messages or (200_000 if chosen.quick else 10_000_000)
    chosen.ids = chosen.ids or (20_000 if chosen.quick else 1_000_000)
    return chosen


def _trail(work: Path, recorder: str, messages: int, seed: int) -> Path:
    """A trail of the messages; one that is there already is taken as it is."""
    place = work / f"{recorder}-{messages}-{seed}"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        began = time.perf_counter()
        written = write_trail(place, Scale(messages=messages, seed=seed, recorder=recorder))
        (place / "done").touch()
        seconds = time.perf_counter() - began
        print(f"{recorder} trail of {messages:,} messages: {seconds:.0f} s, {written.bytes / messages:.1f} bytes each")
    return place


def _asked(work: Path, trail: Path, count: int, name: str) -> Path:
    import pyarrow.parquet as pq

    place = work / f"{name}-{count}.parquet"
    pq.write_table(sample_ids(trail, count), place)
    return place


def _recorder(work: Path, name: str, trail: Path, asked: Path) -> tuple[dict[str, Any], Judgement]:
    """Cold with the start of Spark, then warm; and the answers against the truth."""
    out = work / f"out-{name}"
    with Session() as session:
        cold = answered(session, trail, asked, out)
        warm = answered(session, trail, asked, out)
    judgement = judge_answers(trail, out / "trace", SUBSCRIBERS)
    print(f"{name}: cold {cold.seconds:.1f} s, warm {warm.seconds:.1f} s; {judgement}")
    probes = {}
    if name != "exact":
        probes = {"filters_probed_per_s_per_core": round(_probing_rate(trail))}
    return {
        "start_s": round(session.starting_seconds, 1),
        "cold_s": round(cold.seconds, 1),
        "warm_s": round(warm.seconds, 1),
        "ids_per_s_cold": round(cold.ids / cold.seconds),
        "ids_per_s_warm": round(warm.ids / warm.seconds),
        "ids_per_s_with_start": round(cold.ids / (cold.seconds + session.starting_seconds)),
        "bytes_read": warm.bytes_read,
        "bytes_shuffled": warm.bytes_shuffled,
        "peak_memory": warm.peak_memory,
        "missed_hops": judgement.missed,
        "false_brokers": judgement.false_brokers,
        "false_subscribers": judgement.false_subscribers,
        "false_subscribers_promised": round(judgement.promised, 1),
        "false_hops_within_budget": int(judgement.is_within_promise),
        **probes,
    }, judgement


def _probing_rate(trail: Path) -> float:
    """(filter, id) pairs a second on one core: a sample of filters, each asked for many ids at once."""
    import numpy as np
    import pyarrow.parquet as pq

    from postroad.pipeline.probes import loaded
    from postroad.tracking import FilterSegment
    from postroad.trail import pin

    entries = pin(trail, 1).all_entries("filters")[0][:8]
    rows = [row for entry in entries for row in pq.ParquetFile(trail / entry.path).read().to_pylist()]
    for row in rows:
        row.pop("crc")
        row["singles"] = np.empty(0, np.int64)
    segments = [FilterSegment(**row) for row in rows]
    keys = np.random.default_rng(1).integers(0, 1 << 63, 1_000).astype(np.uint64)
    began = time.thread_time()
    for segment in segments:
        loaded(segment).contains(keys)
    return len(segments) * len(keys) / (time.thread_time() - began)


def _loop(trail: Path, asked: Path) -> float:
    """Ids a second of one process that opens the trail once and asks one by one; its start is included."""
    import pyarrow.parquet as pq

    ids = pq.read_table(asked).slice(0, LOOP_IDS).to_pylist()
    began = time.perf_counter()
    reader = Trail(trail)
    for row in ids:
        reader.trace(MessageId(row["publisher"], row["origin"], row["time"], row["counter"]))
    rate = len(ids) / (time.perf_counter() - began)
    print(f"one by one: {rate:,.0f} ids a second")
    return rate


def _growth(work: Path, trail: Path, small: Path, asked: Path, few: Path, warm: float) -> dict[str, float]:
    """How the time grows with ten times the trail, and with ten times the ids; start excluded.

    All ids of all the trail were traced warm before, in so many seconds: with one more, the best of two as the others.
    """
    out = work / "out-growth"
    with Session() as session:
        answered(session, small, few, out)  # warms up
        of_few = _best(answered(session, trail, few, out) for _ in range(2))
        of_all = min(warm, answered(session, trail, asked, out).seconds)
        # Ids of the large trail are asked of the small one too: most are absent there, which costs the same search.
        of_small = _best(answered(session, small, asked, out) for _ in range(2))
    return {
        "growth_trail_10x": round(of_all / of_small, 2),
        "growth_ids_10x": round(of_all / of_few, 2),
        "start_excluded_s": round(session.starting_seconds, 1),
    }


def _best(runs: Iterable[Answered]) -> float:
    return min(run.seconds for run in runs)


def _compaction(work: Path, trail: Path, asked: Path, messages: int) -> tuple[dict[str, Any], Judgement]:
    copy, out = work / "compacted", work / "out-compacted"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(trail, copy)
    with Session() as session:
        change = compacted(session, copy, work / "out-compact")
    with Session() as session:
        cold = answered(session, copy, asked, out)
        warm = _best(answered(session, copy, asked, out) for _ in range(2))
        before = _best(answered(session, trail, asked, work / "out-before") for _ in range(1))
        plain = plain_join(session, trail, asked, work / "records")
    judgement = judge_answers(copy, out / "trace", SUBSCRIBERS)
    size = change.bytes_of_journeys / messages
    print(f"compacted: {size:.2f} bytes a message; trace {warm:.1f} s, was {before:.1f} s; plain join {plain:.1f} s")
    return {
        "compact_s": round(change.seconds, 1),
        "compact_files_before": change.files_before,
        "compact_files_after": change.files_after,
        "compact_bytes_before": change.bytes_before,
        "compact_bytes_after": change.bytes_after,
        "bytes_per_message_before": round(change.bytes_before / messages, 2),
        "bytes_per_message_after": round(change.bytes_after / messages, 2),
        "journey_bytes_per_message": round(size, 2),
        "trace_before_compaction_s": round(before, 1),
        "trace_after_compaction_s": round(warm, 1),
        "trace_after_compaction_cold_s": round(cold.seconds, 1),
        "plain_join_s": round(plain, 1),
        "journeys_vs_plain_join": round(plain / warm, 2),
    }, judgement


def _show(figures: dict[str, Any], recorders: list[str]) -> None:
    """A row for each figure, and what is promised of some; then everything as one line of JSON."""
    print(f"\n{'':32}" + "".join(f"{name:>16}" for name in recorders))
    for name in dict.fromkeys(name for recorder in recorders for name in figures[recorder]):
        cells = [figures[recorder].get(name, "") for recorder in recorders]
        print(f"{name:32}" + "".join(f"{cell:>16,}" if cell != "" else " " * 16 for cell in cells))
    print()
    for name, value in figures.items():
        if name not in TARGETS and not isinstance(value, dict):
            print(f"{name:32}{value:>16,}")
    for name, (target, way) in TARGETS.items():
        if name in figures:
            good = figures[name] >= target if way == "at least" else figures[name] <= target
            print(f"{name:32}{figures[name]:>16g}   {way} {target:g}{'' if good else ': missed'}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
