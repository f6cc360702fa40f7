"""Brokers that are forked: nobody can tell them from those that were started by their command line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroad.network.launcher import BROKER_PROGRAM, command_line
from postroad.network.nursery import AdoptedProcess, Nursery
from postroad.network.processes import is_alive
from tests.network.operated import event, plan_of_a_line, state_of, up

if TYPE_CHECKING:
    import pytest


def description(pid: int) -> dict[str, object]:
    """What the system knows of a process that an operator may look at."""
    proc = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    shown = ("Name", "SigBlk")
    return {
        "command": (proc / "cmdline").read_bytes().rstrip(b"\0").split(b"\0"),
        "parent": int(status["PPid"]),
        "leads its session": os.getsid(pid) == pid,
        "files": sorted(os.readlink(file) for file in (proc / "fd").iterdir() if file.name in {"0", "1", "2"}),
        "directory": os.readlink(proc / "cwd"),
        "environment": {part for part in (proc / "environ").read_bytes().split(b"\0") if part},
        **{name: status[name].strip() for name in shown},
    }


def test_forked_brokers_look_like_those_that_are_started_alone(tmp_path: Path) -> None:
    plan = plan_of_a_line(tmp_path, 2)
    with up(plan) as watcher:
        assert event(watcher)["event"] == "up"
        forked = state_of(plan).brokers[0].process
        assert forked is not None
        one = description(forked.pid)
        os.kill(forked.pid, signal.SIGKILL)
        died = event(watcher)
        assert (died["event"], died["how"]) == ("died", "ended by SIGKILL")
        assert not is_alive(forked)
        children = Path(f"/proc/{watcher.pid}/task/{watcher.pid}/children").read_text().split()
        assert len(children) == 1, "the nursery is gone when the network is up, and who died is buried"
        assert {event(watcher)["event"], event(watcher)["event"]} == {"restarts", "restarted"}
        alone = state_of(plan).brokers[0].process
        assert alone is not None
        assert alone.pid != forked.pid
        assert description(alone.pid) == one
        assert one["parent"] == watcher.pid


def test_a_nursery_without_machine_code_leaves_brokers_to_their_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    async def forked() -> AdoptedProcess | None:
        with Nursery(10) as nursery:
            assert not await nursery.is_ready()
            return await nursery.fork(["python", "-c", "pass"], 1)

    assert asyncio.run(forked()) is None


def test_a_nursery_that_was_ended_leaves_brokers_to_their_command_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def noted(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(begin(*given, **more))
        return started[-1]

    begin = subprocess.Popen
    monkeypatch.setattr("postroad.network.nursery.subprocess.Popen", noted)

    async def forked() -> AdoptedProcess | None:
        with Nursery(10) as nursery:
            assert await nursery.is_ready()
            (process,) = started
            process.kill()
            process.wait()
            return await nursery.fork(["python", "-c", "pass"], 1)

    assert asyncio.run(forked()) is None


def test_the_exit_code_of_a_forked_process_is_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def code() -> int:
        with Nursery(1_000) as nursery, log.open("wb") as output:
            process = await nursery.fork(
                [sys.executable, *BROKER_PROGRAM, "broker", "--config", "none"], output.fileno()
            )
            assert process is not None
            return await process.wait()

    assert asyncio.run(code()) == 2
    alone = subprocess.run(
        [sys.executable, *BROKER_PROGRAM, "broker", "--config", "none"], capture_output=True, check=False
    )
    assert (alone.returncode, alone.stderr) == (2, log.read_bytes())


def test_command_lines_name_the_settings(tmp_path: Path) -> None:
    from postroad.network import Place

    assert command_line(Place(tmp_path), 7, 1.5)[-4:] == [
        "--config",
        str(Place(tmp_path).config_file(7)),
        "--join-seconds",
        "1.5",
    ]
