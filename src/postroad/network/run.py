"""A whole network from the start to the end: start every broker, watch them, restart those that die, stop them all.

A broker that dies is started again after a pause that grows, and not for ever: see `Restarts`.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from postroad.config import TrackingConfig
from postroad.network.admin_access import admin_access
from postroad.network.directory import Directory
from postroad.network.errors import NetworkError
from postroad.network.launcher import (
    STOP_SECONDS,
    admin_authority,
    command_line,
    end,
    how_it_ended,
    launch,
    log_tail,
    prepare,
    resolved,
    restart_command,
)
from postroad.network.nursery import Nursery
from postroad.network.ports import check_ports
from postroad.network.processes import is_alive, mark_of
from postroad.network.restarts import WITHIN_SECONDS, Restarts
from postroad.network.rolling_restart import RollingRestart, requested_restart
from postroad.network.state import NetworkState
from postroad.network.status_request import ask
from postroad.network.watch import Condition, NetworkWatch, missing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from postroad.network.launcher import RunningProcess
    from postroad.network.state import BrokerEntry, Place, RestartProgress
    from postroad.network.watch import BrokerView
    from postroad.topology import Plan

__all__ = ["DIRECTORY_PORT", "Listener", "NetworkRun", "RunOptions"]

DIRECTORY_PORT = 8160
# How often brokers are asked, while they start and afterwards.
STARTING_SECONDS = 0.2
LOOK_SECONDS = 1.0
# A broker that loads its libraries needs a processor for a second or two; starting more at once would only
# delay all of them. One that is forked from the nursery has loaded them, and needs a tenth of that.
STARTING_AT_ONCE = max(2, os.cpu_count() or 2)
FORKED_AT_ONCE = 4 * STARTING_AT_ONCE


class RunOptions(NamedTuple):
    """How a network is run.

    Attributes:
        secret: what all brokers share; needed unless all are on the loopback address.
        log_level: what brokers log: this and worse.
        directory_host: the address of the directory.
        directory_port: its port; 0 takes a free one.
        wait_seconds: how long the network may take to come up.
        tracking: what the brokers keep of messages; their trails go into one directory.
        group: the group of the system that may read data, logs and trail; none without.
        restart: brokers that die are started again.
        credentials: the directory with private keys and certificates, for a plan that has them.
        users_file: who may log in, at all brokers; without it, everyone.
        admin_token_file: the token that all admin endpoints ask for; none without.
        admin_tls: admin endpoints speak TLS, with the brokers' certificates of the plan, on the brokers' hosts.
    """

    secret: str | None = None
    log_level: str = "info"
    directory_host: str = "127.0.0.1"
    directory_port: int = DIRECTORY_PORT
    wait_seconds: float = 300.0
    tracking: TrackingConfig = TrackingConfig()
    group: str | None = None
    restart: bool = True
    credentials: Path | None = None
    users_file: Path | None = None
    admin_token_file: Path | None = None
    admin_tls: bool = False


class Listener(Protocol):
    """Hears what happens to a network."""

    def looked(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """The brokers were asked how they are."""

    def came_up(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        """Every broker is ready, has the links and the parent of the plan, and knows the others."""

    def died(self, broker: int, how: str, tail: str, command: str) -> None:
        """A broker ended by itself: how, the end of its log, and how to start it again."""

    def restarts(self, broker: int, seconds: float) -> None:
        """A broker that died will be started again after this time."""

    def restarted(self, broker: int, pid: int) -> None:
        """A broker that died was started again, as this process."""

    def gave_up(self, broker: int, restarts: int, seconds: float) -> None:
        """A broker died too often within some time, and is not started again."""

    def rolled(self, progress: RestartProgress) -> None:
        """A rolling restart has come this far."""

    def stopping(self) -> None:
        """All brokers were asked to stop."""

    def stopped(self, brokers: int, killed: int) -> None:
        """All brokers are gone; some may have had to be killed."""


class NetworkRun:
    """One run of a network, for as long as `run` runs.

    Args:
        plan: the network.
        plan_file: where the plan is, for the state file.
        place: its data directory.
        listener: hears what happens.
        options: how it is run.
    """

    def __init__(
        self, plan: Plan, plan_file: Path, place: Place, listener: Listener, options: RunOptions | None = None
    ) -> None:
        self._plan = plan
        self._plan_file = plan_file
        self._place = place
        self._listener = listener
        self._options = options or RunOptions()
        self._entries: dict[int, BrokerEntry] = {}
        self._views: list[BrokerView] = []
        self._watch = NetworkWatch(time.monotonic, lambda: admin_access(self._state()))
        self._exits: dict[int, asyncio.Task[None]] = {}
        self._exited: dict[int, int] = {}
        self._restarts = Restarts()
        self._restarting: dict[int, asyncio.Task[None]] = {}
        self._rolling: asyncio.Task[None] | None = None
        self._progress: RestartProgress | None = None
        # Brokers whose end is part of a rolling restart.
        self._parting: set[int] = set()
        self._is_unwritten = False
        self._told_to_stop = asyncio.Event()
        self._impatient = asyncio.Event()
        self._up = False
        self._address = ""
        self.directory = Directory(
            plan.name,
            self.live,
            lambda: [entry.admin for entry in self._entries.values()],
            lambda: {"network": plan.name, "brokers": self._views},
        )

    def stop(self) -> None:
        """Stop all brokers in order; the second call ends them at once."""
        if self._told_to_stop.is_set():
            self._impatient.set()
        self._told_to_stop.set()

    def live(self) -> list[str]:
        """The addresses of brokers that clients can connect to."""
        return [
            view.address
            for view in self._views
            if view.condition in (Condition.READY, Condition.DEGRADED) and view.broker not in self._parting
        ]

    async def run(self) -> None:
        """Start, watch, stop. The state file is gone at the end, whatever happens.

        Raises:
            NetworkError: the network cannot be started; what was started is stopped again.
        """
        with self._place.held(self._options.group):
            self._check_nothing_runs()
            check_ports(self._plan)
            server = await self._open_directory()
            try:
                prepared = prepare(self._plan, self._place, self._options)
                self._entries = {entry.number: entry for entry in prepared}
                await self._start()
                while not self._told_to_stop.is_set():
                    await self._look()
                    self._listener.looked(self._state(), self._views)
                    self._look_for_restart()
                    await _set_within(self._told_to_stop, LOOK_SECONDS)
            finally:
                server.close()
                await self._stop()
                self._place.state_file.unlink(missing_ok=True)
                self._place.restart_file.unlink(missing_ok=True)

    def _check_nothing_runs(self) -> None:
        state = self._place.read()
        left = [] if state is None else state.running()
        if left:
            raise NetworkError(
                f"{len(left)} brokers of an earlier run in {self._place.root} still run without supervision; "
                f"end them with `postroad network stop {self._place.root}`"
            )

    async def _open_directory(self) -> asyncio.Server:
        host, port = self._options.directory_host, self._options.directory_port
        try:
            server = await self.directory.listen(port, host)
        except OSError as error:
            raise NetworkError(
                f"the directory cannot listen on {host}:{port} ({error.strerror}); "
                "choose another port with --directory-port, or 0 for a free one"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self._address = f"http://{shown}:{server.sockets[0].getsockname()[1]}"
        return server

    def _state(self) -> NetworkState:
        watcher = mark_of(os.getpid())
        assert watcher is not None
        return NetworkState(
            name=self._plan.name,
            strategy=self._plan.strategy,
            plan=str(self._plan_file),
            watcher=watcher,
            directory=self._address,
            up=self._up,
            brokers=tuple(self._entries.values()),
            restart=self._progress,
            admin_token_file=resolved(self._options.admin_token_file) or "",
            admin_ca=admin_authority(self._options) or "",
        )

    async def _start(self) -> None:
        """Start the brokers, a few at a time, and wait until they make a network."""
        longest = max(len("\0".join(command_line(self._place, number)).encode()) for number in self._entries)
        with Nursery(longest) as nursery:
            await self._start_all(nursery)

    async def _start_all(self, nursery: Nursery) -> None:
        waiting = list(self._entries)
        deadline = time.monotonic() + self._options.wait_seconds
        while not self._told_to_stop.is_set():
            # Brokers that do not answer yet are not asked for the state of others: for a few hundred it would take
            # long.
            starting = sum(view.condition is Condition.STARTING for view in self._views)
            at_once = FORKED_AT_ONCE if await nursery.is_ready() else STARTING_AT_ONCE
            for number in waiting[: max(0, at_once - starting)]:
                waiting.remove(number)
                await self._launch(number, nursery=nursery)
            await self._look()
            self._listener.looked(self._state(), self._views)
            if self._exited:
                raise self._died_at_start()
            lacking = missing(self._views)
            if not waiting and not lacking:
                self._up = True
                self._place.write(self._state())
                self._listener.came_up(self._state(), self._views)
                return
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"the network is not up after {self._options.wait_seconds:g} s: {'; '.join(lacking[:5])}; "
                    f"the logs are in {self._place.root}/brokers, and --wait gives it more time"
                )
            await _set_within(self._told_to_stop, STARTING_SECONDS)

    async def _launch(self, number: int, join_seconds: float = 0.0, nursery: Nursery | None = None) -> None:
        process, self._entries[number] = await launch(self._place, self._entries[number], join_seconds, nursery)
        self._exits[number] = asyncio.create_task(self._wait(number, process))
        self._note_state()

    def _note_state(self) -> None:
        """Write the state, now or, on a disk that is full for a while, later: brokers must not be started twice."""
        try:
            self._place.write(self._state())
        except OSError:
            self._is_unwritten = True
        else:
            self._is_unwritten = False

    async def _wait(self, number: int, process: RunningProcess) -> None:
        code = await process.wait()
        self._exited[number] = code
        self._views = [
            msgspec.structs.replace(view, condition=Condition.DEAD) if view.broker == number else view
            for view in self._views
        ]
        if self._up and not self._told_to_stop.is_set() and number not in self._parting:
            tail = log_tail(self._place.log_file(number))
            self._listener.died(number, how_it_ended(code), tail, restart_command(self._place, number))
            if self._options.restart:
                self._plan_restart(number)

    def _plan_restart(self, number: int) -> None:
        seconds, entry = self._restarts.died(number, time.monotonic()), self._entries[number]
        if seconds is None:
            self._entries[number] = msgspec.structs.replace(entry, given_up=True)
            self._place.write(self._state())
            self._listener.gave_up(number, entry.restarts, WITHIN_SECONDS)
            return
        self._listener.restarts(number, seconds)
        self._restarting[number] = asyncio.create_task(self._restart(number, seconds))

    async def _restart(self, number: int, seconds: float) -> None:
        if await _set_within(self._told_to_stop, seconds):
            return
        entry = self._entries[number]
        report = await ask(entry, admin_access(self._state()))
        if report is not None and report.broker == number:
            # Somebody else was quicker, with the command that `died` named.
            return
        del self._exited[number]
        self._entries[number] = msgspec.structs.replace(entry, restarts=entry.restarts + 1)
        try:
            await self._launch(number)
        except OSError as error:
            self._could_not_start(number, error)
            return
        process = self._entries[number].process
        self._listener.restarted(number, 0 if process is None else process.pid)

    def _could_not_start(self, number: int, error: OSError) -> None:
        """No process can be made, or its log cannot be written: as if it had died at once."""
        self._exited[number] = 1
        self._listener.died(number, str(error), "", restart_command(self._place, number))
        if self._options.restart:
            self._plan_restart(number)

    async def _look(self) -> None:
        started = [entry for entry in self._entries.values() if entry.process is not None]
        self._views = await self._watch.look(started)

    # --- a rolling restart ------------------------------------------------------------------------------------------

    def _look_for_restart(self) -> None:
        if self._is_unwritten:
            self._note_state()
        if self._rolling is not None and not self._rolling.done():
            return
        request = requested_restart(self._place)
        if request is not None and (self._progress is None or self._progress.request != request.name):
            rolling = RollingRestart(self, request, self._place, self._options.wait_seconds, self._progressed)
            self._rolling = asyncio.create_task(rolling.run())

    def _progressed(self, progress: RestartProgress) -> None:
        self._progress = progress
        self._note_state()
        self._listener.rolled(progress)

    def numbers(self) -> list[int]:
        """Its brokers."""
        return list(self._entries)

    def entry(self, number: int) -> BrokerEntry:
        """One of them."""
        return self._entries[number]

    async def seen(self) -> Sequence[BrokerView]:
        """What all brokers are seen to be, now."""
        await self._look()
        return self._views

    def expect_end(self, number: int, expected: bool) -> None:
        """Say whether the end of a broker's process is part of a restart and does not count as a death."""
        (self._parting.add if expected else self._parting.discard)(number)

    async def ended(self, number: int) -> None:
        """Wait for the end of a broker's process."""
        await asyncio.shield(self._exits[number])

    async def start(self, number: int, join_seconds: float) -> None:
        """Start a broker again."""
        self._exited.pop(number, None)
        try:
            await self._launch(number, join_seconds)
        except OSError as error:
            self._could_not_start(number, error)
            raise NetworkError(f"broker {number} cannot be started: {error}") from None

    @property
    def is_stopping(self) -> bool:
        """Whether the whole network is to stop."""
        return self._told_to_stop.is_set()

    def _died_at_start(self) -> NetworkError:
        number, code = next(iter(self._exited.items()))
        log = self._place.log_file(number)
        return NetworkError(f"broker {number} did not start ({how_it_ended(code)}); its log is {log}", log_tail(log))

    async def _stop(self) -> None:
        self._told_to_stop.set()
        # One that is about to be started is started first, and stopped with the others.
        starting = [*self._restarting.values(), *(() if self._rolling is None else (self._rolling,))]
        # Whatever went wrong there, the brokers have to end.
        await asyncio.gather(*starting, return_exceptions=True)
        started = [entry.process for entry in self._entries.values() if entry.process is not None]
        marks = [mark for mark in started if is_alive(mark)]
        if started:
            self._listener.stopping()
        ending = asyncio.create_task(end(marks, STOP_SECONDS))
        hurry = asyncio.create_task(self._impatient.wait())
        await asyncio.wait([ending, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not ending.done():
            ending.cancel()
            ending = asyncio.create_task(end(marks, 0.0))
        killed = await ending
        await asyncio.gather(*self._exits.values())
        if started:
            self._listener.stopped(len(marks), killed)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
