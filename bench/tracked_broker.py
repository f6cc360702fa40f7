"""A broker over sockets with each recorder: messages per second from one to one, processor time, and latency."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.broker import OFFERED_RATE, Case, measure, tell
from bench.peers.postroad import recording
from bench.processes import started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.load import Outcome
    from bench.processes import Running

__all__ = ["FLOORS", "RECORDERS", "recorders_compared"]

RECORDERS = ("none", "log", "exact", "bloom", "sealed")
# What a broker that keeps a record moves, as a part of what it moves without: at least.
FLOORS = {
    "throughput_ratio_exact_vs_none": 0.9,
    "throughput_ratio_sealed_vs_none": 0.9,
    "throughput_ratio_bloom_vs_none": 0.85,
}
# Some seals in each run, so that building filters and writing files counts. The default is a minute.
PERSIST_SECONDS = 1.0
WARM_UP_SECONDS = 2.0
FLOOD = Case("1_1")
PACED = Case("latency", rate=OFFERED_RATE)

Outcomes = dict[str, list["Outcome"]]


def recorders_compared(rounds: int = 5, seconds: float = 4.0, recorders: Sequence[str] = RECORDERS) -> dict[str, Any]:
    """All recorders take turns, each in a broker of its own; medians count, and each round begins with another."""
    with ExitStack() as stack:
        contenders = [recording(name, recorder=name, persist_seconds=PERSIST_SECONDS) for name in recorders]
        running = [stack.enter_context(started(contender)) for contender in contenders]
        for each in running:
            measure(each, FLOOD, WARM_UP_SECONDS)
        floods, paced = _rounds(running, FLOOD, rounds, seconds), _rounds(running, PACED, rounds, seconds / 2)
    tell("")
    return _summary(floods, paced)


def _rounds(running: list[Running], case: Case, rounds: int, seconds: float) -> Outcomes:
    outcomes: Outcomes = {each.contender.name: [] for each in running}
    for turn in range(rounds):
        first = turn % len(running)
        for each in [*running[first:], *running[:first]]:
            outcome = measure(each, case, seconds)
            outcomes[each.contender.name].append(outcome)
            tell(f"round {turn + 1} {case.name} {each.contender.name} {outcome.messages_per_s:,.0f}/s")
    return outcomes


def _summary(floods: Outcomes, paced: Outcomes) -> dict[str, Any]:
    rates = {name: median(one.messages_per_s for one in some) for name, some in floods.items()}
    costs = {name: median(one.broker_cpu_s_per_million for one in some) for name, some in floods.items()}
    print(f"{'recorder':10}{'messages/s':>12}{'ratio':>8}{'of best':>9}{'CPU s/million':>15}{'p50 ms':>9}{'p99 ms':>9}")
    found: dict[str, Any] = {"recorders": {}}
    for name, some in floods.items():
        ratio = rates[name] / rates["none"]
        # The least disturbed runs of each: on a busy machine they say more than medians do.
        best = max(one.messages_per_s for one in some) / max(one.messages_per_s for one in floods["none"])
        p50, p99 = (median(getattr(one, key) for one in paced[name]) for key in ("p50_ms", "p99_ms"))
        print(f"{name:10}{rates[name]:>12,.0f}{ratio:>8.3f}{best:>9.3f}{costs[name]:>15.3f}{p50:>9.2f}{p99:>9.2f}")
        if name != "none":
            found[f"throughput_ratio_{name}_vs_none"] = round(ratio, 3)
            found[f"best_throughput_ratio_{name}_vs_none"] = round(best, 3)
            found[f"cpu_ratio_{name}_vs_none"] = round(costs["none"] / costs[name], 3)
        found["recorders"][name] = {
            "messages_per_s": round(rates[name]),
            "cpu_s_per_million": round(costs[name], 3),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
        }
    every = [one for outcomes in (floods, paced) for some in outcomes.values() for one in some]
    found["lost"] = sum(abs(one.lost) for one in every)
    found["others_busy"] = round(median(one.others_busy for one in every), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--recorders", nargs="+", default=list(RECORDERS), help="none among them")
    chosen = parser.parse_args()
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(json.dumps(recorders_compared(chosen.rounds, chosen.seconds, chosen.recorders)))


if __name__ == "__main__":
    main()
