"""The program from end to end with executors that are processes of their own, and `follow` killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from postroad.lab.trails import growing_trail
from postroad.messages import MessageId
from postroad.pipeline.alerts import read_totals, refresh
from postroad.pipeline.context import read_context
from postroad.pipeline.judging import judged
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from tests.cli.programs import PROGRAM, SECONDS
from tests.pipeline.test_follow import LATER, SCALE, check
from tests.pipeline.trails import evidence_of, some_ids

if TYPE_CHECKING:
    from pathlib import Path


def test_trace_on_a_cluster_of_processes(troubled: Path, tmp_path: Path) -> None:
    ids = some_ids(troubled, 40, seed=12)
    texts = [str(MessageId(publisher, origin, when, counter)) for origin, when, publisher, counter in ids]
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(texts) + "\n")
    arguments = ["pipeline", "trace", "--ids", str(tmp_path / "ids.csv"), "--trail", str(troubled)]
    arguments += ["--out", str(tmp_path / "out"), "--master", "local-cluster[2,1,1024]", "--json"]
    ended = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["job"] == "trace"
    assert told["ids"] == len(ids)
    found = {row["id"]: row["verdict"] for row in pq.read_table(tmp_path / "out" / "trace").to_pylist()}
    expected = judged(read_context(open_sources(troubled)), evidence_of(troubled, ids)).to_pylist()
    assert found == {
        str(MessageId(row["publisher"], row["origin"], row["time"], row["counter"])): row["verdict"] for row in expected
    }
    assert all(set(ID) <= set(row) for row in expected)


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
    check(trail, out)
    assert read_totals(out).of("published")
    assert json.loads(ended.stdout.splitlines()[-1])["alerts"] == len(refresh(trail, out, LATER))
