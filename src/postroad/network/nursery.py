"""The nursery as its watcher sees it: brokers of a network that comes up are forked from one loaded process.

It is there while the network comes up, and no longer. A broker that is started again later, because it died or in a
rolling restart, is started by its command line, from the sources as they are then.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from postroad.network.nursery_process import NUMBER_BYTES, READY

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AdoptedProcess", "Nursery"]

# The system's name for a process that becomes the parent of orphans below it (prctl(2)).
_SET_CHILD_SUBREAPER = 36
_PROGRAM = (
    "import sys, postroad.cli.brokers; from postroad.cli import main; "
    "from postroad.network.nursery_process import serve; serve(int(sys.argv[1])) and main()"
)


class AdoptedProcess:
    """A child of this process that another one has started for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    async def wait(self) -> int:
        """Its exit code when it has ended; minus the number of the signal that ended it. To be called once."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._handle)
            os.close(self._handle)
        _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222 - it has ended, so this returns at once
        return os.waitstatus_to_exitcode(status)


class Nursery:
    """Starts a process that forks brokers. Use it as a context: it is gone at the end, its brokers are not.

    Where the system lacks what it takes, or kernels have to be compiled first, `fork` returns None.

    Args:
        longest: the length of the longest command line of a broker, in bytes.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._door: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready: bool | None = None

    def __enter__(self) -> Self:
        if hasattr(os, "pidfd_open") and _adopt_orphans(True):
            self._door, other = socket.socketpair()
            with other:
                command = [sys.executable, "-P", "-c", _PROGRAM, str(other.fileno())]
                # Room for the command line of a broker, which is written over this one.
                room = "-" * (self._longest - len("\0".join(command).encode()))
                self._process = subprocess.Popen(
                    [*command, room],
                    stdin=subprocess.DEVNULL,
                    # What is wrong here is wrong with the brokers, too, and told in their logs.
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                    start_new_session=True,
                )
        return self

    def __exit__(self, *_: object) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            # It ends as soon as nobody is at the door, unless it is loading still.
            self._process.terminate()
            self._process.wait()
        _adopt_orphans(False)

    async def is_ready(self) -> bool:
        """Whether it can fork brokers; it is waited for until that is known."""
        if self._is_ready is None:
            self._is_ready = self._door is not None and await self._received(len(READY)) == READY
        return self._is_ready

    async def fork(self, command: Sequence[str], log: int) -> AdoptedProcess | None:
        """A new broker, or None if that takes its command line.

        Args:
            command: its command line.
            log: the file that its output goes to.
        """
        if self._door is None or not await self.is_ready():
            return None
        try:
            socket.send_fds(self._door, [json.dumps(command).encode()], [log])
        except OSError:
            return None
        number = await self._received(NUMBER_BYTES)
        if len(number) < NUMBER_BYTES:
            self._is_ready = False
            return None
        return AdoptedProcess(int.from_bytes(number, "little"))

    async def _received(self, size: int) -> bytes:
        """So many bytes; fewer if the nursery is gone."""
        assert self._door is not None
        self._door.setblocking(False)
        found = b""
        with contextlib.suppress(OSError):
            while len(found) < size:
                more = await asyncio.get_running_loop().sock_recv(self._door, size - len(found))
                if not more:
                    break
                found += more
        self._door.setblocking(True)
        return found


def _adopt_orphans(wanted: bool) -> bool:
    """Whether the system allowed this process to become the parent of its orphaned descendants, or to stop that."""
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
