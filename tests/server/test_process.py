"""A broker as a process of its own: it starts, talks, and ends when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad.security import users_text
from tests.server.people import record, users_file
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import sys
from pathlib import Path
from postroad.errors import PostroadError
from postroad.config import read_config
from postroad.server import run_broker
try:
    sys.exit(run_broker(read_config(Path(sys.argv[1])), lambda service: print(service.port, flush=True)))
except PostroadError as error:
    sys.exit(str(error))
"""


@contextlib.contextmanager
def broker(folder: Path, settings: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    config = folder / "broker.toml"
    config.write_text(f"port = 0\ndata = '{folder}'\n{settings}")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(b"CONNECT\naccept-version:1.2\nhost:here\n\n\0")
    assert client.recv(4096).startswith(b"CONNECTED")
    return client


@pytest.mark.parametrize(("number", "loop"), [(signal.SIGTERM, "uvloop"), (signal.SIGINT, "asyncio")])
def test_a_signal_stops_it_cleanly_with_code_0(tmp_path: Path, number: signal.Signals, loop: str) -> None:
    with broker(tmp_path, f"event_loop = '{loop}'") as (process, port), connected(port) as client:
        process.send_signal(number)
        said = b""
        while piece := client.recv(4096):
            said += piece
        assert b"this broker is stopping" in said
        client.close()
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        events = [json.loads(line)["event"] for line in errors.splitlines()]
        assert events == ["listening", "connected", "disconnected", "stopped"]


def test_a_hangup_makes_it_read_its_users_again(tmp_path: Path) -> None:
    people = Path(users_file(tmp_path / "people", ann="a"))

    def says(port: int, name: str) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
            client.sendall(f"CONNECT\naccept-version:1.2\nhost:here\nlogin:{name}\npasscode:{name[0]}\n\n\0".encode())
            return client.recv(4096)

    with broker(tmp_path, f"users_file = '{people}'") as (process, port):
        assert says(port, "ann").startswith(b"CONNECTED")
        people.write_text(users_text({"bob": record("b")}))
        assert b"login or passcode is wrong" in says(port, "bob")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while json.loads(process.stderr.readline())["event"] != "users reloaded":
            pass
        assert says(port, "bob").startswith(b"CONNECTED")
        assert b"login or passcode is wrong" in says(port, "ann")


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with broker(tmp_path) as (process, port), connected(port) as client:
        process.send_signal(signal.SIGTERM)
        assert client.recv(4096).startswith(b"ERROR")
        # The client does not close its side, so a clean stop would wait for it.
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + signal.SIGINT


def test_a_port_that_is_taken_ends_it_with_the_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = tmp_path / "broker.toml"
        port = taken.getsockname()[1]
        config.write_text(f"port = {port}\ndata = '{tmp_path}'\n")
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(config)], capture_output=True, text=True, timeout=120, check=False
        )
    assert ended.returncode == 1
    assert f"cannot listen on port {port}" in ended.stderr.splitlines()[-1]
