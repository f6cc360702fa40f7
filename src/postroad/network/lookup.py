"""Finds a running network by its data directory: looks at it, stops it, or starts it in the background."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from postroad.network.admin_access import admin_access
from postroad.network.errors import NetworkError
from postroad.network.launcher import STOP_SECONDS, end, how_it_ended, log_tail
from postroad.network.processes import is_alive, send_signal
from postroad.network.watch import NetworkWatch
from postroad.trail.access import create

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.network.processes import ProcessMark
    from postroad.network.state import NetworkState, Place
    from postroad.network.watch import BrokerView

__all__ = ["Stopped", "find", "look_once", "reload_users", "start_detached", "stop_network"]

LOOK_SECONDS = 0.1
# Rates need two looks.
BETWEEN_LOOKS_SECONDS = 1.0


class Stopped(NamedTuple):
    """How many brokers were stopped, and how many of them had to be killed."""

    brokers: int
    killed: int


def find(place: Place) -> NetworkState:
    """The network of a data directory.

    Raises:
        NetworkError: there is none.
    """
    state = place.read()
    if state is None:
        raise NetworkError(f"no network is up in {place.root}; start one with `postroad network up PLAN`")
    return state


async def look_once(state: NetworkState) -> list[BrokerView]:
    """The brokers as they are now, with the rates of a second."""
    watch = NetworkWatch(time.monotonic, lambda: admin_access(state))
    await watch.look(state.brokers)
    await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
    return await watch.look(state.brokers)


def reload_users(place: Place) -> int:
    """Have the brokers of a network read their users file again; returns how many were asked to.

    Raises:
        NetworkError: there is no such network.
    """
    # Not the process that watches: a hang-up of its terminal stops the network.
    return sum(
        send_signal(entry.process, signal.SIGHUP) for entry in find(place).running() if entry.process is not None
    )


async def stop_network(place: Place) -> Stopped:
    """Stop a network from outside: through the process that watches it, or without one if that is gone.

    Raises:
        NetworkError: there is none.
    """
    state = find(place)
    running = [entry.process for entry in state.running() if entry.process is not None]
    if send_signal(state.watcher, signal.SIGTERM):
        # It gives its brokers STOP_SECONDS, then kills them; after that it hangs itself.
        await _gone(state.watcher, 2 * STOP_SECONDS)
        send_signal(state.watcher, signal.SIGKILL)
    killed = await end([mark for mark in running if is_alive(mark)])
    place.state_file.unlink(missing_ok=True)
    return Stopped(len(running), killed)


async def _gone(mark: ProcessMark, seconds: float) -> None:
    until = time.monotonic() + seconds
    # Not a child of this process: nothing tells when it ends.
    while is_alive(mark) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)


async def start_detached(place: Place, arguments: Sequence[str], group: str | None = None) -> NetworkState:
    """Run `postroad network up` with these arguments in the background; returns when the network is up.

    Args:
        place: the data directory.
        arguments: of the command.
        group: of the system, that may read the data directory.

    Raises:
        NetworkError: one is up there already; or it did not come up, and the details are what it said.
    """
    with place.held(group):
        # Nobody has it: a network that is up goes on writing to the log, which this would empty.
        pass
    with os.fdopen(create(place.watcher_log, os.O_TRUNC), "wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once, and the process stays when this one ends
            [sys.executable, "-P", "-c", "from postroad.cli import main; main()", "network", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while (code := process.poll()) is None:
            state = place.read()
            if state is not None and state.up and state.watcher.pid == process.pid:
                return state
            await asyncio.sleep(LOOK_SECONDS)
    except BaseException:
        process.terminate()
        raise
    text = f"the network did not come up ({how_it_ended(code)}); all that was said is in {place.watcher_log}"
    raise NetworkError(text, log_tail(place.watcher_log))
