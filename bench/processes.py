"""Brokers as processes of their own: started on a free port in a directory that vanishes, and always stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Contender", "Launch", "Missing", "Running", "started"]

# A Java broker needs some seconds on a busy machine, and Postroad minutes when its kernels are not compiled yet.
START_SECONDS = 300.0
STOP_SECONDS = 10.0
# Where Debian puts servers; often not on a user's path.
SERVER_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"


class Missing(Exception):
    """A broker is not installed; the text says how to change that."""


@dataclass(frozen=True)
class Launch:
    """How to start a process: a command, and additions to its environment."""

    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A broker that takes part.

    Attributes:
        name: in results.
        dialect: the protocol that it is measured by.
        launch: a port and an empty directory to how it is started.
        package: the Debian package that holds it; empty when it is part of this repository.
        selects: whether subscribers can select by content.
    """

    name: str
    dialect: str
    launch: Callable[[int, Path], Launch]
    package: str = ""
    selects: bool = False

    @property
    def version(self) -> str:
        """The version of its package."""
        if not self.package:
            return "this repository"
        query = ["dpkg-query", "--show", "--showformat=${Version}", self.package]
        with suppress(OSError):
            found = subprocess.run(query, capture_output=True, text=True, check=False).stdout
            return found or "unknown version"
        return "unknown version"


@dataclass(frozen=True)
class Running:
    """A broker that listens."""

    contender: Contender
    port: int
    pid: int


def executable(name: str, package: str) -> str:
    """The path of a program.

    Raises:
        Missing: it is not installed.
    """
    found = shutil.which(name, path=SERVER_PATH)
    if found is None:
        line = f"apt-get update && apt-get install -y --no-install-recommends {package}"
        raise Missing(f"{name} is not installed; as root: {line}")
    return found


def spawned(contender: Contender, launch: Launch, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the process of a broker, whose output goes to the end of a file."""
    with log.open("ab") as output:
        # A session of its own: an interrupt from the terminal reaches this process alone, which then stops all.
        return subprocess.Popen(
            launch.command,
            cwd=directory if contender.package else None,
            env={**os.environ, **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextmanager
def started(contender: Contender) -> Iterator[Running]:
    """A broker for as long as the context lasts.

    Raises:
        Missing: it is not installed.
        RuntimeError: it did not start; the text holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", ignore_cleanup_errors=True) as directory:
        port = free_port()
        launch = contender.launch(port, Path(directory))
        log = Path(directory) / "log"
        process = spawned(contender, launch, Path(directory), log)
        try:
            wait_until_listening(process, port, contender.name, log)
            yield Running(contender, port, process.pid)
        finally:
            stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_listening(process: subprocess.Popen[bytes], port: int, name: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not listen; the end of its log:\n{log.read_text('utf-8', 'replace')[-2_000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            break
    # A starter may be gone before the server that it started.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
