"""A writer that is killed at any moment leaves a trail that readers can read, and that claims no more than it has."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId
from postroad.trail import Trail, pin, replay
from postroad.trail.coverage import GapReason
from tests.trail.crashing import BROKER, STEP_MS
from tests.trail.samples import NOON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS = 6
BETWEEN_RUNS_MS = 1_000_000
# Long enough for some commits and a checkpoint, on a busy machine too.
LONGEST_LIFE_SECONDS = 0.8


@pytest.fixture
def writers() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.trail.crashing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def kill_a_writer(writers: subprocess.Popen[str], root: Path, began: int, chance: random.Random) -> dict[str, int]:
    """Let a writer run for a moment and kill it; returns the last things it said."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    said = root.parent / f"said-{began}"
    writers.stdin.write(f"{root} {began} {said}\n")
    writers.stdin.flush()
    writer = int(writers.stdout.readline())
    deadline = time.monotonic() + 20
    while not (said.exists() and "through" in said.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(chance.random() * LONGEST_LIFE_SECONDS)
    os.kill(writer, signal.SIGKILL)
    assert writers.stdout.readline() == "ended\n"
    # The last line may be cut off in the middle: it was not said.
    lines = [line.split() for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return {what: int(number) for what, number in lines}


def test_what_a_killed_writer_committed_is_there_and_what_it_did_not_is_not_claimed(
    tmp_path: Path, writers: subprocess.Popen[str]
) -> None:
    root = tmp_path / "trail"
    chance = random.Random(11)
    starts = range(NOON, NOON + KILLS * BETWEEN_RUNS_MS, BETWEEN_RUNS_MS)
    said = {began: kill_a_writer(writers, root, began, chance) for began in starts}
    trail = Trail(root)
    runs = {run.since: run for run in pin(root, BROKER).runs}
    assert set(runs) == set(said)
    for began, words in said.items():
        through = runs[began].through
        # Nothing that was reported as committed is missing; at most the commit that was not reported yet is there too.
        assert words["through"] <= through <= words["through"] + STEP_MS
        first, last, after = (MessageId(7, BROKER, time, 0) for time in (began, through, through + 1))
        for identity in (first, last, MessageId(7, BROKER, chance.randint(began, through), 0)):
            found = trail.findings(BROKER, identity, tolerance=0, skew=0)
            assert [hit.number for hit in found.delivered] == [9]
            assert found.neighbours == (2,)
            assert found.gaps == ()
        beyond = trail.findings(BROKER, after, tolerance=0, skew=0)
        assert beyond.accepted is None
        latest = began == max(said)
        assert [gap.reason for gap in beyond.gaps] == [GapReason.NOT_YET_WRITTEN if latest else GapReason.CRASHED]
    assert trail.warnings == []
    assert_journal_has_all(root, said)


def assert_journal_has_all(root: Path, said: dict[int, dict[str, int]]) -> None:
    warnings: list[str] = []
    entries = {int(entry) for entry in replay(root, BROKER, warnings)}
    for began, words in said.items():
        assert entries >= set(range(began, words.get("durable", began - 1) + 1))
    assert all("torn" in warning for warning in warnings)
