"""Messages that are kept: durable subscriptions by `fsync`, backlogs, restarts, bursts; with --peers beside others."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from bench.durable_load import ACK_EVERY, PREFETCH, WINDOW, DurableJob, DurableOutcome
from bench.durable_scores import DurableScores
from bench.load import Job, Outcome
from bench.paired import against_neighbours, spread
from bench.peers import ACTIVEMQ, ACTIVEMQ_ALWAYS, ACTIVEMQ_INTERVAL, JETSTREAM, NATS, POSTROAD, RABBITMQ
from bench.peers.postroad import storing, storing_nothing
from bench.processes import Missing, Running, free_port, spawned, started, stop, wait_until_listening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.processes import Contender

ALWAYS, INTERVAL, NEVER = (storing(f"postroad {fsync}", fsync=fsync) for fsync in ("always", "interval", "never"))
OWN = (ALWAYS, INTERVAL, NEVER)
PEERS = (RABBITMQ, ACTIVEMQ_ALWAYS, ACTIVEMQ_INTERVAL, JETSTREAM)
# What a confirmation means: compare like with like.
MEANING = {
    "postroad always": "on disk",
    "rabbitmq": "on disk",
    "activemq always": "on disk",
    "postroad interval": "written; forced each second",
    "activemq interval": "written; forced each second",
    "jetstream": "written; forced every 2 minutes",
    "postroad never": "written",
}
# Java and Erlang need a while to be warm, and Postroad loads its kernels.
WARM_UP_SECONDS = 2.0
RUN_SECONDS = 240
# A broker that keeps few messages a second is not given longer to take a backlog; the table says how many it had.
FILL_SECONDS = 40.0
# Pairs of turns for what the store costs whoever does not use it.
OFF_TURNS = 6
# Each takes so long: with half of it, the ratio differed by 7 % from one run to the next.
OFF_SECONDS = 3.0
# Messages and bytes of a burst to plain subscribers that stall, as in the report of what was lost.
BURSTS = ((1, 1_000, 1.0), (1, 10_000, 0.25), (10, 100, 1.0))
# For so long at most; a publisher that is pushed back sends less.
BURST_PUBLISH_SECONDS = 8.0
# Plain subscriptions: what each broker does as it comes.
BURST_BROKERS = ((POSTROAD, "postroad"), (NATS, "jetstream"), (ACTIVEMQ, "activemq"), (RABBITMQ, "rabbitmq"))


@dataclass(frozen=True)
class Flow:
    """One kind of load."""

    name: str
    subscribers: int
    body: int


FLOWS = tuple(Flow(f"1_{subscribers}_{body}", subscribers, body) for body in (100, 1_000) for subscribers in (1, 10))
_topics: Iterator[str] = (f"bench.{number}" for number in count(10_000))


class Housed:
    """A broker in a directory that outlives its processes."""

    def __init__(self, contender: Contender, directory: Path) -> None:
        self.contender = contender
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start it on what it has kept.

        Raises:
            Missing: it is not installed.
            RuntimeError: it does not listen.
        """
        launch = self.contender.launch(self.port, self.directory)
        log = self.directory / "log.txt"
        self._process = spawned(self.contender, launch, self.directory, log)
        try:
            wait_until_listening(self._process, self.port, self.contender.name, log)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # What it had started may take a moment longer.
        with suppress(OSError):
            while True:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            stop(self._process)

    @property
    def running(self) -> Running:
        """Where it listens."""
        assert self._process is not None
        return Running(self.contender, self.port, self._process.pid)


@contextmanager
def housed(contender: Contender) -> Iterator[Housed]:
    """A broker for as long as the context lasts."""
    directory = Path(tempfile.mkdtemp(prefix="postroad-durable-"))
    house = Housed(contender, directory)
    try:
        house.start()
        yield house
    finally:
        house.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def tolerated(contender: Contender) -> Iterator[None]:
    """What goes wrong with another broker is told, and ends its turn only."""
    try:
        yield
    except Missing as missing:
        print(f"{contender.name} does not take part: {missing}")
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        if not contender.package:
            raise
        print(f"{contender.name} gave up: {error}")


def measure(running: Running, mode: str, **details: object) -> DurableOutcome:
    """One run in a generator process of its own.

    Raises:
        RuntimeError: the generator failed; the text holds its last words.
    """
    settings = {"dialect": running.contender.dialect, "topic": next(_topics), **details}
    job = DurableJob(mode=mode, port=running.port, pid=running.pid, **settings)  # type: ignore[arg-type]
    return DurableOutcome(**_generated("bench.durable_load", asdict(job)))  # type: ignore[arg-type]


def _generated(module: str, job: dict[str, object]) -> dict[str, float]:
    command = [sys.executable, "-c", f"from {module} import main; main()"]
    done = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-2_000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def flows(contenders: tuple[Contender, ...], rounds: int, seconds: float, scores: DurableScores) -> None:
    """Publish with confirmations and consume with acknowledgements; the brokers take turns, one runs at a time."""
    for turn in range(rounds):
        first = turn % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            with tolerated(contender), housed(contender) as house:
                measure(house.running, "flow", seconds=WARM_UP_SECONDS)
                for flow in FLOWS:
                    outcome = measure(
                        house.running, "flow", subscribers=flow.subscribers, body=flow.body, seconds=seconds
                    )
                    scores.add(flow.name, contender.name, outcome)
                    tell(f"{contender.name} {flow.name} {outcome.messages_per_s:,.0f}/s")


