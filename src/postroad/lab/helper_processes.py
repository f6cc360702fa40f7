"""Helper processes: a line of JSON in, a line of JSON out. One process serves a whole series of runs."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Helper", "helping", "serve_lines"]

STOP_SECONDS = 10.0


class Helper:
    """A process that answers requests."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **details: object) -> dict[str, Any]:
        """Send a request, and wait for the result.

        Raises:
            RuntimeError: it failed; stderr has its own message.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **details}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the empty answer shows it
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name} ended while it should {do}; its own words are above")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextmanager
def helping(program: str, name: str) -> Iterator[Helper]:
    """Run a helper for as long as the context lasts.

    Args:
        program: what Python runs.
        name: for errors.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # An interrupt from the terminal reaches only this process, which then ends all.
        start_new_session=True,
    )
    try:
        yield Helper(process, name)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        # The end of its input ends a helper.
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def serve_lines(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Serve requests line by line until there are no more; runs in the helper."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
