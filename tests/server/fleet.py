"""Brokers as processes of their own, linked as a graph says, through proxies where a test wants to cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from tests.server.scene import PATIENCE, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from postroad.topology import Graph

# A quick network, but not so quick that a busy machine looks like a dead one.
HEART_BEAT_MS = 400
MISSED = 4
# Nothing is given up while a busy machine finds another way.
HOLD_MS = 60_000

PROGRAM = """
import sys
from pathlib import Path
from postroad.config import read_config
from postroad.server import run_broker
ready = lambda service: print(service.port, service.admin_port, flush=True)
sys.exit(run_broker(read_config(Path(sys.argv[1])), ready))
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, below those that systems hand out to whoever connects."""
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_server(("127.0.0.1", random.randrange(12_000, 32_000))))
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


class Proxy:
    """Carries a link, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._cut = False

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Both ends lose their connection, and new ones end at once."""
        self._cut = True
        for task in self._tasks:
            task.cancel()

    def restore(self) -> None:
        self._cut = False

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other: asyncio.StreamWriter | None = None
        # Whoever ends first, the other end hears of it at once.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            back, other = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.wait(
                [asyncio.ensure_future(_pump(reader, other)), asyncio.ensure_future(_pump(back, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        for each in (writer, other):
            if each is not None:
                each.transport.abort()
        self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


class Fleet:
    """Processes by broker number."""

    def __init__(
        self,
        graph: Graph,
        folder: Path,
        delivery: str,
        strategy: str = "drp",
        more_settings: str = "",
        missed: int = MISSED,
    ) -> None:
        self.graph = graph
        self._folder = folder
        self._delivery = delivery
        self._strategy = strategy
        self._more_settings = more_settings
        self._missed = missed
        self._link_ports = dict(zip(graph.brokers, free_ports(len(graph.brokers)), strict=True))
        self.proxies: dict[tuple[int, int], Proxy] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ports: dict[int, tuple[int, int]] = {}

    async def put_between(self, one: int, other: int) -> Proxy:
        """Put a proxy into a link; before the brokers start."""
        low, high = sorted((one, other))
        proxy = Proxy(self._link_ports[high])
        await proxy.start()
        self.proxies[low, high] = proxy
        return proxy

    def _settings(self, number: int) -> str:
        lines = [
            f"number = {number}",
            "port = 0",
            "admin_port = 0",
            f"data = '{self._folder / str(number)}'",
            "log_level = 'warning'",
            "[network]",
            f"port = {self._link_ports[number]}",
            f"strategy = '{self._strategy}'",
            f"delivery = '{self._delivery}'",
            f"settings = {{heartbeat_ms = {HEART_BEAT_MS}, missed_heartbeats = {self._missed}, hold_ms = {HOLD_MS}"
            f"{self._more_settings}}}",
        ]
        for neighbour in self.graph.neighbours(number):
            proxy = self.proxies.get((number, neighbour))
            port = self._link_ports[neighbour] if proxy is None else proxy.port
            lines += ["[[network.neighbours]]", f"number = {neighbour}", f"port = {port}"]
        return "\n".join(lines)

    async def start(self, *numbers: int) -> None:
        """Start brokers, and wait until clients can connect."""
        for number in numbers:
            config = self._folder / f"{number}.toml"
            config.write_text(self._settings(number))
            self._processes[number] = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, str(config), stdout=asyncio.subprocess.PIPE
            )
        for number in numbers:
            output = self._processes[number].stdout
            assert output is not None
            line = await asyncio.wait_for(output.readline(), 3 * PATIENCE)
            assert line, f"broker {number} did not start; its log is on stderr"
            port, admin = line.split()
            self._ports[number] = int(port), int(admin)

    async def kill(self, number: int) -> None:
        """As `kill -9` does."""
        process = self._processes.pop(number)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def freeze(self, number: int) -> None:
        """The process is there, and does nothing."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """The process goes on where it stopped."""
        self._processes[number].send_signal(signal.SIGCONT)

    async def client(self, number: int) -> Client:
        return await Client.connect(self._ports[number][0])

    async def status(self, number: int) -> dict[str, Any]:
        """What a broker says about itself."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[number][1])
        writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found

    async def reach(self, count: int, *numbers: int) -> None:
        """Wait until brokers know ways to so many others, and then a little until they know what those want."""
        async with asyncio.timeout(PATIENCE):
            for number in numbers:
                while (await self.status(number))["network"]["routing"]["reached"] != count:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    async def stop(self) -> None:
        for number in list(self._processes):
            await self.kill(number)
        for proxy in self.proxies.values():
            await proxy.stop()


@contextlib.asynccontextmanager
async def fleet(
    graph: Graph,
    folder: Path,
    delivery: str,
    *cuttable: tuple[int, int],
    more_settings: str = "",
    missed: int = MISSED,
) -> AsyncIterator[Fleet]:
    """A network of processes that runs and has found itself; a link is dead after so many missed heart-beats."""
    made = Fleet(graph, folder, delivery, more_settings=more_settings, missed=missed)
    try:
        for one, other in cuttable:
            await made.put_between(one, other)
        await made.start(*graph.brokers)
        await made.reach(len(graph.brokers) - 1, *graph.brokers)
        yield made
    finally:
        await made.stop()
