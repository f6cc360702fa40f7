"""Where one message went, out of a trail of 20 brokers and 10,000,000 messages, and out of one a tenth as large."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from bench.stopwatch import clock
from postroad.lab.trails import RECORDERS, TRUTH, Scale, sample_ids, write_trail
from postroad.messages import MessageId
from postroad.tracking import Verdict
from postroad.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.tracking import Journey

BROKERS = 20
MESSAGES = 10_000_000
# Ten million messages are an hour of 2,800 a second. A smaller trail is a shorter time of the same traffic.
MESSAGES_PER_S = MESSAGES / 3_600
# Filters take far longer to build than an exact record: their trail is this much smaller.
FILTERS_SHARE = 100
# Ids asked after everything was thrown out of memory, which takes much longer than asking.
COLD_IDS = 20


@dataclass
class Costs:
    """What traces of one trail cost, one entry each."""

    cpu_ms: list[float] = field(default_factory=list)
    elapsed_ms: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Medians and the slow end."""
        return {
            "cpu_ms": round(median(self.cpu_ms), 3),
            "mean_cpu_ms": round(mean(self.cpu_ms), 3),
            "elapsed_ms": round(median(self.elapsed_ms), 3),
            "p99_elapsed_ms": round(float(np.percentile(self.elapsed_ms, 99)), 3),
            "files": round(mean(self.files), 1),
            "bytes": round(mean(self.bytes)),
        }


class Subject:
    """One trail that is asked, with the ids to ask for and the truth about each.

    Attributes:
        name: in results.
        there: traces of messages that passed, each with a fresh reader.
        absent: traces of ids that never existed, each with a fresh reader.
        open: traces of both kinds by one reader that stays open.
        cold: traces with nothing of the trail in memory.
        wrong: answers that differ from the truth.
        false_hops: brokers and subscribers in answers that the message never reached.
        asked: traces in all.
    """

    def __init__(self, name: str, root: Path, ids: int) -> None:
        self.name = name
        self.root = root
        rows = sample_ids(root, ids).to_pylist()
        self.ids = [MessageId(row["publisher"], row["origin"], row["time"], row["counter"]) for row in rows]
        self._truth = truth_about(root, self.ids)
        self.there, self.absent, self.open, self.cold = Costs(), Costs(), Costs(), Costs()
        self._reader = Trail(root)
        self.wrong: list[str] = []
        self.false_hops = 0
        self.asked = 0

    def ask(self, place: int) -> None:
        """Trace one of the ids, with a fresh reader and with the one that stays."""
        message = self.ids[place % len(self.ids)]
        self._trace(Trail(self.root), message, self.there if message in self._truth else self.absent)
        self._trace(self._reader, message, self.open)

    def ask_cold(self, place: int) -> None:
        """Trace one of the ids after the trail was thrown out of memory."""
        forget(self.root)
        self._trace(Trail(self.root), self.ids[place % len(self.ids)], self.cold)

    def _trace(self, trail: Trail, message: MessageId, costs: Costs) -> None:
        files, size = trail.reads.files, trail.reads.bytes
        cpu, elapsed = clock(), time.perf_counter()
        journey = trail.trace(message).journey
        costs.cpu_ms.append((clock() - cpu) * 1_000)
        costs.elapsed_ms.append((time.perf_counter() - elapsed) * 1_000)
        costs.files.append(trail.reads.files - files)
        costs.bytes.append(trail.reads.bytes - size)
        self._judge(message, journey)
        self.wrong += trail.warnings

    def _judge(self, message: MessageId, journey: Journey) -> None:
        """All that really happened must be in the answer; the exact record must have nothing else in it."""
        self.asked += 1
        brokers, deliveries = self._truth.get(message, (frozenset(), frozenset()))
        passed = {stop.broker for stop in journey.stops}
        got = {(broker, hit.number) for broker, hit in journey.delivered}
        if not (brokers <= passed and deliveries <= got) or journey.gaps:
            self.wrong.append(f"{message}: found {sorted(passed)} {sorted(got)}, truth {sorted(brokers)}")
        if not brokers and not passed and journey.verdict is not Verdict.NEVER_ACCEPTED:
            self.wrong.append(f"{message}: {journey.verdict.value}, though it never existed")
        self.false_hops += len(passed - brokers) + len(got - deliveries)


def truth_about(root: Path, ids: Iterable[MessageId]) -> dict[MessageId, tuple[frozenset[int], frozenset[Any]]]:
    """The brokers and deliveries of those that passed, a slice of the truth after the other."""
    wanted = set(ids)
    times = np.array(sorted({message.time for message in wanted}))
    found = {}
    for path in sorted((root / TRUTH).glob("*.parquet")):
        table = pq.read_table(path)
        for row in table.filter(np.isin(table.column("time").to_numpy(), times)).to_pylist():
            message = MessageId(row["publisher"], row["origin"], row["time"], row["counter"])
            if message in wanted:
                brokers = frozenset({row["origin"], *(hop & 0xFFFFFFFF for hop in row["path"])})
                found[message] = (brokers, frozenset(divmod(pair, 1 << 32) for pair in row["deliveries"]))
    return found


