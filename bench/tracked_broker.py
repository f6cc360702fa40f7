"""A broker over sockets with each recorder: messages per second from one to one, processor time, and latency.

Two ratios of messages per second are told, and they differ on a machine whose speed drifts. The *paired* one compares
each short turn of a recorder with the turns of `none` right before and right after it; its median counts, and its
quartiles say how far to trust it. The ratio of medians compares all turns of a recorder with all turns of `none`, as
if nothing had changed in between. Before a turn, the broker that had the last one is given time to seal and write, and
must be at rest by its processor time: otherwise `none` would be slowed down by its neighbour's record. What a broker
seals during its own turn counts against it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.broker import OFFERED_RATE, Case, measure, tell
from bench.paired import against_neighbours, spread
from bench.peers.postroad import recording
from bench.processes import started
from bench.settling import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.load import Outcome
    from bench.processes import Running

__all__ = ["FLOORS", "RECORDERS", "recorders_compared"]

BASE = "none"
RECORDERS = (BASE, "log", "exact", "bloom", "sealed")
# What a broker that keeps a record moves, as a part of what it moves without: at least.
FLOORS = {
    "throughput_ratio_exact_vs_none": 0.9,
    "throughput_ratio_sealed_vs_none": 0.9,
    "throughput_ratio_bloom_vs_none": 0.85,
}
# Some seals in each run, so that building filters and writing files counts. The default is a minute.
PERSIST_SECONDS = 1.0
# A record is written this long after the last message at the latest: its interval, and a broker's look at it.
QUIET_SECONDS = PERSIST_SECONDS + 0.3
WARM_UP_SECONDS = 2.0
FLOOD = Case("1_1")
PACED = Case("latency", rate=OFFERED_RATE)
LATENCY_ROUNDS = 3
PACED_SECONDS = 1.0
# Brokers alike differ by some percent for as long as they run, by where their memory happens to lie: each set has new
# ones, and many sets say more than many rounds.
SETS, ROUNDS, SECONDS = 6, 2, 1.5

Turns = list[tuple[str, "Outcome"]]


def recorders_compared(
    sets: int = SETS, rounds: int = ROUNDS, seconds: float = SECONDS, recorders: Sequence[str] = RECORDERS
) -> dict[str, Any]:
    """Each recorder in a broker of its own, each turn between two of `none`; each round begins with another."""
    floods: Turns = []
    paced: Turns = []
    others = [name for name in recorders if name != BASE]
    for number in range(sets):
        tell(f"set {number + 1} of {sets}")
        with ExitStack() as stack:
            contenders = [recording(name, recorder=name, persist_seconds=PERSIST_SECONDS) for name in recorders]
            running = {each.name: stack.enter_context(started(each)) for each in contenders}
            for each in running.values():
                measure(each, FLOOD, WARM_UP_SECONDS)
            floods += _turns(running, FLOOD, seconds, [BASE, *_alternating(others, rounds)])
            if number == sets - 1:
                paced += _turns(running, PACED, PACED_SECONDS, [*others, BASE] * LATENCY_ROUNDS)
    tell("")
    return _summary(floods, paced)


def _alternating(others: Sequence[str], rounds: int) -> list[str]:
    """All others in turn, `none` after each of them."""
    order = []
    for turn in range(rounds):
        first = turn % len(others)
        for name in [*others[first:], *others[:first]]:
            order += [name, BASE]
    return order


def _turns(running: dict[str, Running], case: Case, seconds: float, order: Sequence[str]) -> Turns:
    found: Turns = []
    last = ""
    for place, name in enumerate(order):
        # Without a recorder there is nothing left to do afterwards; before the first turn, all must rest.
        if last != BASE:
            settle([each.pid for each in running.values()], QUIET_SECONDS)
        outcome = measure(running[name], case, seconds)
        found.append((name, outcome))
        tell(f"turn {place + 1} of {len(order)} {case.name} {name} {outcome.messages_per_s:,.0f}/s")
        last = name
    return found


def _summary(floods: Turns, paced: Turns) -> dict[str, Any]:
    rates = _of(floods, "messages_per_s")
    costs = {name: median(some) for name, some in _of(floods, "broker_cpu_s_per_million").items()}
    p50s, p99s = _of(paced, "p50_ms"), _of(paced, "p99_ms")
    pairs = against_neighbours([(name, one.messages_per_s) for name, one in floods], BASE)
    print(
        f"{'recorder':10}{'messages/s':>12}{'paired ratio':>14}{'quartiles':>16}{'of medians':>12}{'of best':>9}"
        f"{'CPU s/million':>15}{'p50 ms':>9}{'p99 ms':>9}"
    )
    found: dict[str, Any] = {"recorders": {}}
    for name in sorted(rates, key=lambda one: one != BASE):
        rate, p50, p99 = median(rates[name]), median(p50s[name]), median(p99s[name])
        # The least disturbed turns of each: on a busy machine they say more than medians do.
        of_medians, of_best = rate / median(rates[BASE]), max(rates[name]) / max(rates[BASE])
        low, middle, high = spread(pairs.get(name, [1.0]))
        print(
            f"{name:10}{rate:>12,.0f}{middle:>14.3f}{f'{low:.3f} {high:.3f}':>16}{of_medians:>12.3f}{of_best:>9.3f}"
            f"{costs[name]:>15.3f}{p50:>9.2f}{p99:>9.2f}"
        )
        if name != BASE:
            found[f"throughput_ratio_{name}_vs_none"] = round(middle, 3)
            found[f"throughput_quartiles_{name}_vs_none"] = [round(low, 3), round(high, 3)]
            found[f"ratio_of_medians_{name}_vs_none"] = round(of_medians, 3)
            found[f"best_throughput_ratio_{name}_vs_none"] = round(of_best, 3)
            found[f"cpu_ratio_{name}_vs_none"] = round(costs[BASE] / costs[name], 3)
        found["recorders"][name] = {
            "turns": len(rates[name]),
            "messages_per_s": round(rate),
            "cpu_s_per_million": round(costs[name], 3),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
        }
    every = [one for _, one in [*floods, *paced]]
    found["lost"] = sum(abs(one.lost) for one in every)
    found["others_busy"] = round(median(one.others_busy for one in every), 2)
    return found


def _of(turns: Turns, key: str) -> dict[str, list[float]]:
    """One figure of all turns, by who had them."""
    found: dict[str, list[float]] = {}
    for name, outcome in turns:
        found.setdefault(name, []).append(getattr(outcome, key))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sets", type=int, default=SETS, help="times that brokers are started (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each in a set (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (default %(default)s)")
    parser.add_argument("--recorders", nargs="+", default=list(RECORDERS), help="none among them")
    chosen = parser.parse_args()
    if BASE not in chosen.recorders or len(chosen.recorders) < 2:
        parser.error(f"a comparison needs {BASE} and another recorder, as in: --recorders {BASE} exact")
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(json.dumps(recorders_compared(chosen.sets, chosen.rounds, chosen.seconds, chosen.recorders)))


if __name__ == "__main__":
    main()
