"""Sessions in documents: `$ command` and what it prints, run by a real shell and compared line by line.

What differs from run to run is masked on both sides: the time and counter of a message id, times of day, durations.
An id that a command printed stands in for the id that the document shows, in later commands too. Networks and brokers
take free ports instead of the default ones; in what they print the default ones are put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from postroad.network import Place, stop_network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A bound for a session that hangs, not a judgement of speed.
PATIENCE_SECONDS = 240.0
MARK = "end-of-step:"
EXIT_DONE, EXIT_NO = 0, 1
PROMPT = "$ "

ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{8})-[0-9a-f]{12}-[0-9a-f]{4}")
MASKS = (
    (ID, r"\1-TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC"), "TIME UTC"),
    (re.compile(r"\d\d:\d\d:\d\d UTC"), "TIME UTC"),
    (re.compile(r"\bin \d+\.\d{3} s\b"), "in SECONDS s"),
    # Admin endpoints of a network have free ports.
    (re.compile(r"127\.0\.0\.1:\d+/console"), "127.0.0.1:PORT/console"),
    # How long a job took, in its table, whose columns are as wide as that.
    (re.compile(r"│ (seconds(?: to start)?) +│ \d+\.\d +│"), r"│ \1 │ SECONDS │"),
    (re.compile(r" +│"), " │"),
    (re.compile(r"─+"), "─"),
)

# The default ports that documents show: how many follow each other from there on.
DOCUMENTED_PORTS = {8160: 1, 8161: 1, 20_000: 16, 61_613: 1}
# Below the ports that the system gives to outgoing connections.
FIRST_PORT, LAST_PORT = 21_000, 32_000

# `postroad` with free ports where a document leaves the port to the default.
PRELUDE = """
postroad() {
    case "$1 $2" in
    "network plan") command postroad "$@" --first-port "$PORT_20000" ;;
    "network up") command postroad "$@" --directory-port "$PORT_8160" ;;
    "broker "*) command postroad "$@" --port "$PORT_61613" ;;
    *) command postroad "$@" ;;
    esac
}
"""


class Step(NamedTuple):
    """A command, and the lines that it shows."""

    command: str
    shown: list[str]


def steps_of(text: str) -> list[Step]:
    """The steps of a console block; blank lines between them say nothing."""
    found: list[Step] = []
    for line in text.splitlines():
        if line.startswith(PROMPT):
            found.append(Step(line.removeprefix(PROMPT), []))
        elif line.strip():
            found[-1].shown.append(line.rstrip())
    return found


class ShellSession:
    """A bash in a directory of its own that runs steps one after the other."""

    def __init__(self, process: subprocess.Popen[str], ports: dict[int, int]) -> None:
        self._process = process
        self._ports = ports
        self._ids: dict[str, str] = {}
        self._has_jobs = False
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, step: Step) -> None:
        """Run a step and compare what it prints; the command must be carried out, though its answer may be no."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._as_here(step.command)}\necho {MARK}$?\n")
        self._process.stdin.flush()
        self._has_jobs |= step.command.endswith("&")
        printed, code = self._until_mark()
        # A job in the background prints when it likes.
        while self._has_jobs and len(printed) < len(step.shown):
            printed.append(self._next_line())
        expected, found = list(map(masked, step.shown)), list(map(masked, map(self._as_shown, printed)))
        if self._has_jobs:
            expected.sort()
            found.sort()
        shown, told = "\n".join(expected), "\n".join(found)
        assert found == expected, f"$ {step.command}\n{told}\n--- the document shows:\n{shown}"
        assert code in (EXIT_DONE, EXIT_NO), f"$ {step.command}\nended with {code}:\n{told}"
        shown_ids, printed_ids = ids_of(step.shown), ids_of(printed)
        self._ids |= dict(zip(shown_ids, printed_ids, strict=True))

    def _as_here(self, command: str) -> str:
        """A command of a document with the ids and ports of this run."""
        command = ID.sub(lambda found: self._ids.get(found[0], found[0]), command)
        return _replaced(command, self._ports)

    def _as_shown(self, line: str) -> str:
        return _replaced(line, {here: shown for shown, here in self._ports.items()})

    def _until_mark(self) -> tuple[list[str], int]:
        printed: list[str] = []
        while True:
            text, mark, code = self._next_line().partition(MARK)
            if text:
                printed.append(text)
            if mark:
                return printed, int(code)

    def _next_line(self) -> str:
        """The next line that is not blank."""
        while True:
            line = self._lines.get(timeout=PATIENCE_SECONDS)
            assert line is not None, "the shell has ended"
            if line.strip():
                return line.rstrip()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def masked(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, mask in MASKS:
        line = pattern.sub(mask, line)
    return line


def ids_of(lines: list[str]) -> list[str]:
    """The message ids in lines, each once, in the order of their lines' masks: the same order in two runs."""
    found = [match[0] for line in sorted(lines, key=masked) for match in ID.finditer(line)]
    return list(dict.fromkeys(found))


def _replaced(text: str, ports: dict[int, int]) -> str:
    return re.sub(r"(?<![\d.])\d{4,5}(?![\d.])", lambda found: str(ports.get(int(found[0]), found[0])), text)


@contextlib.contextmanager
def shell_session(folder: Path) -> Iterator[ShellSession]:
    """A shell that finds this package as `postroad`; what it left running in `folder` ends with it."""
    ports = _free_ports()
    programs = folder / ".programs"
    programs.mkdir()
    for name, command in {"postroad": '-c "from postroad.cli import main; main()" "$@"', "python": '"$@"'}.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' {command}\n")
        program.chmod(0o700)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POSTROAD_")},
        **{f"PORT_{shown}": str(here) for shown, here in ports.items()},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "TERM": "dumb",
    }
    with subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        # So that jobs in the background can be ended with it.
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(PRELUDE)
        try:
            yield ShellSession(process, ports)
        finally:
            for place in map(Place, folder.glob("*.network")):
                if place.read() is not None:
                    asyncio.run(stop_network(place))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _free_ports() -> dict[int, int]:
    """A free port for each documented one; free ones follow each other where documented ones do."""
    found: dict[int, int] = {}
    # Another process begins to look elsewhere.
    candidate = FIRST_PORT + os.getpid() * 64 % (LAST_PORT - FIRST_PORT - 256)
    for shown, count in DOCUMENTED_PORTS.items():
        while not all(map(_is_free, range(candidate, candidate + count))):
            candidate += 1
            assert candidate + count < LAST_PORT + 500, "no free ports"
        found |= {shown + more: candidate + more for more in range(count)}
        candidate += count
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
