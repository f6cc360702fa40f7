"""Brokers in processes of their own, on processors that are chosen, for measurements of waits."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_READY = re.compile(r'"stomp": "stomp://[^:"]+:(\d+)"')


class Server(NamedTuple):
    """A broker under measurement."""

    pid: int
    port: int


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
                command = [
                    sys.executable,
                    "-c",
                    "from postroad.cli import main; main()",
                    "broker",
                    "--config",
                    str(config),
                    "--json",
                ]
                processes.append(
                    subprocess.Popen(
                        command,
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
    text = (
        f'number = {number}\nport = 0\ndata = {json.dumps(str(folder / f"data-{number}"))}\nlog_level = "warning"\n'
        f"[tracking]\ntrail = {json.dumps(str(folder / 'trail'))}\npersist_seconds = 1\n"
        "[limits]\nsubscriptions_per_session = 100_000\n"
    )
    if len(ports) == 1:
        return text
    others = [other for other in (number - 1, number + 1) if 1 <= other <= len(ports)]
    neighbours = ", ".join(f"{{ number = {other}, port = {ports[other - 1]} }}" for other in others)
    return text + f"[network]\nport = {ports[number - 1]}\nneighbours = [{neighbours}]\n"


def _stomp_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = _READY.search(line)
    if ready is None:
        raise RuntimeError(f"a broker did not start: {line!r}")
    return int(ready[1])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
