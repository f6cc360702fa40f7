"""The nursery: a process that has loaded what brokers need, and becomes one broker after the other by forking.

What a broker takes to start is mostly loading libraries and linking machine code, the same for all brokers of a
network. Here that is done once, before there is a thread or an event loop. A broker is forked twice, so that the
process that watches the network becomes its parent (it is a subreaper meanwhile), and does from then on what
`postroad broker` does: same arguments, same log, a session of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from postroad.kernels import load_all, missing_kernels

__all__ = ["BROKEN", "NUMBER_BYTES", "READY", "serve"]

# What the nursery says when it has loaded everything; and if it cannot: then brokers are started without it.
READY, BROKEN = b"+", b"-"
# The number of a process, on its way to the watcher.
NUMBER_BYTES = 8
# A request is a line of JSON: the command line of a broker.
REQUEST_BYTES = 64 * 1024
# Imported by brokers while they start, by their settings; only if installed.
_PERHAPS = ("argon2", "cryptography", "prometheus_client", "uvloop", "websockets")
# The fields of /proc/self/stat after the name: where the command line begins and ends in memory.
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46


def serve(door: int) -> bool:
    """Fork brokers as the watcher asks; True in a broker's process, False in the nursery's when the watcher is done.

    Args:
        door: the socket to the watcher.
    """
    # A reload that comes before a broker listens must not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with socket.socket(fileno=door) as watcher:
        if not _load():
            watcher.sendall(BROKEN)
            return False
        watcher.sendall(READY)
        while True:
            request, files, _, _ = socket.recv_fds(watcher, REQUEST_BYTES, 1)
            if not request:
                return False
            if _forked(watcher):
                command: list[str] = json.loads(request)
                _become(command, files[0])
                return True
            os.close(files[0])


def _load() -> bool:
    """Load what every broker needs; False where kernels are missing: a broker compiles them, and its log says so."""
    import_module("postroad.server")
    if missing_kernels():
        return False
    load_all()
    for name in _PERHAPS:
        if find_spec(name) is not None:
            import_module(name)
    return True


def _forked(watcher: socket.socket) -> bool:
    """Whether this is the new process. The watcher gets its number once it has become the parent."""
    number, answer = os.pipe()
    between = os.fork()
    if between:
        os.close(answer)
        os.waitpid(between, 0)
        watcher.sendall(os.read(number, NUMBER_BYTES))
        os.close(number)
        return False
    os.close(number)
    child = os.fork()
    if child:
        os.write(answer, child.to_bytes(NUMBER_BYTES, "little"))
        os._exit(0)
    os.close(answer)
    return True


def _become(command: list[str], log: int) -> None:
    """Make this process what it would be if it had been started by its command line."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    sys.orig_argv = command
    sys.argv = ["-c", *command[command.index("-c") + 2 :]]
    with contextlib.suppress(OSError, ValueError, IndexError):
        _show_command(command)


def _show_command(command: list[str]) -> None:
    """Let `ps` show the command line of a broker: it is written over that of the nursery, which is longer."""
    fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    if start and len(text) <= end - start:
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