def backlog(contender: Contender, messages: int, scores: DurableScores) -> None:
    """Fill a store while the subscriber is away, crash the broker, start it again, and drain it."""
    with tolerated(contender), housed(contender) as house:
        topic = next(_topics)
        filled = measure(house.running, "fill", topic=topic, count=messages, seconds=FILL_SECONDS)
        scores.add("fill", contender.name, filled)
        time.sleep(2.0)
        house.kill()
        if not contender.package:
            scores.recovery = recovered(house.directory / "data" / "store", filled.messages)
        began = time.perf_counter()
        house.start()
        listening = time.perf_counter() - began
        drained = measure(house.running, "drain", topic=topic, count=filled.messages)
        scores.restart(contender.name, listening + drained.first_seconds)
        scores.add("drain", contender.name, drained)
        tell(f"{contender.name} drain {drained.messages_per_s:,.0f}/s")


def recovered(folder: Path, messages: int) -> float:
    """Messages a second that recovery takes up, as a new process does before it listens."""
    from postroad.store import FileDisk, Log, StoreSettings, recover

    disk = FileDisk(folder)
    began = time.perf_counter()
    log = Log(StoreSettings(), recover(disk.segments(), disk.read, disk.sync))
    seconds = time.perf_counter() - began
    waiting = sum(each.waiting.count for each in log.cursors.values())
    if waiting < messages:
        raise RuntimeError(f"{messages:,} messages were confirmed, and {waiting:,} are there after the crash")
    return messages / seconds


def stored_bytes(messages: int) -> float:
    """What ten durable subscribers make a store larger than one does."""
    sizes = []
    for subscribers in (1, 10):
        with housed(ALWAYS) as house:
            measure(house.running, "fill", count=messages, subscribers=subscribers, seconds=FILL_SECONDS)
            sizes.append(sum(each.stat().st_size for each in (house.directory / "data" / "store").iterdir()))
    return sizes[1] / sizes[0]


def bursts(messages: int, peers: bool, scores: DurableScores) -> None:
    """Plain subscribers that stall for a moment while as much comes as the publisher can send."""
    for contender, dialect in BURST_BROKERS if peers else BURST_BROKERS[:1]:
        with tolerated(contender), housed(contender) as house:
            for subscribers, body, share in BURSTS:
                outcome = measure(
                    house.running,
                    "burst",
                    dialect=dialect,
                    count=int(messages * share),
                    subscribers=subscribers,
                    body=body,
                    seconds=BURST_PUBLISH_SECONDS,
                )
                scores.add(f"burst_1_{subscribers}_{body}", contender.name, outcome)
                tell(f"{contender.name} burst lost {outcome.lost:,}")


def off_cost(before: Path | None, seconds: float) -> float:
    """The plain relay with a store that nobody uses, over the same without one, turn by turn."""
    turns: list[tuple[str, float]] = []
    with ExitStack() as stack:
        brokers = [stack.enter_context(started(each)) for each in (storing_nothing("without", before), POSTROAD)]
        for turn in range(2 * OFF_TURNS + 1):
            running = brokers[turn % 2]
            job = Job("stomp", running.port, running.pid, next(_topics), seconds=seconds)
            outcome = Outcome(**_generated("bench.load", asdict(job)))  # type: ignore[arg-type]
            turns.append((running.contender.name, outcome.messages_per_s))
    return spread(against_neighbours(turns, "without")["postroad"]).middle


def tell(text: str) -> None:
    """Show how far it is, to somebody who watches."""
    if sys.stderr.isatty():
        print(f"\r{text:70}", end="", file=sys.stderr, flush=True)


def present(contenders: tuple[Contender, ...]) -> tuple[Contender, ...]:
    """Those that are installed; the others are explained."""
    found = []
    for contender in contenders:
        with tempfile.TemporaryDirectory() as directory:
            try:
                contender.launch(free_port(), Path(directory))
            except Missing as missing:
                print(f"{contender.name} does not take part: {missing}")
            else:
                print(f"{contender.name}: {contender.version}")
                found.append(contender)
    return tuple(found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench durable", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="RabbitMQ, ActiveMQ and JetStream too, if installed")
    parser.add_argument("--quick", action="store_true", help="shorter runs, a backlog of 100,000, bursts of 50,000")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each flow; medians count (default 1)")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, for off_cost")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # Told to end, it ends as after Ctrl-C: every broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seconds, rounds = 1.0 if chosen.quick else 2.5, chosen.rounds
    messages = 100_000 if chosen.quick else 1_000_000
    print(
        f"Python {platform.python_version()}, {psutil.cpu_count()} processors; {rounds} runs of {seconds} s; at most "
        f"{WINDOW:,} messages unconfirmed and {PREFETCH:,} unacknowledged, one acknowledgement for {ACK_EVERY} messages"
    )
    contenders = present((*OWN, *PEERS) if chosen.peers else OWN)
    scores = DurableScores(MEANING)
    flows(contenders, rounds, seconds, scores)
    for contender in contenders:
        if contender not in (INTERVAL, NEVER, ACTIVEMQ_INTERVAL):
            backlog(contender, messages, scores)
    bursts(50_000 if chosen.quick else 200_000, chosen.peers, scores)
    scores.ten_bytes = stored_bytes(20_000)
    scores.off_cost = off_cost(chosen.before, 0.8 if chosen.quick else OFF_SECONDS)
    tell("")
    print("\n".join(["", *scores.table(), "", *scores.verdicts(), ""]))
    print(json.dumps({"bench": "durable", "quick": chosen.quick, "rounds": rounds, **scores.summary()}))


if __name__ == "__main__":
    main()
