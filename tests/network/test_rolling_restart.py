"""A rolling restart under load: publishers with receipts and durable subscribers lose nothing and get nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import postroad
from postroad.client import ClientError, Reconnect, connect
from postroad.network import BrokerEntry, BrokerView, Condition, NetworkState, Place, RestartProgress
from postroad.network.errors import NetworkError
from postroad.network.launcher import BROKER_PROGRAM
from postroad.network.ports import free_ports
from postroad.network.processes import ProcessMark, mark_of
from postroad.network.rolling_restart import RestartRequest, RollingRestart, requested_restart
from postroad.network.run import NetworkRun
from postroad.topology import BrokerPlan, LinkPlan, Plan, Settings
from postroad.trail.access import write_private
from tests.cli.programs import PROGRAM, here

if TYPE_CHECKING:
    from collections.abc import Callable


SOURCES = Path(postroad.__file__).parent
# A bound for a process that hangs.
SECONDS = 280
AGAIN = Reconnect(first=0.02, longest=0.2)
# Heart-beats: a machine that stands still for a while is no fault of a broker's.
NEVER = (0, 0)
# How long what is confirmed may take to arrive after the restart.
ARRIVAL_SECONDS = 100


def plan_of_a_line(path: Path, count: int) -> Path:
    """A line, where all that goes from one end to the other passes the broker between them."""
    ports = free_ports(2 * count, set())
    brokers = tuple(
        BrokerPlan(number=number, port=ports.pop(), link_port=ports.pop()) for number in range(1, count + 1)
    )
    links = tuple(LinkPlan(between=(number, number + 1)) for number in range(1, count))
    file = path / "plan.toml"
    # A broker may take long to come back where tests run, and a machine that stands still breaks no link.
    settings = Settings(hold_ms=60_000, missed_heartbeats=60)
    file.write_text(Plan(name="line", brokers=brokers, links=links, settings=settings).to_toml())
    return file


class Subscriber:
    """A durable subscriber; it acknowledges everything, and knows what came twice without a mark."""

    def __init__(self) -> None:
        self.got: set[tuple[str, int]] = set()
        self.twice: list[tuple[str, int]] = []
        self.ready = asyncio.Event()

    async def run(self, server: str) -> None:
        async with (
            connect(server, reconnect=AGAIN, ids="broker", heart_beat=NEVER, timeout=SECONDS) as client,
            client.subscribe("work.>", ack="client-individual", durable="all") as subscription,
        ):
            self.ready.set()
            while True:
                message = await subscription.get()
                one = str(message.attributes["by"]), int(message.text)
                if one in self.got and str(message.attributes.get("redelivered")) != "true":
                    self.twice.append(one)
                self.got.add(one)
                # Over a connection that is gone: it comes again, marked.
                with contextlib.suppress(ClientError):
                    await client.ack(message)


async def publish(server: str, name: str, sent: set[tuple[str, int]], stop: asyncio.Event) -> None:
    """Publish with receipts, one after the other, until told to stop."""
    async with connect(server, reconnect=AGAIN, heart_beat=NEVER, timeout=SECONDS) as client:
        while not stop.is_set():
            number = len(sent)
            await client.publish("work.item", {"by": name}, str(number), receipt=True)
            sent.add((name, number))
            await asyncio.sleep(0.002)


async def restarted_under_load(plan: Path, servers: list[str]) -> list[dict[str, Any]]:
    """Publish at both ends and subscribe everywhere while all brokers are restarted; what the restart said."""
    subscribers, stop = [Subscriber() for _ in servers], asyncio.Event()
    sent: list[set[tuple[str, int]]] = [set(), set()]
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(one.run(server)) for one, server in zip(subscribers, servers, strict=True)]
        for one in subscribers:
            await one.ready.wait()
        ends = (servers[0], servers[-1])
        # Each end hears of all subscriptions before it publishes what counts.
        await heard_of(servers[0], subscribers)
        await heard_of(servers[-1], subscribers)
        publishing = [
            group.create_task(publish(server, f"p{place}", sent[place], stop)) for place, server in enumerate(ends)
        ]
        command = [*PROGRAM, "network", "restart", str(plan), "--rolling", "--json"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        told = [json.loads(line) async for line in process.stdout]
        assert await process.wait() == 0, told
        stop.set()
        await asyncio.gather(*publishing)
        everything = sent[0] | sent[1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while not all(everything <= one.got for one in subscribers):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for task in listening:
            task.cancel()
    nothing: list[list[tuple[str, int]]] = [[] for _ in servers]
    assert [sorted(everything - one.got) for one in subscribers] == nothing, "lost"
    assert [one.twice for one in subscribers] == nothing
    assert all(len(each) > 10 for each in sent)
    return told


async def heard_of(server: str, subscribers: list[Subscriber]) -> None:
    """Publish at a broker until its message has reached every subscriber."""
    number = 0
    async with connect(server, heart_beat=NEVER, timeout=SECONDS) as client:
        while not all(any(by == server for by, _ in one.got) for one in subscribers):
            await client.publish("work.first", {"by": server}, str(number), receipt=True)
            number += 1
            await asyncio.sleep(0.05)


def test_a_rolling_restart_under_load_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    plan = plan_of_a_line(tmp_path, 3)
    place = Place(plan.with_suffix(".network"))
    command = [*PROGRAM, "network", "up", str(plan), "--directory-port", "0", "--recorder", "none", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            up = json.loads(process.stdout.readline())
            servers = [each["address"] for each in sorted(up["brokers"], key=lambda each: int(each["broker"]))]
            told = asyncio.run(asyncio.wait_for(restarted_under_load(plan, servers), SECONDS))
            assert (told[-1]["done"], told[-1]["finished"], told[-1]["failure"]) == (3, True, "")
            steps = [(each["broker"], each["step"]) for each in told if each["broker"]]
            assert {broker for broker, _ in steps} == {1, 2, 3}
            state = place.read()
            assert state is not None
            before = {each["broker"]: each["pid"] for each in up["brokers"]}
            now = {each.number: each.process.pid for each in state.brokers if each.process is not None}
            assert all(now[number] != pid for number, pid in before.items())
            assert [each.restarts for each in state.brokers] == [0, 0, 0]
            assert not place.restart_file.exists()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()


def test_a_restart_of_all_at_once_is_not_done_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = here(monkeypatch, "network", "restart", str(tmp_path))
    assert (told.code, "say --rolling" in told.err) == (2, True)


def test_a_restart_without_a_watcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    told = here(monkeypatch, "network", "restart", str(tmp_path), "--rolling")
    assert (told.code, "no network is up" in told.err) == (2, True)
    watcher = ProcessMark(os.getpid(), "another life")
    place.write(NetworkState(name="n", strategy="drp", plan="plan.toml", watcher=watcher))
    told = here(monkeypatch, "network", "restart", str(tmp_path), "--rolling")
    assert (told.code, "nobody watches the brokers" in told.err) == (2, True)
    assert not place.restart_file.exists()


class Sleepers:
    """Processes that do nothing, in the place of brokers: what is restarted, and in which order."""

    def __init__(self, count: int) -> None:
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.count = count
        self.expected: set[int] = set()
        self.held = 0
        self.is_stopping = False

    async def begin(self) -> None:
        for number in self.numbers():
            await self.start(number, 0.0)

    async def end(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    def numbers(self) -> list[int]:
        return list(range(1, self.count + 1))

    def entry(self, number: int) -> BrokerEntry:
        mark = mark_of(self.processes[number].pid)
        return BrokerEntry(number=number, address="", link_port=1, admin_port=1, links=0, process=mark)

    async def seen(self) -> list[BrokerView]:
        return [
            BrokerView(broker=number, address="", admin="", pid=1, condition=Condition.READY, held=self.held)
            for number in self.numbers()
        ]

    def expect_end(self, number: int, expected: bool) -> None:
        (self.expected.add if expected else self.expected.discard)(number)

    async def ended(self, number: int) -> None:
        assert number in self.expected
        await self.processes[number].wait()

    async def start(self, number: int, join_seconds: float) -> None:
        self.processes[number] = await asyncio.create_subprocess_exec("sleep", "1000")


async def rolled(
    path: Path, sleepers: Sleepers, at_step: Callable[[RestartProgress], None], wait: float = 60.0
) -> tuple[RestartProgress, list[bool]]:
    """A rolling restart of sleepers: how it ended, and which of them are other processes than before."""
    place, mark = Place(path), mark_of(os.getpid())
    assert mark is not None
    request = RestartRequest("r", mark)
    write_private(place.restart_file, msgspec.json.encode(request))
    assert requested_restart(place) == request
    steps: list[RestartProgress] = []

    def tell(progress: RestartProgress) -> None:
        steps.append(progress)
        at_step(progress)

    try:
        await sleepers.begin()
        before = {number: process.pid for number, process in sleepers.processes.items()}
        await asyncio.wait_for(RollingRestart(sleepers, request, place, wait, tell).run(), SECONDS)
        assert all(process.returncode is None for process in sleepers.processes.values())
        return steps[-1], [sleepers.processes[number].pid != pid for number, pid in before.items()]
    finally:
        await sleepers.end()


def test_a_restart_that_is_interrupted_ends_between_two_brokers(tmp_path: Path) -> None:
    def interrupt(progress: RestartProgress) -> None:
        if progress.broker == 2 and progress.step == "stopping":
            Place(tmp_path).restart_file.unlink()

    sleepers = Sleepers(3)
    last, others = asyncio.run(rolled(tmp_path, sleepers, interrupt))
    assert (last.done, last.finished, last.failure) == (2, True, "it was interrupted")
    assert others == [True, True, False]
    assert sleepers.expected == set()


def test_a_restart_does_not_begin_while_messages_wait_for_a_broker(tmp_path: Path) -> None:
    sleepers = Sleepers(2)
    sleepers.held = 3
    last, others = asyncio.run(rolled(tmp_path, sleepers, lambda progress: None, wait=0.0))
    assert (last.done, others) == (0, [False, False])
    assert "broker 1: 3 messages wait for a way" in last.failure


def test_a_restart_that_cannot_start_a_process_says_so(tmp_path: Path) -> None:
    class Replaced(Sleepers):
        async def start(self, number: int, join_seconds: float) -> None:
            await super().start(number, join_seconds)
            if join_seconds and number == 2:
                raise FileNotFoundError(2, "the program is being replaced")

    sleepers = Replaced(3)
    last, _ = asyncio.run(rolled(tmp_path, sleepers, lambda progress: None))
    assert (last.done, last.finished, "is being replaced" in last.failure) == (1, True, True)
    assert sleepers.expected == set()


class Notes:
    """A listener that keeps what it hears of deaths and restarts."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *what: self.heard.append((name, *what[:2]))


