"""A network of broker processes that can be killed, frozen, cut off, starved of disk, and told another time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.broker import Limits
from postroad.client import http_request
from postroad.config import TrackingConfig, broker_config, read_config
from postroad.network.configuration import write_config
from postroad.network.ports import free_ports
from postroad.topology import Plan, Settings
from truth.wires import Wire

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from postroad.topology import Delivery, Graph, Hierarchy, StrategyName

__all__ = ["Fleet", "Forked", "Nursery"]

# A quick network, but not so quick that a busy machine looks like a dead one.
HEARTBEAT = Settings(heartbeat_ms=300, missed_heartbeats=4)
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.03
# Of a page of the admin endpoint; a trace of a small network has some kilobytes.
MOST_PAGE_BYTES = 16 << 20
# As long as a second broker on the same directory may take to be refused.
TWIN_SECONDS = 3.0
# Small, so that a subscriber that does not read soon has a full queue.
LIMITS = Limits(queue_messages=200)


class Forked:
    """A process that the nursery made. Its number alone names none: the system gives it to others later.

    Attributes:
        pid: its number.
        code: how it ended; None while it runs.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there to get it."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Nursery:
    """The program that forks brokers, from here.

    Attributes:
        started: processes that nobody has taken yet.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self.started: asyncio.Queue[Forked] = asyncio.Queue()
        self._running: dict[int, Forked] = {}
        self._is_clear = asyncio.Event()

    @property
    def running(self) -> list[int]:
        """The numbers of all processes that it has made and that have not ended."""
        return list(self._running)

    async def start(self) -> None:
        """Load everything that a broker needs."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "truth.nursery",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C is for the program in front; this one ends when its input does.
            start_new_session=True,
        )
        self._listener = asyncio.create_task(self._listen())
        async with asyncio.timeout(10 * START_SECONDS):
            await self.started.get()

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.heard(json.loads(line))

    def heard(self, event: dict[str, int]) -> None:
        """Take what the program tells."""
        if "ended" in event:
            self._running.pop(event["ended"]).code = event["code"]
        elif "cleared" in event:
            self._is_clear.set()
        else:
            forked = Forked(event.get("started", 0))
            if forked.pid:
                self._running[forked.pid] = forked
            self.started.put_nowait(forked)

    async def fork(self, settings: Path, clock: Path) -> Forked:
        """Start a broker."""
        await self._order({"settings": str(settings), "clock": str(clock)})
        async with asyncio.timeout(START_SECONDS):
            return await self.started.get()

    async def clear(self) -> None:
        """End all brokers, also those that nobody waits for any more."""
        self._is_clear.clear()
        await self._order({"clear": True})
        async with asyncio.timeout(START_SECONDS):
            await self._is_clear.wait()
        while not self.started.empty():
            self.started.get_nowait()

    async def _order(self, order: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> None:
        """End the program, and all brokers with it."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        await self._process.wait()
        if self._listener is not None:
            await self._listener


class Fleet:
    """The brokers of a plan.

    Args:
        nursery: starts them.
        folder: for settings, data and trail.
        graph: the links.
        strategy: how messages find their ways.
        delivery: what links promise.
    """

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        graph: Graph | Hierarchy,
        strategy: StrategyName,
        delivery: Delivery,
    ) -> None:
        self._nursery = nursery
        self._folder = folder
        self.trail = folder / "trail"
        plan = Plan.of(graph, "truth", strategy=strategy, delivery=delivery, settings=HEARTBEAT)
        ports = iter(free_ports(3 * len(plan.brokers), set()))
        placed = tuple(msgspec.structs.replace(one, port=next(ports), link_port=next(ports)) for one in plan.brokers)
        self.plan = msgspec.structs.replace(plan, brokers=placed)
        self._admin = {one.number: next(ports) for one in placed}
        self._ports = {one.number: one.port for one in placed}
        self.wires: dict[tuple[int, int], Wire] = {}
        self.tracking: dict[int, TrackingConfig] = {}
        self._forked: dict[int, Forked] = {}
        self._frozen: set[int] = set()
        self._twins: list[Forked] = []

    @property
    def brokers(self) -> list[int]:
        """All numbers, whether they run or not."""
        return [one.number for one in self.plan.brokers]

    @property
    def running(self) -> list[int]:
        """The brokers whose processes exist."""
        return [broker for broker, forked in self._forked.items() if forked.runs]

    @property
    def answering(self) -> list[int]:
        """Those that are not frozen either."""
        return [broker for broker in self.running if broker not in self._frozen]

    def address(self, broker: int) -> str:
        """Where clients connect."""
        return f"stomp://127.0.0.1:{self._ports[broker]}"

    async def lay_wires(self) -> None:
        """Put a wire into each link; before the brokers start."""
        ports = {one.number: one.link_port for one in self.plan.brokers}
        for low, high in self.plan.graph().links:
            self.wires[low, high] = Wire(ports[high])
            await self.wires[low, high].start()

    def _clock(self, broker: int) -> Path:
        return self._folder / f"{broker}.clock"

    def set_clock(self, broker: int, offset: int) -> None:
        """From now on the broker's wall clock is off by so many milliseconds."""
        with self._clock(broker).open("r+b") as file:
            file.write(offset.to_bytes(8, "little", signed=True))

    async def start_all(self, brokers: Collection[int]) -> None:
        """Start some brokers at once; where one does not start, nobody waits for the others any longer."""
        starts = [asyncio.create_task(self.start(broker)) for broker in brokers]
        try:
            await asyncio.gather(*starts)
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def start(self, broker: int) -> None:
        """Start a broker, and wait until clients can connect."""
        settings = self._write_settings(broker)
        if not self._clock(broker).exists():
            self._clock(broker).write_bytes(bytes(8))
        self._forked[broker] = await self._nursery.fork(settings, self._clock(broker))
        async with asyncio.timeout(START_SECONDS):
            while True:
                if broker not in self.running:
                    raise RuntimeError(f"broker {broker} did not start: {_tail(settings.with_suffix('.log'))}")
                with contextlib.suppress(OSError, ValueError, EOFError):
                    if (await self.get(broker, "/ready"))[0] == 200:
                        return
                await asyncio.sleep(LOOK_SECONDS)

    async def start_twin(self, broker: int) -> bool:
        """Start the same broker once more, on other ports, as happens by mistake; it should be refused.

        One that is not refused works beside the other for a moment, and is killed.

        Returns:
            whether it was refused.
        """
        settings = self._write_settings(broker)
        twin = settings.with_name(f"{broker}-twin.toml")
        config = read_config(settings)
        assert config.network is not None
        network = msgspec.structs.replace(config.network, port=free_ports(1, set())[0], neighbours=[])
        write_config(twin, msgspec.structs.replace(config, port=0, admin_port=None, network=network))
        forked = await self._nursery.fork(twin, self._clock(broker))
        self._twins.append(forked)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TWIN_SECONDS):
                while forked.runs:  # noqa: ASYNC110  # the process is not a child of this one
                    await asyncio.sleep(LOOK_SECONDS)
        refused = bool(forked.code)
        self._kill_twins()
        return refused

    def _kill_twins(self) -> None:
        for twin in self._twins:
            twin.signal(signal.SIGKILL)

    def _write_settings(self, broker: int) -> Path:
        config = broker_config(self.plan, broker, self._folder / str(broker), admin_port=self._admin[broker])
        assert config.network is not None
        # The lower of two numbers dials, so the wire stands where it would.
        neighbours = [
            msgspec.structs.replace(one, port=self.wires[broker, one.number].port)
            if (broker, one.number) in self.wires
            else one
            for one in config.network.neighbours
        ]
        network = msgspec.structs.replace(config.network, neighbours=neighbours)
        tracking = msgspec.structs.replace(self.tracking[broker], trail=str(self.trail))
        path = self._folder / f"{broker}.toml"
        write_config(
            path,
            msgspec.structs.replace(config, network=network, tracking=tracking, log_level="warning", limits=LIMITS),
        )
        return path

    async def get(self, broker: int, page: str, seconds: float = 10.0) -> tuple[int, bytes]:
        """A page of a broker's admin endpoint: its status and what it says."""
        async with asyncio.timeout(seconds):
            reply = await http_request(f"http://127.0.0.1:{self._admin[broker]}{page}", MOST_PAGE_BYTES)
        return reply.status, reply.body

    async def document(self, broker: int, page: str, seconds: float = 10.0) -> dict[str, Any]:
        """A page that is JSON."""
        found: dict[str, Any] = json.loads((await self.get(broker, page, seconds))[1])
        return found

    async def linked(self) -> None:
        """Wait until every broker that runs has all links to others that run, and knows what they want."""
        graph = self.plan.graph()
        async with asyncio.timeout(START_SECONDS):
            for broker in self.answering:
                wanted = set(graph.neighbours(broker)) & set(self.answering)
                while True:
                    with contextlib.suppress(OSError, ValueError, EOFError, TimeoutError):
                        status = await self.document(broker, "/status")
                        up = {one["neighbour"] for one in status["network"]["neighbours"] if one["up_now"]}
                        if wanted <= up:
                            break
                    await asyncio.sleep(LOOK_SECONDS)

    def signal(self, broker: int, number: int) -> None:
        """Send a signal, if there is a process to get it."""
        if broker in self.running:
            self._forked[broker].signal(number)

    def freeze(self, broker: int) -> None:
        """The process is there, and does nothing."""
        self._frozen.add(broker)
        self.signal(broker, signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        """It goes on as if nothing had happened."""
        self.signal(broker, signal.SIGCONT)
        self._frozen.discard(broker)

    def limit_files(self, broker: int, size: int | None) -> None:
        """No file of the broker may grow past this size, as on a full disk; None lifts it."""
        if broker in self.running:
            limit = resource.RLIM_INFINITY if size is None else size
            hard = resource.RLIM_INFINITY
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self._forked[broker].pid, resource.RLIMIT_FSIZE, (limit, hard))

    async def kill(self, broker: int) -> None:
        """As `kill -9` does."""
        self.signal(broker, signal.SIGKILL)
        await self._gone(broker)

    async def end(self, broker: int) -> None:
        """Stop a broker as an operator does; one that does not stop is killed."""
        self.thaw(broker)
        self.signal(broker, signal.SIGTERM)
        try:
            await self._gone(broker)
        except TimeoutError:
            await self.kill(broker)

    async def _gone(self, broker: int) -> None:
        async with asyncio.timeout(STOP_SECONDS):
            while broker in self.running:  # noqa: ASYNC110  # the process is not a child of this one
                await asyncio.sleep(LOOK_SECONDS)
        self._frozen.discard(broker)

    async def stop(self) -> None:
        """Nothing of the network is left."""
        await self._nursery.clear()
        for wire in self.wires.values():
            await wire.stop()


def _tail(log: Path) -> str:
    """The last line of a log, which says what was wrong."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"
