"""Runs on disk: cells are whole or not there, and a run that was broken off goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyarrow import parquet

from postroad.lab.errors import LabError
from postroad.lab.experiments import RunRequest
from postroad.lab.run_folder import RunFolder
from postroad.lab.runs import request_of

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.lab.raw_events import RawEvents

ASKED = {"experiment": "x", "scale": 0.1, "pair": (1, 2)}


def fill(events: RawEvents, count: int = 3) -> None:
    ids = np.arange(2 * count, dtype=np.uint64).reshape(-1, 2)
    events.accepted(
        np.arange(count), 1, np.zeros(count, np.int32), ids, np.ones(count, np.int32), np.ones(count, np.int32)
    )
    events.delivered(5, 1, 0, ids)


def test_a_run_goes_on_with_the_cells_that_are_missing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.begin(ASKED, ["a", "b", "c"]) == ["a", "b", "c"]
    with folder.cell("a") as events:
        fill(events)
    # It is called running while it runs; seen from outside it is as far as it is.
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "running"
    assert folder.state == "partial"
    assert folder.progress() == (1, 3)
    again = RunFolder(tmp_path / "run")
    assert again.begin(ASKED, ["a", "b", "c"]) == ["b", "c"]
    for key in ("b", "c"):
        with again.cell(key) as events:
            fill(events)
    assert again.finish() == "complete"
    assert again.begin(ASKED, ["a", "b", "c"]) == []
    assert parquet.read_table(again.raw / "cell=a" / "accepted.parquet").num_rows == 3


def test_a_cell_that_fails_is_kept_apart_and_played_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin(ASKED, ["a"])

    def break_off() -> None:
        with folder.cell("a") as events:
            fill(events)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert not folder.has("a")
    assert folder.finish() == "partial"
    kept = parquet.read_table(tmp_path / "run" / "unfinished" / "cell=a" / "delivered.parquet")
    assert kept.num_rows == 3
    assert folder.begin(ASKED, ["a"]) == ["a"]
    with folder.cell("a") as events:
        fill(events)
    assert not (tmp_path / "run" / "unfinished" / "cell=a").exists()
    assert folder.finish() == "complete"


def test_a_full_disk_is_told_and_finished_cells_stay(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from postroad.lab.run_folder import RunFolder
from postroad.lab.runs import request_of
from postroad.errors import PostroadError

def fill(events, count):
    ids = np.random.default_rng(1).integers(0, 2**63, (count, 2)).astype(np.uint64)
    events.delivered(5, 1, 0, ids)

folder = RunFolder(Path(sys.argv[1]))
folder.begin({}, ["small", "large"])
with folder.cell("small") as events:
    fill(events, 3)
# The kernel refuses to let a file grow, as on a disk that is full; Linux gives EFBIG, said as it is.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    with folder.cell("large") as events:
        fill(events, 100_000)
except PostroadError as error:
    print(error)
    print(folder.finish(), folder.has("small"), folder.has("large"), sorted(p.name for p in folder.raw.iterdir()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True, check=True, timeout=200
    )
    told, state = done.stdout.splitlines()
    assert "finished cells are kept" in told
    assert "start the same run again to go on" in told
    assert state == "partial True False ['cell=small']"


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin(ASKED, ["a"])
    with pytest.raises(LabError, match=r"other settings \(scale\); choose another --out, or --fresh"):
        folder.begin(ASKED | {"scale": 0.2}, ["a"])
    assert folder.begin(ASKED | {"scale": 0.2}, ["a"], fresh=True) == ["a"]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(LabError, match="holds no run"):
        RunFolder(tmp_path).begin(ASKED, ["a"])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(LabError, match="cannot be read"):
        RunFolder(tmp_path).begin(ASKED, ["a"])


PLAY = """
import sys
from pathlib import Path
from postroad.lab.experiments import RunRequest, experiment_named
from postroad.lab.run_folder import RunFolder

def play(root):
    experiment = experiment_named("bdrp-comparative")
    trials = {trial.key: trial for trial in experiment.trials(RunRequest(scale=0.003, seed=4))}
    folder = RunFolder(root)
    folder.begin({}, ["drp-4"])
    with folder.cell("drp-4") as events:
        trials["drp-4"].play(events, lambda _: None)

play(Path(sys.argv[1]))
"""


def test_the_same_trial_writes_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """Hashes of texts differ from process to process: no order may come from them."""
    written = []
    for hashes in ("1", "2"):
        root = tmp_path / hashes
        subprocess.run(
            [sys.executable, "-c", PLAY, str(root)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            timeout=280,
        )
        files = sorted((root / "raw" / "cell=drp-4").iterdir())
        written.append({file.name: file.read_bytes() for file in files})
    assert written[0] == written[1]
    assert parquet.read_table(tmp_path / "1" / "raw" / "cell=drp-4" / "delivered.parquet").num_rows > 50


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_broken_off_says_so_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    """The process is ended in the middle of its cells; the next start plays what is missing."""
    command = [sys.executable, "-c", "from postroad.cli import main; main()", "lab", "run", "bdrp-comparative"]
    command += ["--scale", "0.03", "--out", str(tmp_path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    root = tmp_path / "bdrp-comparative-simulated"
    try:
        end = time.monotonic() + 240
        while not (root / "raw" / "cell=drp-1").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(how)
        _, said = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130)
    folder = RunFolder(root)
    assert folder.state == "partial"
    played, cells = folder.progress()
    assert 0 < played < cells
    if how is not signal.SIGKILL:
        assert f"broken off; {played} of {cells} cells are kept; start the same run again to go on" in said
        assert json.loads((root / "run.json").read_text())["state"] == "partial"
    # As `postroad lab report --all` goes on with it.
    request = request_of(folder)
    assert request == RunRequest(scale=0.03)
    asked = folder.read()["asked"]
    todo = folder.begin(asked, folder.read()["cells"])
    assert "drp-1" not in todo
    assert len(todo) == cells - played


def test_summaries_are_of_all_cells_that_were_played_or_made_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin(ASKED, ["a", "b"])
    folder.summary.mkdir()
    assert not folder.is_summarised
    with folder.cell("a") as events:
        fill(events)
    folder.put_summarised()
    assert folder.is_summarised
    with folder.cell("b") as events:
        fill(events)
    assert not folder.is_summarised