def forget(root: Path) -> None:
    """Throw the files of a trail out of memory, so that the next read comes from the disk."""
    for path in root.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def generated(root: Path, name: str, messages: int, seconds: float, recorder: str) -> Path:
    """A trail, made unless it is there."""
    out = root / f"{name}-{recorder}-{messages}"
    if out.exists():
        return out
    print(f"writing a trail of {messages:,} messages in {seconds:,.0f} s, {recorder} record ...", flush=True)
    scale = Scale(BROKERS, messages, recorder=recorder, seconds=max(1, round(seconds)))
    part = out.with_suffix(".part")
    written = write_trail(part, scale)
    part.rename(out)
    print(f"  {written.files:,} files, {written.bytes / written.messages:.1f} bytes per message")
    return out


def compare(subjects: list[Subject], ids: int) -> None:
    """Ask all trails in turn, so that what else the machine does hits them alike."""
    for place in range(5):  # the first traces import and allocate
        for subject in subjects:
            Trail(subject.root).trace(subject.ids[place])
    gc.collect()
    gc.disable()
    for place in range(ids):
        for subject in subjects:
            subject.ask(place)
        if place % 50 == 49:
            gc.collect()
    gc.enable()
    for place in range(COLD_IDS):
        for subject in subjects:
            subject.ask_cold(place)


def growth(small: Costs, large: Costs) -> dict[str, float]:
    """How many times more each figure is on the larger trail."""
    before, after = small.summary(), large.summary()
    return {name: round(after[name] / before[name], 3) for name in after}


def table(subjects: list[Subject]) -> Iterable[str]:
    yield f"{'trail':22}{'ids':14}{'CPU ms':>9}{'elapsed ms':>12}{'p99 ms':>9}{'files':>8}{'bytes':>12}"
    for subject in subjects:
        for kind in ("there", "absent", "open", "cold"):
            cost = getattr(subject, kind).summary()
            yield (
                f"{subject.name:22}{kind:14}{cost['cpu_ms']:>9.2f}{cost['elapsed_ms']:>12.2f}"
                f"{cost['p99_elapsed_ms']:>9.1f}{cost['files']:>8.1f}{cost['bytes']:>12,.0f}"
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench trace", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of the large trail (default %(default)s)")
    parser.add_argument("--ids", type=int, default=400, help="asked on each, half of them absent (default %(default)s)")
    parser.add_argument("--keep", type=Path, help="write the trails here, and use those that are here already")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    few = max(1_000, chosen.messages // 10)
    hour = chosen.messages / MESSAGES_PER_S
    with ExitStack() as stack:
        root = chosen.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postroad-bench-")))
        large = Subject("large", generated(root, "long", chosen.messages, hour, "exact"), chosen.ids)
        shorter = Subject("a tenth of the time", generated(root, "long", few, hour / 10, "exact"), chosen.ids)
        thinner = Subject("a tenth of the rate", generated(root, "thin", few, hour, "exact"), chosen.ids)
        subjects = [large, shorter, thinner]
        others: tuple[str, ...] = RECORDERS[1:]
        for recorder in others:
            count = max(1_000, chosen.messages // FILTERS_SHARE)
            trail = generated(root, "long", count, count / MESSAGES_PER_S, recorder)
            subjects.append(Subject(f"{recorder}, {count:,}", trail, chosen.ids))
        compare(subjects, chosen.ids)
    by_time, by_rate = (growth(smaller.there, large.there) for smaller in (shorter, thinner))
    print("\n".join(["", *table(subjects), ""]))
    result = {
        "bench": "trace",
        "messages": chosen.messages,
        "ids": chosen.ids,
        "trace_growth_10x": max(by_time["mean_cpu_ms"], by_time["files"], by_time["bytes"]),
        "trace_growth_10x_by_figure": by_time,
        "trace_growth_10x_rate": by_rate,
        "asked": sum(subject.asked for subject in subjects),
        "wrong": sum(len(subject.wrong) for subject in subjects),
        "false_hops": {subject.name: subject.false_hops for subject in subjects},
        "trails": {
            subject.name: {kind: getattr(subject, kind).summary() for kind in ("there", "absent", "open", "cold")}
            for subject in subjects
        },
    }
    print(json.dumps(result))
    wrong = [text for subject in subjects for text in subject.wrong]
    if wrong or any(subject.false_hops for subject in (large, shorter, thinner)):
        sys.exit("\n".join([f"{len(wrong):,} answers were not the truth, such as:", *wrong[:5]]))


if __name__ == "__main__":
    main()
