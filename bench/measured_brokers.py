"""Brokers in processes of their own, on processors that are chosen, for measurements of waits."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postroad.lab.measured_broker import broker_command, broker_settings, stomp_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType


class Server(NamedTuple):
    """A broker under measurement."""

    pid: int
    port: int


def loop_seconds(servers: Sequence[Server]) -> float:
    """Processor time of the threads that serve messages; others write the record meanwhile."""
    return sum(int(Path(f"/proc/{one.pid}/task/{one.pid}/schedstat").read_text().split()[0]) / 1e9 for one in servers)


class ForeignWait:
    """For how long the loop of a broker waited for its processor while other programs had it.

    Its own threads, which write the record, may share the processor with it, and so may threads of the kernel that
    bring the record to the disk: what they take is the broker's doing, and does not count.
    """

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._loop = os.open(self._tasks / f"{pid}/schedstat", os.O_RDONLY)
        self._pid = str(pid)
        # Of each other thread: its file, and what it used so far. One that has ended keeps that.
        self._others = {name: os.open(f"/proc/{name}/schedstat", os.O_RDONLY) for name in _kernel_threads()}
        self._used: dict[str, float] = {}

    def __enter__(self) -> ForeignWait:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in (self._loop, *self._others.values()):
            os.close(each)

    def __call__(self) -> float:
        # Threads may begin at any time: those of a library do when it first has work for them.
        for name in os.listdir(self._tasks):
            if name != self._pid and name not in self._others:
                with contextlib.suppress(FileNotFoundError):
                    self._others[name] = os.open(self._tasks / f"{name}/schedstat", os.O_RDONLY)
        for name, each in self._others.items():
            with contextlib.suppress(ProcessLookupError):
                self._used[name] = _nanoseconds(each, 0)
        return (_nanoseconds(self._loop, 1) - sum(self._used.values())) / 1e9


def _kernel_threads() -> list[str]:
    """Process numbers of the kernel's own threads: they are the children of the second process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text("utf-8", "replace").rpartition(")")[2].split()[1] == "2":
                found.append(path.parent.name)
    return found


def _nanoseconds(file: int, field: int) -> float:
    """Of a thread's `schedstat`: 0 is the time it ran, 1 the time it was ready and had no processor."""
    return float(os.pread(file, 64, 0).split()[field])


@contextlib.contextmanager
def running(count: int, processors: set[int]) -> Iterator[list[Server]]:
    """Brokers in a line, on these processors; stopped at the end."""
    ports = _free_ports(count)
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        processes: list[subprocess.Popen[str]] = []
        try:
            for number in range(1, count + 1):
                config = Path(directory) / f"broker-{number}.toml"
                config.write_text(_config(number, ports, Path(directory)))
                processes.append(
                    subprocess.Popen(
                        broker_command(config),
                        stdout=subprocess.PIPE,
                        text=True,
                        preexec_fn=lambda: os.sched_setaffinity(0, processors),
                    )
                )
            yield [Server(one.pid, _stomp_port(one)) for one in processes]
        finally:
            for one in processes:
                one.terminate()
            for one in processes:
                one.wait(30)
                assert one.stdout is not None
                one.stdout.close()


def _config(number: int, ports: Sequence[int], folder: Path) -> str:
    text = broker_settings(number, folder)
    if len(ports) == 1:
        return text
    others = [other for other in (number - 1, number + 1) if 1 <= other <= len(ports)]
    neighbours = ", ".join(f"{{ number = {other}, port = {ports[other - 1]} }}" for other in others)
    return text + f"[network]\nport = {ports[number - 1]}\nneighbours = [{neighbours}]\n"


def _stomp_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    address = stomp_address(line)
    if address is None:
        raise RuntimeError(f"a broker did not start: {line!r}")
    return address[1]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
