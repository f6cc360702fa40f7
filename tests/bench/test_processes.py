"""Brokers as processes: they are found or explained, and they are gone afterwards."""

from __future__ import annotations

import socket
import sys

import psutil  # type: ignore[import-untyped]
import pytest
from bench.peers import ECHO
from bench.processes import Contender, Launch, Missing, executable, started


def test_missing_program_is_explained_with_the_line_that_installs_it() -> None:
    with pytest.raises(Missing, match="apt-get install -y --no-install-recommends some-package"):
        executable("postroad-bench-no-such-program", "some-package")


def interrupted(pids: list[int]) -> None:
    """A run that ends while its broker listens."""
    with started(ECHO) as running:
        pids.append(running.pid)
        socket.create_connection(("127.0.0.1", running.port), 10).close()
        raise KeyboardInterrupt


def test_started_broker_listens_and_is_stopped_when_the_run_is_interrupted() -> None:
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(pids)
    assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])


def test_what_a_starter_leaves_behind_is_stopped_too() -> None:
    listening = "import socket, sys, time; socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
    # The server hides behind a process that starts it, as behind a shell script.
    starter = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[2]])"
    kept = listening.replace("socket.create_server", "kept = socket.create_server")
    hidden = Contender(
        "hidden", "raw", lambda port, directory: Launch([sys.executable, "-c", starter, kept, str(port)])
    )
    with started(hidden) as running:
        children = psutil.Process(running.pid).children(recursive=True)
    assert children
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_broker_that_does_not_start_is_reported_with_its_log() -> None:
    broken = Contender("broken", "raw", lambda port, directory: Launch([sys.executable, "-c", "print('no licence')"]))
    with pytest.raises(RuntimeError, match="no licence"), started(broken):
        pass
