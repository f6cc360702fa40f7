"""The program in a process of its own, and in this one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from typing import IO, TYPE_CHECKING, NamedTuple

from postroad.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

PROGRAM = [sys.executable, "-c", "from postroad.cli import main; main()"]
# A bound for a process that hangs. Kernels may have to be compiled first, on a busy machine.
SECONDS = 280


class Outcome(NamedTuple):
    """How a run of the program ended."""

    code: int
    out: str
    err: str


def here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Outcome:
    """Run the program in this process."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["postroad", *arguments])
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def run(*arguments: str, lines: str = "") -> Outcome:
    """Run the program in a process until it ends."""
    done = subprocess.run(
        [*PROGRAM, *arguments], input=lines, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the program in a process, and end it if it has not ended by itself."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()
