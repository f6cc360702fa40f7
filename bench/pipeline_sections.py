"""What `bench.pipeline` measures on trails of one size: bulk traces by recorder, growth, a loop, compaction, journeys.

Each function is one section: it makes what it needs, and gives figures by name. `recorder` starts a session of Spark,
and the sections after it go on with that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from bench.bulk import answered, compacted, fresh_session, plain_join, warm_session
from bench.truthful import judge_answers
from postroad.lab.trails import Scale
from postroad.messages import MessageId
from postroad.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.bulk import Answered
    from bench.pipeline_trails import Trails

__all__ = ["compaction", "growth", "hundred", "journeys", "loop", "recorder"]

LOOP_IDS = 1_000
SUBSCRIBERS = Scale().subscriptions


def recorder(trails: Trails, messages: int, name: str) -> dict[str, Any]:
    """A bulk trace cold, with the start of Spark, then warm; and the answers against the truth."""
    trail = trails.of(messages, name)
    asked, out = trails.asked(trail, trails.ids), trails.work / f"out-{name}"
    session = fresh_session()
    cold = answered(session, trail, asked, out)
    warm = answered(session, trail, asked, out)
    judgement = judge_answers(trail, out / "trace", SUBSCRIBERS)
    print(f"{name}: cold {cold.seconds:.1f} s, warm {warm.seconds:.1f} s; {judgement}", flush=True)
    probes = {} if name == "exact" else {"filters_probed_per_s_per_core": round(_probing_rate(trail))}
    return {
        "ids": warm.ids,
        "start_s": round(session.starting_seconds, 1),
        "cold_s": round(cold.seconds, 1),
        "warm_s": round(warm.seconds, 1),
        "warm_cpu_s": round(warm.cpu_seconds, 1),
        "ids_per_s_cold": round(cold.ids / cold.seconds),
        "ids_per_s_warm": round(warm.ids / warm.seconds),
        "ids_per_s_with_start": round(cold.ids / (cold.seconds + session.starting_seconds)),
        "ids_per_s_per_core": round(warm.ids / warm.seconds / (psutil.cpu_count() or 1)),
        "ids_per_cpu_s": round(warm.ids / warm.cpu_seconds),
        "bytes_shuffled": warm.bytes_shuffled,
        "peak_memory": warm.peak_memory,
        "missed_hops": judgement.missed,
        "false_brokers": judgement.false_brokers,
        "false_subscribers": judgement.false_subscribers,
        "false_subscribers_promised": round(judgement.promised, 1),
        "false_hops_within_budget": int(judgement.is_within_promise),
        **probes,
    }


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


def growth(trails: Trails, messages: int) -> dict[str, Any]:
    """How a bulk trace grows with ten times the trail, and with ten times the ids; the start of Spark is not in it."""
    trail, small = trails.of(messages), trails.of(messages // 10)
    asked, few = trails.asked(trail, trails.ids), trails.asked(trail, trails.ids // 10)
    out = trails.work / "out-growth"
    session = warm_session()
    answered(session, small, few, out)  # warms up
    of_few = _best(answered(session, trail, few, out) for _ in range(2))
    of_all = _best(answered(session, trail, asked, out) for _ in range(2))
    # Ids of the large trail are asked of the small one too: most are absent there, which costs the same search.
    of_small = _best(answered(session, small, asked, out) for _ in range(2))
    return {
        "growth_trail_10x": round(of_all.seconds / of_small.seconds, 2),
        "growth_ids_10x": round(of_all.seconds / of_few.seconds, 2),
        "growth_trail_10x_cpu": round(of_all.cpu_seconds / of_small.cpu_seconds, 2),
        "growth_ids_10x_cpu": round(of_all.cpu_seconds / of_few.cpu_seconds, 2),
    }


def hundred(trails: Trails, small: int, large: int) -> dict[str, Any]:
    """How a bulk trace of as many ids grows from ten to a hundred million messages; both warm, in turns."""
    places = [trails.of(messages) for messages in (small, large)]
    asked = [trails.asked(trail, trails.ids) for trail in places]
    out, session = trails.work / "out-hundred", warm_session()
    answered(session, places[0], asked[0], out)  # warms up
    turns = [[answered(session, *one, out) for one in zip(places, asked, strict=True)] for _ in range(2)]
    of_small, of_large = (_best(turn[side] for turn in turns) for side in range(2))
    return {
        "ten_million_s": round(of_small.seconds, 1),
        "hundred_million_s": round(of_large.seconds, 1),
        "hundred_million_cpu_s": round(of_large.cpu_seconds, 1),
        "hundred_million_peak_memory": of_large.peak_memory,
        "growth_trail_100m": round(of_large.seconds / of_small.seconds, 2),
        "growth_trail_100m_cpu": round(of_large.cpu_seconds / of_small.cpu_seconds, 2),
    }


def _best(runs: Iterable[Answered]) -> Answered:
    return min(runs, key=lambda run: run.seconds)


def loop(trails: Trails, messages: int, bulk: float | None) -> dict[str, Any]:
    """Ids a second of one process that opens the trail once and asks one by one; its start is included.

    Args:
        trails: where they are.
        messages: of the trail.
        bulk: ids a second of a bulk trace, with the start of Spark; None where that was not measured.
    """
    import pyarrow.parquet as pq

    trail = trails.of(messages)
    ids = pq.read_table(trails.asked(trail, trails.ids)).slice(0, LOOP_IDS).to_pylist()
    began = time.perf_counter()
    reader = Trail(trail)
    for row in ids:
        reader.trace(MessageId(row["publisher"], row["origin"], row["time"], row["counter"]))
    rate = len(ids) / (time.perf_counter() - began)
    ratio = {} if bulk is None else {"bulk_vs_loop": round(bulk / rate, 2)}
    return {"loop_ids_per_s": round(rate, 1), **ratio}


def compaction(trails: Trails, messages: int) -> dict[str, Any]:
    """What compaction takes, and what is left: the copy stays for `journeys`."""
    trail = trails.of(messages)
    copy = trails.copy(trail)
    change = compacted(warm_session(), copy, trails.work / "out-compact")
    (copy / "done").touch()
    return {
        "compact_s": round(change.seconds, 1),
        "compact_files_before": change.files_before,
        "compact_files_after": change.files_after,
        "compact_bytes_before": change.bytes_before,
        "compact_bytes_after": change.bytes_after,
        "bytes_per_message_before": round(change.bytes_before / messages, 2),
        "bytes_per_message_after": round(change.bytes_after / messages, 2),
        "journey_bytes_per_message": round(change.bytes_of_journeys / messages, 2),
    }


def journeys(trails: Trails, messages: int) -> dict[str, Any]:
    """A bulk trace of a compacted trail, against what Spark does on its own over one row for each record."""
    trail = trails.of(messages)
    copy = trail.with_name(f"{trail.name}-compacted")
    if not (copy / "done").exists():
        compaction(trails, messages)
    asked, out = trails.asked(trail, trails.ids), trails.work / "out-compacted"
    session = warm_session()
    answered(session, copy, asked, out)  # warms up
    first = answered(session, copy, asked, out)
    plain = plain_join(session, trail, asked, trails.work / f"records-{trail.name}")
    # Before and after, so that both sides had the same machine, as far as that can be said of one that is shared.
    warm = min(first, answered(session, copy, asked, out), key=lambda run: run.seconds)
    before = answered(session, trail, asked, trails.work / "out-before")
    judgement = judge_answers(trail, out / "trace", SUBSCRIBERS)
    print(
        f"journeys {warm.seconds:.1f} s, passages {before.seconds:.1f} s, plain join {plain.seconds:.1f} s", flush=True
    )
    return {
        "trace_before_compaction_s": round(before.seconds, 1),
        "trace_after_compaction_s": round(warm.seconds, 1),
        "trace_after_compaction_cpu_s": round(warm.cpu_seconds, 1),
        "plain_join_s": round(plain.seconds, 1),
        "plain_join_cpu_s": round(plain.cpu_seconds, 1),
        "journeys_vs_plain_join": round(plain.seconds / warm.seconds, 2),
        "journeys_vs_plain_join_cpu": round(plain.cpu_seconds / warm.cpu_seconds, 2),
        "compacted_missed_hops": judgement.missed,
    }
