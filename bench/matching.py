"""The subscription index against evaluating one by one, 100 to 1,000,000 subscriptions."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.loading import Churn, Keys, Load, churn, load, removal_rate, resident_bytes
from bench.one_by_one import OneByOne, decoded
from bench.stopwatch import Side, best_of
from postroad.lab.workloads import WORKLOADS
from postroad.matching import SubscriptionIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.lab.workloads import Workload
    from postroad.messages import Batch

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (100, 1_000, 10_000)
BATCHES = (1, 16, 256)

# Different messages, so that what one of them brought into the processor's caches does not serve all the others.
MESSAGES = 16_384
# Generated functions at most, and messages they are asked about: at more subscriptions the time of one evaluation is
# taken to stay the same. That favours one-by-one, whose functions then no longer fit the caches.
FUNCTIONS = 10_000
ASKED = 512
ROUNDS, QUICK_ROUNDS = 25, 3
ROUND_SECONDS = 0.05
EVALUATION_SECONDS = 0.1
# Messages that one-by-one is asked about before the clock runs: each of its functions must be called some times before
# Python has specialised its code.
WARMING = 64

CHURN_SIZE = 100_000
CHURN_PAIRS = 10_000
CHURN_ROUNDS = 3
REMOVED = 50_000

CHECKED = 1_500  # subscriptions of the comparison, of which a third is removed again
CHECKED_MESSAGES = 512

# With kernels from the disk the process starts at some 165 megabytes; compiling them takes several hundred more.
AFTER_COMPILING = 300_000_000
RESTARTED = "POSTROAD_BENCH_RESTARTED"

# Messages per second that ActiveMQ 5.17 routed past so many selectors of kind (a), on a machine much like ours.
ACTIVEMQ = {100: 32_000, 1_000: 5_800, 10_000: 235}


class Matching(NamedTuple):
    """One workload at one size and one batch size."""

    us_per_message: float
    one_by_one_us: float  # decoding included
    evaluation_us: float  # decoding not included

    @property
    def speedup(self) -> float:
        return self.one_by_one_us / self.us_per_message


@dataclass
class Measured:
    """One workload at one size."""

    letter: str
    size: int
    ns_per_evaluation: float
    decode_us: float
    estimated: bool  # the evaluations of a sample, scaled
    matches: float  # per message
    resident: float
    at_most: float
    own: float
    parsed_per_s: float
    added_per_s: float
    removed_per_s: float = 0.0
    churn: Churn | None = None
    batches: dict[int, Matching] = field(default_factory=dict)


class Progress:
    """Lines on stderr: what is being done, and since when; and what the process began with."""

    def __init__(self) -> None:
        self.ground = resident_bytes()
        self._start = perf_counter()
        self._used = process_time()

    def say(self, text: str) -> None:
        print(f"[{perf_counter() - self._start:5.0f} s] {text}", file=sys.stderr, flush=True)

    def busy(self) -> str:
        """How much of the time this program had a processor: the rest went to others on the machine."""
        elapsed = perf_counter() - self._start
        share = (process_time() - self._used) / elapsed
        return f"the run took {elapsed:,.0f} s and had a processor for {share:.0%} of it; load {load_average()}"

    def loading(self, label: str, size: int) -> Callable[[int], None]:
        """Tells every quarter of a large load."""
        told = 0

        def tell(count: int) -> None:
            nonlocal told
            if size >= 500_000 and 4 * count // size > told:
                told = 4 * count // size
                self.say(f"{label}: {count:,} in the index")

        return tell


# What is measured


def check(workload: Workload) -> None:
    """Compare the index with one-by-one evaluation, exactly, after adding and removing; ends the run if they differ."""
    subscriptions = list(islice(workload.subscriptions(), CHECKED))
    index = SubscriptionIndex()
    for key, subscription in enumerate(subscriptions):
        index.add(key, *subscription)
    gone = set(np.random.default_rng(3).permutation(CHECKED)[: CHECKED // 3].tolist())
    for key in gone:
        index.remove(key)
    batch = workload.batch(CHECKED_MESSAGES)
    one_by_one = OneByOne(subscriptions)
    offsets, slots = index.match(batch)
    for row, message in enumerate(decoded(batch)):
        found = sorted(index.keys(slots[offsets[row] : offsets[row + 1]].tolist()))  # type: ignore[type-var]
        expected = [key for key in one_by_one.matches(message) if key not in gone]
        if found != expected:
            raise SystemExit(f"({workload.letter}) message {row}: the index says {found}, one by one {expected}")


def measure(workload: Workload, rounds: int, churning: bool, earlier: Measured | None, progress: Progress) -> Measured:
    """Load, match, churn and remove. `earlier` has the time of one evaluation when this size is too large for it."""
    label = f"({workload.letter}) {workload.size:,}"
    progress.say(f"{label}: loading; {resident_bytes() / 1e6:,.0f} MB before")
    loaded = load(workload, progress.ground, progress.loading(label, workload.size))
    batch = workload.batch(MESSAGES)
    progress.say(f"{label}: matching")
    result = match(workload, loaded, batch, rounds, earlier)
    keys = Keys(workload.size)
    if churning:
        progress.say(f"{label}: churning")
        result.churn = churn(loaded, keys, CHURN_PAIRS, CHURN_ROUNDS)
    result.removed_per_s = removal_rate(loaded.index, keys.drawn(min(REMOVED, workload.size)))
    return result


def match(workload: Workload, loaded: Load, batch: Batch, rounds: int, earlier: Measured | None) -> Measured:
    index, size = loaded.index, workload.size
    sides = {str(rows): Side(index.match, cut(batch, rows), ROUND_SECONDS) for rows in BATCHES}
    scaled = size > FUNCTIONS and earlier is not None
    asked = batch.take(np.arange(ASKED))
    one_by_one = OneByOne(islice(workload.subscriptions(), 0 if scaled else min(size, FUNCTIONS)))
    if not scaled:
        for message in decoded(asked.take(np.arange(WARMING))):
            one_by_one.matches(message)
        sides["evaluate"] = Side(one_by_one.matches, decoded(asked), EVALUATION_SECONDS)
        sides["decode"] = Side(decoded, cut(asked, 1), ROUND_SECONDS)
    best = best_of(rounds, sides)
    if scaled and earlier is not None:
        ns, decode_us = earlier.ns_per_evaluation, earlier.decode_us
    else:
        ns, decode_us = best["evaluate"] / len(one_by_one) * 1e9, best["decode"] * 1e6
    result = Measured(
        workload.letter, size, ns, decode_us, size > FUNCTIONS, matches_per_message(index, batch),
        loaded.resident, loaded.at_most, loaded.own, loaded.parsed_per_s, loaded.added_per_s,
    )  # fmt: skip
    evaluation_us = ns * size / 1e3
    for rows in BATCHES:
        result.batches[rows] = Matching(best[str(rows)] / rows * 1e6, decode_us + evaluation_us, evaluation_us)
    return result


def cut(batch: Batch, rows: int) -> list[Batch]:
    """The batch as batches of so many rows; at most 4,096 of them."""
    starts = range(0, min(len(batch), 4096 * rows) - rows + 1, rows)
    return [batch.take(np.arange(start, start + rows)) for start in starts]


def matches_per_message(index: SubscriptionIndex, batch: Batch) -> float:
    """Over at least a thousand messages, in batches that keep a large answer small."""
    totals = [int(index.match(part)[0][-1]) for part in cut(batch.take(np.arange(1024)), 64)]
    return sum(totals) / 1024


# What is printed


def print_matching(measured: list[Measured]) -> None:
    for letter in dict.fromkeys(one.letter for one in measured):
        print(f"\n({letter}) {WORKLOADS[letter].title}")
        print(
            f"{'subscriptions':>13}{'batch':>7}{'messages/s':>13}{'matches/s':>15}{'us/message':>13}"
            f"{'matches':>12}{'ns/evaluation':>15}{'one by one, us':>16}{'speedup':>11}"
        )
        for one in measured:
            if one.letter == letter:
                for rows, matching in one.batches.items():
                    print_row(one, rows, matching)
    if any(one.estimated for one in measured):
        print(f"~ estimated: the time of one evaluation among {FUNCTIONS:,}, which favours one-by-one")


def print_row(one: Measured, rows: int, matching: Matching) -> None:
    rate = 1e6 / matching.us_per_message
    mark = "~" if one.estimated else ""
    nanoseconds = f"{mark}{one.ns_per_evaluation:.0f}"
    alone = f"{mark}{matching.one_by_one_us:,.1f}"
    print(
        f"{one.size:>13,}{rows:>7}{rate:>13,.0f}{rate * one.matches:>15,.0f}{matching.us_per_message:>13,.2f}"
        f"{one.matches:>12,.2f}{nanoseconds:>15}{alone:>16}{matching.speedup:>11,.1f}"
    )


def print_holding(measured: list[Measured]) -> None:
    print(
        "\nHolding subscriptions, bytes each: what the index's arrays take, what the process grew by while loading, and"
    )
    print("what it grew by since the start (an upper bound: it includes what earlier loads left behind)")
    print(
        f"{'':>4}{'subscriptions':>13}{'arrays':>9}{'process':>9}{'at most':>9}{'parsed/s':>11}"
        f"{'added/s':>11}{'removed/s':>11}{'churn/s':>11}{'and parsing':>13}"
    )
    for one in measured:
        # Below this the growth of the process is mostly that of something else.
        grown = (f"{one.resident:,.0f}", f"{one.at_most:,.0f}") if one.size >= 1_000_000 else ("", "")
        changes = (f"{one.churn.parsed:,.0f}", f"{one.churn.with_parsing:,.0f}") if one.churn else ("", "")
        print(
            f"({one.letter}) {one.size:>13,}{one.own:>9,.0f}{grown[0]:>9}{grown[1]:>9}{one.parsed_per_s:>11,.0f}"
            f"{one.added_per_s:>11,.0f}{one.removed_per_s:>11,.0f}{changes[0]:>11}{changes[1]:>13}"
        )


def print_yardstick(measured: list[Measured]) -> None:
    for one in measured:
        if one.letter == "a" and one.size in ACTIVEMQ:
            rate = 1e6 / one.batches[256].us_per_message
            print(
                f"past {one.size:,} selectors of kind (a): matched {rate:,.0f} messages/s; ActiveMQ 5.17 on a similar "
                f"machine routed about {ACTIVEMQ[one.size]:,}, which is more work than matching alone"
            )


class Target(NamedTuple):
    name: str
    sign: str
    bound: float

    def verdict(self, value: Any) -> str:
        if value is None:
            return "not measured"
        return "yes" if (value >= self.bound if self.sign == ">=" else value <= self.bound) else "NO"


TARGETS = (
    Target("a_speedup_10k", ">=", 5_000),
    Target("a_growth_10k_1m", "<=", 4),
    Target("b_speedup_10k", ">=", 500),
    Target("bytes_per_subscription", "<=", 400),
    Target("churn_per_s", ">=", 20_000),
)


def print_targets(result: dict[str, Any]) -> None:
    print(f"\n{'':28}{'target':>12}{'measured':>14}{'reached':>14}")
    for target in TARGETS:
        value = result[target.name]
        shown = "-" if value is None else f"{value:,.10g}"
        bound = f"{target.sign} {target.bound:,.0f}"
        print(f"{target.name:28}{bound:>12}{shown:>14}{target.verdict(value):>14}")
    slower = result["slower_than_one_by_one"]
    print(f"{'slower_than_one_by_one':28}{'none':>12}{', '.join(slower) or 'none':>14}{'NO' if slower else 'yes':>14}")


def summary(measured: list[Measured]) -> dict[str, Any]:
    """The object of the last line; None where this run did not measure."""
    at = {(one.letter, one.size): one for one in measured}

    def us(letter: str, size: int, rows: int = 256) -> float | None:
        one = at.get((letter, size))
        return round(one.batches[rows].us_per_message, 3) if one else None

    def speedup(letter: str) -> int | None:
        one = at.get((letter, 10_000))
        return round(one.batches[256].speedup) if one else None

    letters = list(dict.fromkeys(one.letter for one in measured))
    small, large = us("a", 10_000), us("a", 1_000_000)
    sizes = {one.letter: round(one.at_most) for one in measured if one.size == 1_000_000}
    churns = {one.letter: round(one.churn.parsed) for one in measured if one.churn and one.size == CHURN_SIZE}
    return {
        "bench": "matching",
        "a_speedup_10k": speedup("a"),
        "a_growth_10k_1m": round(large / small, 2) if small and large else None,
        "b_speedup_10k": speedup("b"),
        "slower_than_one_by_one": slower(measured, lambda one: one.one_by_one_us),
        "bytes_per_subscription": max(sizes.values(), default=None),
        "churn_per_s": min(churns.values(), default=None),
        "speedup_10k": {letter: speedup(letter) for letter in letters},
        "us_per_message_10k": {letter: us(letter, 10_000) for letter in letters},
        "us_per_message_1m": {letter: us(letter, 1_000_000) for letter in letters},
        "us_batch_of_1_10k": {letter: us(letter, 10_000, 1) for letter in letters},
        "matches_per_message_1m": {one.letter: round(one.matches, 2) for one in measured if one.size == 1_000_000},
        "bytes_at_most_1m": sizes,
        "bytes_resident_1m": {one.letter: round(one.resident) for one in measured if one.size == 1_000_000},
        "bytes_own_1m": {one.letter: round(one.own) for one in measured if one.size == 1_000_000},
        "churn": churns,
        "churn_with_parsing": {one.letter: round(one.churn.with_parsing) for one in measured if one.churn},
        "added_per_s": {one.letter: round(one.added_per_s) for one in measured},
        "removed_per_s": {one.letter: round(one.removed_per_s) for one in measured},
        "ns_per_evaluation": {one.letter: round(one.ns_per_evaluation, 1) for one in measured},
        "decode_us": {one.letter: round(one.decode_us, 1) for one in measured},
        "slower_than_evaluation_alone": slower(measured, lambda one: one.evaluation_us),
    }


def slower(measured: list[Measured], other: Callable[[Matching], float]) -> list[str]:
    """Where the index lost, as workload/subscriptions/batch."""
    return [
        f"{one.letter}/{one.size}/{rows}"
        for one in measured
        for rows, matching in one.batches.items()
        if matching.us_per_message > other(matching)
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench matching", description=__doc__)
    parser.add_argument("--sizes", help="subscriptions, separated by commas")
    parser.add_argument("--workloads", default="abcd", help="letters out of abcd")
    parser.add_argument("--quick", action="store_true", help=f"up to {QUICK_SIZES[-1]:,} subscriptions, fewer rounds")
    chosen = parser.parse_args()
    default = QUICK_SIZES if chosen.quick else SIZES
    try:
        chosen.sizes = sorted(int(size) for size in chosen.sizes.split(",")) if chosen.sizes else list(default)
    except ValueError:
        parser.error(f"--sizes takes integers separated by commas, not {chosen.sizes!r}")
    if min(chosen.sizes) < 1:
        parser.error("--sizes takes positive integers")
    if unknown := set(chosen.workloads) - set(WORKLOADS):
        parser.error(f"--workloads knows the letters {''.join(WORKLOADS)}, not {''.join(sorted(unknown))}")
    return chosen


def load_average() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def print_machine(rounds: int) -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    print(
        f"Python {platform.python_version()}, {versions}, {platform.machine()}, {os.cpu_count()} processors "
        f"(load {load_average()}), one thread; {resident_bytes() / 1e6:,.0f} MB at the start"
    )
    print(
        f"processor time, the best of {rounds} rounds each, index and one-by-one in turn; "
        f"{MESSAGES:,} different messages"
    )


def start_without_compiler() -> None:
    """Start again if this process has compiled the kernels: memory that the compiler left behind would hide growth."""
    if resident_bytes() > AFTER_COMPILING and RESTARTED not in os.environ:
        print("the kernels are compiled; starting again without the compiler", file=sys.stderr, flush=True)
        os.execve(
            sys.executable, [sys.executable, "-m", "bench.matching", *sys.argv[1:]], os.environ | {RESTARTED: "1"}
        )


def main() -> None:
    chosen = arguments()
    start_without_compiler()
    rounds = QUICK_ROUNDS if chosen.quick else ROUNDS
    progress = Progress()
    print_machine(rounds)
    for letter in chosen.workloads:
        progress.say(f"({letter}) comparing the index with one-by-one evaluation")
        check(WORKLOADS[letter](CHECKED))
    print(
        f"index and one-by-one agree: {CHECKED:,} subscriptions, a third removed, {CHECKED_MESSAGES} messages, exactly"
    )
    measured: list[Measured] = []
    for letter in chosen.workloads:
        earlier = None
        for size in chosen.sizes:
            earlier = measure(WORKLOADS[letter](size), rounds, size == CHURN_SIZE, earlier, progress)
            measured.append(earlier)
    print_matching(measured)
    print_holding(measured)
    print()
    print_yardstick(measured)
    result = summary(measured)
    print_targets(result)
    print(progress.busy())
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
