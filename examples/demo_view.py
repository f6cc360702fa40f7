"""How the demonstration looks: pleasant in a terminal, plain in a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DemoView"]


class DemoView:
    """Tells the story on stderr: the report alone goes to stdout.

    Args:
        terminal: whether a terminal shows it; by default that is looked up.
    """

    def __init__(self, terminal: bool | None = None) -> None:
        plain = os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ
        self._terminal = sys.stderr.isatty() and not plain if terminal is None else terminal
        self._console = Console(stderr=True, highlight=False, force_terminal=self._terminal, soft_wrap=True)
        self._began = time.monotonic()

    def chapter(self, title: str) -> None:
        """A new part of the story."""
        seconds = time.monotonic() - self._began
        if self._terminal:
            self._console.print()
            self._console.rule(f"[bold cyan]{title}[/]  [dim]{seconds:.0f} s[/]", align="left")
        else:
            self._plain(f"\n== {title} ({seconds:.0f} s)")

    def say(self, text: str = "") -> None:
        """A sentence."""
        self._console.print(text, markup=False) if self._terminal else self._plain(text)

    def command(self, line: str) -> None:
        """A command, as a user would type it."""
        if self._terminal:
            self._console.print(f"\n[bold green]$[/] [bold]{_escaped(line)}[/]")
        else:
            self._plain(f"\n$ {line}")

    def output(self, text: str) -> None:
        """What a command printed."""
        self._console.print(text.rstrip(), markup=False) if self._terminal else self._plain(text.rstrip())

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Something that takes a while."""
        if self._terminal:
            with self._console.status(f"[dim]{_escaped(text)}[/]"):
                yield
        else:
            self._plain(f"({text} ...)")
            yield

    @staticmethod
    def _plain(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
