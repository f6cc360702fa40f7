"""Signals reach the process that is meant, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from postroad.network import processes
from postroad.network.processes import ProcessMark, is_alive, mark_of, send_signal

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_a_process_is_known_by_its_start(sleeper: subprocess.Popen[bytes]) -> None:
    mark = mark_of(sleeper.pid)
    assert mark is not None
    assert mark == mark_of(sleeper.pid)
    assert is_alive(mark)
    assert mark != mark_of(os.getpid())


def test_a_number_that_was_given_to_another_process_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    stale = ProcessMark(sleeper.pid, "at another time")
    assert not is_alive(stale)
    assert not send_signal(stale, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_process_that_ended_counts_as_gone_before_it_is_buried(sleeper: subprocess.Popen[bytes]) -> None:
    mark = mark_of(sleeper.pid)
    assert mark is not None
    assert send_signal(mark, signal.SIGKILL)
    # Not `wait`, which buries it: the state that the watcher of somebody else's children sees.
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(mark)
    assert not send_signal(mark, signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGKILL
    assert mark_of(sleeper.pid) is None


def test_systems_without_proc_tell_the_same(sleeper: subprocess.Popen[bytes]) -> None:
    started = processes.started_by_ps(sleeper.pid)
    assert started
    assert started == processes.started_by_ps(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert processes.started_by_ps(sleeper.pid) is None
