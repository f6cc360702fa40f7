"""Progress of a pipeline job: a bar in a terminal, an occasional line in a log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JobProgress"]

# Often enough to see progress in a log, seldom enough to read it; a short job prints nothing.
LINE_SECONDS = 5.0


class JobProgress:
    """Shows what a job does, and how many messages it has handled of how many.

    Args:
        job: its name.
        clock: the time in seconds.
        is_terminal: whether to draw a bar; by default whether stderr is a terminal.
    """

    def __init__(self, job: str, clock: Callable[[], float] = time.monotonic, is_terminal: bool | None = None) -> None:
        self._job, self._clock = job, clock
        self._bar: Any = None
        self._task: Any = None
        self._said = clock()
        if sys.stderr.isatty() if is_terminal is None else is_terminal:
            self._bar = _bar()
            self._task = self._bar.add_task(f"{job}: starting", total=None, counts="")

    def __enter__(self) -> JobProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, text: str) -> None:
        """Show the current step."""
        self._change(text, None, None, "")

    def show(self, done: int, total: int) -> None:
        """Show how many messages are handled, and how many there are."""
        self._change(None, done, total, f"{done:,} of {total:,} messages")

    def _change(self, text: str | None, done: int | None, total: int | None, counts: str) -> None:
        if self._bar is not None:
            named = {} if text is None else {"description": f"{self._job}: {text}"}
            # A new step begins without a count.
            self._bar.update(self._task, completed=done or 0, total=total, counts=counts, **named)
        elif self._clock() - self._said >= LINE_SECONDS:
            self._said = self._clock()
            typer.echo(f"postroad: {self._job}: {text or counts}", err=True)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True, emoji=False),
        # The rest is in the summary.
        transient=True,
    )
