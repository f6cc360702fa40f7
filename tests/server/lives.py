"""A program that runs brokers one after the other, each in a process of its own that may be killed.

For each line on its input, the path of a settings file, it forks a process that runs `postroad broker`, prints that
process's id, and waits for its end. The broker's output goes to files beside the settings. Kernels are loaded once, so
that a broker starts in moments.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from postroad.cli import main as command


def live(settings: Path) -> None:
    """Be a broker, from here on."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(settings.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.argv = ["postroad", "broker", "--config", str(settings), "--json"]
    command()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                live(Path(line.strip()))
            finally:
                os._exit(0)
        say(str(child))
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main()
