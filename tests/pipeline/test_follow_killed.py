"""`follow` as a program, killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from postroad.lab.trails import growing_trail
from postroad.pipeline.alerts import read_totals, refresh
from tests.cli.programs import PROGRAM, SECONDS
from tests.pipeline.growing_trails import LATER, SCALE, check

if TYPE_CHECKING:
    from pathlib import Path


def test_follow_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    steps = growing_trail(trail, SCALE)
    for part, _ in steps:
        if part == 2:
            break
    arguments = ["pipeline", "follow", "--trail", str(trail), "--out", str(out), "--master", "local[1]"]
    running = subprocess.Popen(
        [*PROGRAM, *arguments, "--seconds", "0.2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + SECONDS
        while not list(out.glob("increments/*.parquet")):
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        for part, _ in steps:
            if part == 4:
                break
    finally:
        # The JVM that it started is of the same session.
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)
    for _ in steps:
        pass
    ended = subprocess.run(
        [*PROGRAM, *arguments, "--once", "--json"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    # What Spark says at every start is kept from its user.
    assert "incubator" not in ended.stderr
    assert "log4j" not in ended.stderr
    check(trail, out)
    assert read_totals(out).of("accepted")
    assert json.loads(ended.stdout.splitlines()[-1])["alerts"] == len(refresh(trail, out, LATER))
