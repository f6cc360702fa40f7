"""Messages per second through one broker over sockets, latency, and with --peers the same load on other brokers."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from bench.load import WINDOW, WRITE_BYTES, Job, Outcome
from bench.peers import ACTIVEMQ, ECHO, MOSQUITTO, NATS, POSTROAD, RELAY
from bench.peers.postroad import storing_nothing
from bench.processes import Missing, started
from bench.scores import BEFORE, Scores
from bench.traffic import HEADER_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.processes import Contender, Running

OWN = (POSTROAD, RELAY, ECHO)
PEERS = (ACTIVEMQ, NATS, MOSQUITTO)

# Java compiles while it runs, and evaluates its first thousands of selectors thirty times slower than the rest:
# everybody gets this long before anything counts, in the first case and in the last, which has the most selectors.
WARM_UP_SECONDS = 5.0
# The load that latency is measured under: well below what each broker here can take.
OFFERED_RATE = 20_000
# A publisher that sends some eighteen messages at a time: what a broker wins by large reads, it does not win here.
SMALL_WRITE = 4 * 1024
# Subscriptions that match nothing.
IDLE = (0, 100, 1_000, 10_000)
# A run that takes longer than this hangs: setting up 10,000 subscriptions and waiting for the last message included.
RUN_SECONDS = 180


@dataclass(frozen=True)
class Case:
    """One kind of load."""

    name: str
    publishers: int = 1
    subscribers: int = 1
    body: int = 100
    idle: int | None = None
    rate: int = 0
    write: int = WRITE_BYTES

    def suits(self, contender: Contender) -> bool:
        """Whether a contender can take part."""
        if contender is ECHO:
            return self.idle is None and not self.rate
        return self.idle is None or contender.selects

    def job(self, running: Running, topic: str, seconds: float) -> Job:
        return Job(
            dialect=running.contender.dialect,
            port=running.port,
            pid=running.pid,
            topic=topic,
            publishers=self.publishers,
            subscribers=self.subscribers,
            body=self.body,
            selector=self.idle is not None,
            idle=self.idle or 0,
            rate=self.rate,
            seconds=seconds,
            write=self.write,
        )


def cases(quick: bool) -> list[Case]:
    patterns = [Case("1_1"), Case("1_10", 1, 10), Case("10_10", 10, 10)]
    if quick:
        return [*patterns, Case("latency", rate=OFFERED_RATE), Case("selectors_10000", idle=10_000)]
    large = [Case(f"{case.name}_1000", case.publishers, case.subscribers, 1_000) for case in patterns]
    selectors = [Case(f"selectors_{idle}", idle=idle) for idle in IDLE]
    small = Case("1_1_small_writes", write=SMALL_WRITE)
    return [*patterns, *large, small, Case("latency", rate=OFFERED_RATE), *selectors]


# Equally long for all runs, and so are the frames; no run meets the leftovers of another.
_topics: Iterator[str] = (f"bench.{number}" for number in count(10_000))


def measure(running: Running, case: Case, seconds: float) -> Outcome:
    """One run in a generator process of its own.

    Raises:
        RuntimeError: the generator failed; the text holds its last words.
    """
    job = json.dumps(asdict(case.job(running, next(_topics), seconds)))
    command = [sys.executable, "-c", "from bench.load import main; main()"]
    done = subprocess.run(command, input=job, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name} on {running.contender.name} failed:\n{done.stderr[-2_000:]}")
    return Outcome(**json.loads(done.stdout))


def start_all(contenders: tuple[Contender, ...], stack: ExitStack) -> list[Running]:
    """Those that could be started; the others are explained."""
    running = []
    for contender in contenders:
        try:
            running.append(stack.enter_context(started(contender)))
        except Missing as missing:
            print(f"{contender.name} does not take part: {missing}")
        else:
            print(f"{contender.name}: {contender.version}")
    return running


def compare(running: list[Running], chosen: list[Case], rounds: int, seconds: float) -> Scores:
    """All cases, round after round; in each, the contenders take turns, and each round begins with another one."""
    for each in running:
        for case in (chosen[0], chosen[-1]):
            if case.suits(each.contender):
                measure(each, case, WARM_UP_SECONDS)
    scores = Scores()
    for turn in range(rounds):
        first = turn % len(running)
        for case in chosen:
            for each in [*running[first:], *running[:first]]:
                if case.suits(each.contender):
                    outcome = measure(each, case, seconds)
                    scores.add(case.name, each.contender.name, outcome)
                    tell(f"round {turn + 1} {case.name} {each.contender.name} {outcome.messages_per_s:,.0f}/s")
    return scores


def selected(every: list[Case], names: list[str] | None) -> list[Case]:
    """The cases of these names, or all."""
    unknown = set(names or ()) - {case.name for case in every}
    if unknown:
        sys.exit(f"there is no case {', '.join(sorted(unknown))}: choose from {', '.join(case.name for case in every)}")
    return [case for case in every if names is None or case.name in names]


def tell(text: str) -> None:
    """Show how far it is, to somebody who watches."""
    if sys.stderr.isatty():
        print(f"\r{text:70}", end="", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench broker", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="ActiveMQ, NATS and Mosquitto too, as far as installed")
    parser.add_argument("--quick", action="store_true", help="fewer cases, shorter runs")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, measured in turns with this one")
    parser.add_argument("--cases", nargs="+", help="only these")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each case; medians count (default %(default)s)")
    # Processor time is counted in steps of 10 ms, a tenth of what a run of 0.8 s takes at 20,000 messages a second.
    parser.add_argument("--seconds", type=float, help="how long a run lasts (default 1.5, or 0.8 with --quick)")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seconds = chosen.seconds or (0.8 if chosen.quick else 1.5)
    print(
        f"Python {platform.python_version()}, {psutil.cpu_count()} processors; medians of {chosen.rounds} runs of "
        f"{seconds} s; {HEADER_BLOCKS:,} header blocks, at most {WINDOW:,} messages under way"
    )
    with ExitStack() as stack:
        contenders: tuple[Contender, ...] = (*OWN, *PEERS) if chosen.peers else OWN
        if chosen.before is not None:
            contenders = (POSTROAD, storing_nothing(BEFORE, chosen.before))
        running = start_all(contenders, stack)
        scores = compare(running, selected(cases(chosen.quick), chosen.cases), chosen.rounds, seconds)
    tell("")
    print("\n".join(["", *scores.table(), "", *scores.verdicts(), ""]))
    print(json.dumps({"bench": "broker", "quick": chosen.quick, "rounds": chosen.rounds, **scores.summary()}))
    if scores.lost:
        sys.exit(f"{scores.lost:,} deliveries did not come as sent: the figures above prove nothing")


if __name__ == "__main__":
    main()
