"""`follow` as a program: killed in the middle, started again, and interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.lab.trails import growing_trail
from postroad.pipeline.alerts import alerts_of, read_totals
from postroad.pipeline.java_options import SMALL
from postroad.pipeline.sources import open_sources
from tests.cli.programs import PROGRAM, SECONDS
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.growing_trails import LATER, SCALE, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def following(trail: Path, out: Path, errors: Path) -> Iterator[subprocess.Popen[str]]:
    """The program at work; it and its JVM are killed at the end."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": " ".join(SMALL)}
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    where = ["--trail", str(trail), "--out", str(out), "--master", "local[1]"]
    command = [*PROGRAM, "pipeline", "follow", *where, "--seconds", "0.2", "--json", *given]
    with (
        errors.open("w") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True) as running,
    ):
        try:
            yield running
        finally:
            # The JVM that it started is of the same session; both may have ended by themselves.
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def wait_until(met: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    end = time.monotonic() + SECONDS
    while not met():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)


def test_follow_that_is_killed_goes_on_where_it_was_and_tells_what_it_found_when_it_is_interrupted(
    tmp_path: Path,
) -> None:
    trail, out, errors = tmp_path / "trail", tmp_path / "out", tmp_path / "errors"
    steps = growing_trail(trail, SCALE)
    for part, _ in steps:
        if part == 2:
            break
    with following(trail, out, errors) as running:
        wait_until(lambda: bool(list(out.glob("increments/*.parquet"))), running)
        for part, _ in steps:
            if part == 4:
                break
    for _ in steps:
        pass

    def alerts() -> int:
        return len(alerts_of(read_totals(out), open_sources(trail).pins, LATER))

    def is_told() -> bool:
        """Whether everything is counted, and the alerts are of that."""
        counted = sum(read_totals(out).of("accepted").values()) == SCALE.messages
        return counted and shown_alerts(out) == alerts()

    with following(trail, out, errors) as running:
        wait_until(is_told, running)
        running.send_signal(signal.SIGINT)
        told, _ = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, errors.read_text()
    check(trail, out)
    report = json.loads(told.splitlines()[-1])
    assert report["alerts"] == alerts()
    assert report["written"] == [str(out / name) for name in ("links", "capacity", "alerts")]
    # What Spark says at every start is kept from its user.
    assert not {"py4j", "incubator", "log4j"} & set(re.findall(r"\w+", errors.read_text()))


def shown_alerts(out: Path) -> int:
    """How many alerts the program has written; -1 while there are none to read."""
    try:
        return int(pq.read_table(out / "alerts").num_rows)
    except (OSError, pa.ArrowInvalid):
        return -1