def test_a_broker_that_cannot_be_started_is_tried_again_and_the_network_stops_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_process(*arguments: object) -> None:
        raise FileNotFoundError(2, "the program is being replaced")

    async def defect() -> None:
        raise ValueError("a defect")

    async def stopped() -> list[tuple[Any, ...]]:
        listener = Notes()
        run = NetworkRun(
            Plan(name="one", brokers=(BrokerPlan(number=1, port=1, link_port=2),)), tmp_path, Place(tmp_path), listener
        )
        run._entries[1] = BrokerEntry(number=1, address="", link_port=1, admin_port=1, links=0)
        with pytest.raises(NetworkError, match=r"broker 1 cannot be started: .*is being replaced"):
            await run.start(1, 1.0)
        run._rolling = asyncio.create_task(defect())
        await asyncio.wait_for(run._stop(), SECONDS)
        return listener.heard

    monkeypatch.setattr("postroad.network.run.launch", no_process)
    heard = asyncio.run(stopped())
    assert [each[:2] for each in heard] == [("died", 1), ("restarts", 1)]


def test_programs_of_ours_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "postroad.py").write_text("raise SystemExit('imported from the working directory')")
    command = [sys.executable, *BROKER_PROGRAM, "--version"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (told.returncode, told.stderr) == (0, "")
    sources = [each.read_text() for each in SOURCES.rglob("*.py")]
    assert sources
    assert not [line for text in sources for line in text.splitlines() if re.search(r'executable, "-[cm]"', line)]


def test_a_broker_that_still_loads_its_program_survives_a_reload() -> None:
    loading = [word.replace("from postroad.cli import main; main()", "input()") for word in BROKER_PROGRAM]
    with subprocess.Popen([sys.executable, *loading], stdin=subprocess.PIPE) as process:
        try:
            wait_until_ignored(process.pid)
            process.send_signal(signal.SIGHUP)
            process.communicate(b"\n", SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()


def wait_until_ignored(pid: int) -> None:
    """Wait until a process ignores SIGHUP; not waiting any longer than a process that hangs may take."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        status = Path(f"/proc/{pid}/status").read_text()
        ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
        if ignored & 1 << signal.SIGHUP - 1:
            return
        time.sleep(0.01)
    raise AssertionError("SIGHUP ends a broker that is still loading its program")


def test_a_request_whose_process_is_gone_counts_no_more(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write_private(place.restart_file, msgspec.json.encode(RestartRequest("r", ProcessMark(os.getpid(), "before"))))
    assert requested_restart(place) is None
    place.restart_file.write_text("{")
    assert requested_restart(place) is None
