"""A program that forks brokers, so that each starts in moments: kernels are loaded once, before the first.

Each line on its input is JSON: {"settings": the file, "clock": a file of 8 bytes}. It prints {"started": pid}, and
{"ended": pid, "code": code} when that process has gone. The line {"clear": true} kills all that run, which is told for
each of them, and then {"cleared": 0}. At the end of its input it kills what still runs, so that
nothing stays behind even if whoever started it was killed.

The clock file holds how many milliseconds the broker's wall clock is off, signed, little-endian; it may change while
the broker runs.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import postroad.pipeline  # loads what brokers and readers share
import postroad.server  # noqa: F401  # the brokers need it, and it is what takes long
from postroad.cli import main as postroad_main

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

_LOOK_SECONDS = 0.02


def set_clock(place: Path) -> None:
    """From here on the wall clock of this process is off by what the file says."""
    with place.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    real: Callable[[], int] = time.time_ns

    def shifted() -> int:
        return real() + int.from_bytes(shared[:8], "little", signed=True) * 1_000_000

    time.time_ns = shifted
    time.time = lambda: shifted() / 1e9


def be_broker(order: dict[str, Any]) -> None:
    """JobRun a broker in this process, which is a fresh fork."""
    settings = Path(order["settings"])
    os.setsid()
    for name, number in (("out", 1), ("log", 2)):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(settings.with_suffix(f".{name}"), flags, 0o644), number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    set_clock(Path(order["clock"]))
    sys.argv = ["postroad", "broker", "--config", str(settings), "--json"]
    postroad_main()


def say(**event: int) -> None:
    """Tell whoever started this program."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def bury(children: set[int], *, all_of_them: bool = False) -> None:
    """Tell of the children that have ended; with `all_of_them`, wait for it."""
    while children:
        pid, status = os.waitpid(-1, 0 if all_of_them else os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        say(ended=pid, code=os.waitstatus_to_exitcode(status))


def kill(children: set[int]) -> None:
    """Kill all that run."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    bury(children, all_of_them=True)


def fork(order: dict[str, Any]) -> int:
    """The process of a new broker."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        be_broker(order)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        os._exit(code)


def main() -> None:
    """Fork brokers until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: set[int] = set()
    waiting = b""
    say(ready=os.getpid())
    while True:
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
            data = os.read(0, 65_536)
            if not data:
                break
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "clear" in order:
                    kill(children)
                    say(cleared=0)
                    continue
                child = fork(order)
                children.add(child)
                say(started=child)
        bury(children)
    # Nobody may be left to be told.
    with contextlib.suppress(BrokenPipeError):
        kill(children)


if __name__ == "__main__":
    main()
