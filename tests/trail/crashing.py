"""A program that writes a trail and a journal until it is killed.

For each line on its input it forks a writer, prints the writer's process id, and waits for its end. What a writer says
of itself goes to the file that the line names: one line for each thing that must survive.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from postroad.tracking import LinkChanges
from postroad.trail import Journal, TrailWriter
from tests.trail.samples import passages, short, wide

BROKER = 4
STEP_MS = 10
ROWS = 10


def write_until_killed(root: Path, began: int, said: Path) -> None:
    with said.open("w", buffering=1) as out:
        threading.Thread(target=keep_journal, args=(root, began, out), daemon=True).start()
        writer = TrailWriter(root, BROKER, began)
        at = began
        while True:
            rows = passages([(BROKER, at + row, 7, 0) for row in range(ROWS)], delivered=[[9]] * ROWS)
            links = LinkChanges(wide([2]), wide([at]), short([1]), short([1]))
            writer.write([rows, links], at + STEP_MS - 1)
            print("through", at + STEP_MS - 1, file=out)
            writer.maintain(at)
            at += STEP_MS


def keep_journal(root: Path, began: int, out: Any) -> None:
    journal = Journal(root, BROKER)
    number = began
    while True:
        for _ in range(50):
            journal.append(b"%d" % number)
            number += 1
        journal.sync()
        print("durable", number - 1, file=out)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        root, began, said = line.split()
        child = os.fork()
        if not child:
            try:
                write_until_killed(Path(root), int(began), Path(said))
            finally:
                os._exit(1)
        say(str(child))
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main()
