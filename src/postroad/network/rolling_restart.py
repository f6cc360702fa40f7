"""A rolling restart: one broker after the other, so a network gets new programs or settings while it works.

A client writes a request into the data directory of the network and reads the progress from the network's state. The
process that watches the brokers carries it out. It looks for the request before each broker: if the request is
withdrawn, or its process is gone, the restart ends between two brokers, never within one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from postroad.network.errors import NetworkError
from postroad.network.lookup import find
from postroad.network.processes import ProcessMark, is_alive, mark_of, send_signal
from postroad.network.state import RestartProgress
from postroad.network.watch import missing
from postroad.trail.access import write_private

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from postroad.network.state import BrokerEntry, Place
    from postroad.network.watch import BrokerView

__all__ = ["RestartRequest", "RollingRestart", "follow_restart", "requested_restart"]

# A broker that stops gives its clients 5 s and its neighbours up to 20 s, and writes the last of its store and record.
STOP_SECONDS = 60.0
# How long a broker waits for its links, and for what others want, before clients can connect.
JOIN_SECONDS = 60.0
LOOK_SECONDS = 0.1
# How long the watcher, which looks once a second, may take to begin.
BEGIN_SECONDS = 60.0


class RestartRequest(msgspec.Struct, frozen=True):
    """Somebody wants a rolling restart: its name, and the process that waits for it."""

    name: str
    by: ProcessMark


class Restartable(Protocol):
    """A network of which brokers can be restarted."""

    def numbers(self) -> list[int]:
        """Its brokers."""

    def entry(self, number: int) -> BrokerEntry:
        """One of them."""

    async def seen(self) -> Sequence[BrokerView]:
        """What all brokers are seen to be, now."""

    def expect_end(self, number: int, expected: bool) -> None:
        """Say whether the end of a broker's process is part of a restart and does not count as a death."""

    async def ended(self, number: int) -> None:
        """Wait for the end of a broker's process."""

    async def start(self, number: int, join_seconds: float) -> None:
        """Start a broker again."""

    @property
    def is_stopping(self) -> bool:
        """Whether the whole network is to stop."""


class RollingRestart:
    """Restarts the brokers of a network, one at a time.

    Args:
        network: the network.
        request: who wants it.
        place: the data directory.
        wait_seconds: how long the network may take to be whole again after each broker.
        progress: is called with how far it has come.
    """

    def __init__(
        self,
        network: Restartable,
        request: RestartRequest,
        place: Place,
        wait_seconds: float,
        progress: Callable[[RestartProgress], None],
    ) -> None:
        self._network = network
        self._request = request
        self._place = place
        self._wait_seconds = wait_seconds
        self._tell = progress
        self._progress = RestartProgress(request=request.name, brokers=tuple(network.numbers()))

    async def run(self) -> None:
        """Restart one after the other, until all are done, one fails, or the request is withdrawn."""
        try:
            await self._whole("the network is not whole, and a restart would cut more of it off")
            for done, number in enumerate(self._progress.brokers):
                self._check_wanted()
                await self._restart(number)
                self._say(done=done + 1, broker=0, step="")
        except (NetworkError, OSError) as error:
            self._say(failure=str(error))
        finally:
            self._say(finished=True)

    def _say(self, **changes: object) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        self._tell(self._progress)

    def _check_wanted(self) -> None:
        if self._network.is_stopping:
            raise NetworkError("the network is being stopped")
        if requested_restart(self._place) != self._request:
            raise NetworkError("it was interrupted")

    async def _restart(self, number: int) -> None:
        process = self._network.entry(number).process
        if process is None:
            raise NetworkError(f"broker {number} does not run")
        self._say(broker=number, step="stopping")
        self._network.expect_end(number, True)
        try:
            send_signal(process, signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._network.ended(number)
            except TimeoutError:
                raise NetworkError(
                    f"broker {number} has not stopped after {STOP_SECONDS:g} s; its log is "
                    f"{self._place.log_file(number)}. It is started again when it has"
                ) from None
            self._say(step="starting")
            await self._network.start(number, JOIN_SECONDS)
        finally:
            self._network.expect_end(number, False)
        self._say(step="joining")
        await self._whole(f"broker {number} is not back")

    async def _whole(self, problem: str) -> None:
        """Wait until all brokers are ready and linked, know each other, and hold nothing for one that was away."""
        until = time.monotonic() + self._wait_seconds
        while True:
            views = await self._network.seen()
            lacking = missing(views) + [
                f"broker {view.broker}: {view.held} messages wait for a way" for view in views if view.held
            ]
            if not lacking:
                return
            if time.monotonic() > until or self._network.is_stopping:
                raise NetworkError(f"{problem}: {'; '.join(lacking[:5])}")
            await asyncio.sleep(LOOK_SECONDS)


def requested_restart(place: Place) -> RestartRequest | None:
    """The rolling restart that somebody waits for now; None for none."""
    try:
        with place.restart_file.open("rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                return None
            request = msgspec.json.decode(file.read(), type=RestartRequest)
    except (OSError, msgspec.DecodeError):
        return None
    return request if is_alive(request.by) else None


async def follow_restart(place: Place) -> AsyncIterator[RestartProgress]:
    """Ask for a rolling restart, and yield its progress until it is over. It ends if the caller stops iterating.

    Raises:
        NetworkError: there is no network, nobody watches it, or another restart is under way.
    """
    state = find(place)
    if not is_alive(state.watcher):
        raise NetworkError(
            f"nobody watches the brokers in {place.root} any more, so nobody would start them again; "
            "stop them with `postroad network stop`, and start them with `postroad network up`"
        )
    if requested_restart(place) is not None:
        raise NetworkError(f"a rolling restart of the network in {place.root} is under way already")
    mark = mark_of(os.getpid())
    assert mark is not None
    request = RestartRequest(secrets.token_hex(8), mark)
    write_private(place.restart_file, msgspec.json.encode(request))
    try:
        begin_by = time.monotonic() + BEGIN_SECONDS
        last: RestartProgress | None = None
        while True:
            state = find(place)
            progress = state.restart if state.restart is not None and state.restart.request == request.name else None
            if progress is not None and progress != last:
                yield progress
                last = progress
            if progress is not None and progress.finished:
                return
            if not is_alive(state.watcher) or (progress is None and time.monotonic() > begin_by):
                raise NetworkError(f"the process that watches the brokers does not answer; see {place.watcher_log}")
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        place.restart_file.unlink(missing_ok=True)
