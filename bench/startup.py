"""How long starting takes: a broker, a network, the commands; and other brokers beside it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.peers import ACTIVEMQ, MOSQUITTO, NATS
from bench.processes import START_SECONDS, Contender, Missing, free_port, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Start", "accepts", "main", "run_command"]

ROUNDS = 5
BROKERS = 5
# How often a port is tried: a hundredth of what is measured at the most.
TRY_SECONDS = 0.005
PROGRAM = (sys.executable, "-c", "from postroad.cli import main; main()")
# What a client of each protocol says first, and how the answer of a broker that accepts it begins.
GREETINGS = {
    "stomp": (b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", b"CONNECTED"),
    "mqtt": (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a", b"\x20\x02"),
    "nats": (b"CONNECT {}\r\nPING\r\n", b"INFO"),
}


class Start(NamedTuple):
    """What starting something cost: seconds of the clock, and of processors."""

    seconds: float
    processor_seconds: float


def accepts(port: int, dialect: str) -> bool:
    """Whether a broker accepts a client now."""
    greeting, answer = GREETINGS[dialect]
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(START_SECONDS)
        connection.sendall(greeting)
        heard = connection.recv(len(answer), socket.MSG_WAITALL)
        return heard == answer
    return False


def _processor_seconds(usage: object) -> float:
    return float(usage.ru_utime + usage.ru_stime)  # type: ignore[attr-defined]


def start_broker(command: Sequence[str | Path], environment: Mapping[str, str], port: int, dialect: str) -> Start:
    """Start a broker, wait until it accepts a client, and stop it."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while not accepts(port, dialect):
                if process.poll() is not None or time.perf_counter() - begun > START_SECONDS:
                    log.seek(0)
                    raise RuntimeError(
                        f"{command[0]} does not start:\n{log.read()[-2_000:].decode('utf-8', 'replace')}"
                    )
                time.sleep(TRY_SECONDS)
            seconds = time.perf_counter() - begun
            # Stopping costs processor time, too, but some milliseconds.
            os.killpg(process.pid, signal.SIGTERM)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                stop(process)
    return Start(seconds, _processor_seconds(usage))


def start_contender(contender: Contender) -> Start:
    """Start a broker of somebody else, with its settings for benchmarks."""
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        port = free_port()
        launch = contender.launch(port, Path(directory))
        return start_broker(launch.command, launch.environment, port, contender.dialect)


def start_postroad(environment: Mapping[str, str]) -> Start:
    """Start `postroad broker` as a user does, with its default settings."""
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        port = free_port()
        command = [*PROGRAM, "broker", "--port", str(port), "--data", directory]
        return start_broker(command, environment, port, "stomp")


def run_command(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> Start:
    """Run a command of `postroad` to its end."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"postroad {' '.join(map(str, arguments))}: {said.decode('utf-8', 'replace')}")
    return Start(seconds, _processor_seconds(usage))


@contextmanager
def traced_message() -> Iterator[tuple[str, str, Path]]:
    """A message on record: its id, the admin address of its broker, and its trail."""
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        port, admin = free_port(), free_port()
        settings = Path(directory) / "broker.toml"
        data = Path(directory) / "data"
        settings.write_text(
            f'port = {port}\nadmin_port = {admin}\ndata = "{data}"\n[tracking]\npersist_seconds = 1\n', "utf-8"
        )
        process = subprocess.Popen(
            [*PROGRAM, "broker", "--config", settings], stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while not accepts(port, "stomp"):
                time.sleep(TRY_SECONDS)
            publish = [*PROGRAM, "publish", "a.topic", "hello", "--server", f"stomp://127.0.0.1:{port}", "--receipt"]
            done = subprocess.run(publish, capture_output=True, text=True, check=True)
            trail = data / "trail"
            while not list(trail.rglob("*.parquet")):
                time.sleep(TRY_SECONDS)
            yield done.stdout.strip(), f"127.0.0.1:{admin}", trail
        finally:
            stop(process)


def network_up() -> Start:
    """Start a network in the background, until it is up; and stop it."""
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        plan, network = Path(directory) / "plan.toml", Path(directory) / "network"
        run_command("network", "plan", "ring", "--brokers", str(BROKERS), "--out", plan)
        try:
            return run_command("network", "up", plan, "--data", network, "--detach", "--directory-port", "0")
        finally:
            run_command("network", "stop", network)


def middle(rounds: int, measure: Callable[[], Start]) -> Start:
    """The medians of some rounds."""
    found = [measure() for _ in range(rounds)]
    return Start(*(statistics.median(column) for column in zip(*found, strict=True)))


def measure(rounds: int, first: bool) -> Iterator[tuple[str, Start]]:
    """What there is to measure, one after the other."""
    yield "postroad --help", middle(rounds, lambda: run_command("--help"))
    # Whatever is missing is compiled before anything is measured.
    start_postroad({})
    with traced_message() as (message, admin, trail):
        yield "postroad trace --network", middle(rounds, lambda: run_command("trace", message, "--network", admin))
        yield "postroad trace --trail", middle(rounds, lambda: run_command("trace", message, "--trail", trail))
    yield "postroad broker, kernels compiled", middle(rounds, lambda: start_postroad({}))
    yield f"postroad network up, {BROKERS} brokers", middle(max(1, rounds // 2), network_up)
    if first:
        with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as empty:
            yield "postroad broker, first start", start_postroad({"NUMBA_CACHE_DIR": empty})
    for contender in (NATS, MOSQUITTO, ACTIVEMQ):
        try:
            yield contender.name, middle(rounds, lambda contender=contender: start_contender(contender))  # type: ignore[misc]
        except Missing as missing:
            print(f"{contender.name}: {missing}", file=sys.stderr)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"medians of so many ({ROUNDS})")
    parser.add_argument("--warm", action="store_true", help="leave out the first start, which compiles all kernels")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processors (load {load:.1f}); "
        f"medians of {chosen.rounds}; a broker has started when it accepts its first client"
    )
    print(f"{'':36}{'seconds':>10}{'processor seconds':>20}")
    found = {}
    for name, start in measure(chosen.rounds, not chosen.warm):
        print(f"{name:36}{start.seconds:10.2f}{start.processor_seconds:20.2f}", flush=True)
        found[name] = start._asdict()
    print(json.dumps({"bench": "startup", "load": load, "rounds": chosen.rounds, **found}))


if __name__ == "__main__":
    main()
