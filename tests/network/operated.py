"""A network as its operator runs it, in processes of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

from postroad.network import Place
from postroad.network.ports import free_ports
from postroad.topology import BrokerPlan, LinkPlan, Plan
from tests.cli.programs import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroad.network import NetworkState


def plan_of_a_line(path: Path, count: int) -> Path:
    ports = free_ports(2 * count, set())
    brokers = tuple(
        BrokerPlan(number=number, port=ports.pop(), link_port=ports.pop()) for number in range(1, count + 1)
    )
    links = tuple(LinkPlan(between=(number, number + 1)) for number in range(1, count))
    file = path / "plan.toml"
    file.write_text(Plan(name="small", brokers=brokers, links=links).to_toml())
    return file


@contextlib.contextmanager
def up(plan: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`postroad network up`, which is stopped at the end whatever happened."""
    command = [*PROGRAM, "network", "up", str(plan), "--directory-port", "0", "--json", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


def event(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def state_of(plan: Path) -> NetworkState:
    state = Place(plan.with_suffix(".network")).read()
    assert state is not None
    return state
