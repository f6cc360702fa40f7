"""Brokers as processes that share a parent with all kernels loaded, so that each starts in moments; and plain clients.

As a program it forks a broker for each line on its input, the path of a settings file, and prints its process id.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from postroad.messages import MessageId
from postroad.protocols.stomp import FrameReader, encode_frame
from tests.server.lives import live, say
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            from pathlib import Path

            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                live(Path(line.strip()))
            except SystemExit as end:
                os._exit(int(end.code or 0))
            finally:
                os._exit(1)
        say(str(child))


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + 3 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class BrokerProcess:
    """One broker: its ports, its output, its end."""

    def __init__(self, pid: int, settings: Path) -> None:
        self.pid = pid
        self._settings = settings
        self._ports: dict[str, str] = {}

    @property
    def runs(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def stdout(self) -> str:
        path = self._settings.with_suffix(".stdout")
        return path.read_text() if path.exists() else ""

    @property
    def stderr(self) -> str:
        return self._settings.with_suffix(".stderr").read_text()

    def wait_until_ready(self) -> BrokerProcess:
        wait_until(lambda: self.stdout.endswith("\n") or not self.runs)
        assert self.runs, self.stderr
        self._ports = json.loads(self.stdout)
        return self

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, how)
        wait_until(lambda: not self.runs)

    def port(self, name: str = "stomp") -> int:
        return int(self._ports[name].rpartition(":")[2])

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port('admin')}{path}", timeout=3 * PATIENCE) as answer:
            return str(answer.read().decode())

    def trace(self, message: MessageId) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.page(f"/trace/{message}"))
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.page("/status"))
        return found


class Brokers:
    """Starts brokers; ends those that are left."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self._started: list[BrokerProcess] = []

    def start(self, settings: Path) -> BrokerProcess:
        """Start a broker with the settings in a file; it may refuse."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        settings.with_suffix(".stdout").unlink(missing_ok=True)
        self._program.stdin.write(f"{settings}\n")
        self._program.stdin.flush()
        self._started.append(BrokerProcess(int(self._program.stdout.readline()), settings))
        return self._started[-1]

    def end_all(self) -> None:
        for one in self._started:
            one.end(signal.SIGKILL)
        self._started.clear()


@contextmanager
def forked_brokers() -> Iterator[Brokers]:
    """The parent of the brokers."""
    command = [sys.executable, "-m", "tests.server.processes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        made = Brokers(program)
        try:
            yield made
        finally:
            made.end_all()
            assert program.stdin is not None
            program.stdin.close()
            program.wait(PATIENCE)


class PlainClient:
    """A client that waits for each answer."""

    def __init__(self, port: int, login: str = "ann") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._frames = FrameReader()
        self._waiting: list[Any] = []
        self._say("CONNECT", {"accept-version": "1.2", "host": "here", "login": login, "passcode": "x"})
        self._next("CONNECTED")

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._socket.sendall(encode_frame(command, headers, body))

    def _next(self, command: str) -> Any:
        while True:
            for place, frame in enumerate(self._waiting):
                assert frame.command != "ERROR", frame
                if frame.command == command:
                    return self._waiting.pop(place)
            self._waiting += self._frames.receive(self._socket.recv(1 << 16))

    def subscribe(self, topic: str) -> None:
        self._say("SUBSCRIBE", {"id": "1", "destination": topic, "receipt": "s"})
        self._next("RECEIPT")

    def publish(self, topic: str, count: int, **headers: str) -> list[MessageId]:
        """Messages, and their ids from the receipts."""
        for number in range(count):
            self._say("SEND", {"destination": topic, "receipt": str(number), **headers}, b"%d" % number)
        return [MessageId.parse(self._next("RECEIPT").headers["message-id"]) for _ in range(count)]

    def receive(self, count: int) -> None:
        for _ in range(count):
            self._next("MESSAGE")

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    main()
