"""A compaction that dies while it commits: the next one finishes it, and nothing is lost or there twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from postroad.pipeline import PipelineError, commit_note, run_job
from postroad.pipeline.commit_note import FOLDER, Note, commit, finish_commits, sole_compaction
from postroad.pipeline.jobs import compact
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.sources import open_sources
from postroad.trail import Ledger, TrailConflictError
from postroad.trail.durable_files import create_once
from tests.cli.programs import SECONDS
from tests.pipeline.compactions import NOW, answers, rows_of
from tests.pipeline.trails import some_ids

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Kills the process when the journeys are in, and before any passage is out.
DIES = """
import os, signal, sys
from pathlib import Path
from postroad.pipeline.commit_note import finish_commits
from postroad.trail import Ledger
Ledger.replace = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
finish_commits(Path(sys.argv[1]))
"""


class Died(Exception):
    """The process is gone, as far as the commit is concerned."""


def live(trail: Path) -> dict[int, set[str]]:
    return {broker: {entry.path for entry in here} for broker, here in open_sources(trail).all_entries().items()}


def compacted(spark: SparkSession, trail: Path, out: Path) -> dict[str, Any]:
    options = CompactOptions(trail, out, now=NOW, sample=20)
    return run_job("compact", compact.run, options, spark=spark).summary


@pytest.fixture(scope="module")
def noted(spark: SparkSession, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trail whose compaction died right after it noted what to change."""
    folder = tmp_path_factory.mktemp("noted")
    shutil.copytree(small, folder / "trail")

    def dies(*_: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit_note, "_finish", dies)
        with pytest.raises(Died):
            compacted(spark, folder / "trail", folder / "out")
    return folder / "trail"


def test_commit_that_dies_anywhere_is_finished(small: Path, noted: Path, tmp_path: Path) -> None:
    assert live(noted) == live(small)
    shutil.copytree(noted, tmp_path / "whole")
    assert finish_commits(tmp_path / "whole") == 1
    expected = live(tmp_path / "whole")
    assert expected != live(noted)
    steps = 0
    while True:
        trail = tmp_path / f"died-{steps}"
        shutil.copytree(noted, trail)
        left = [steps]

        def creates(path: Path, data: bytes, left: list[int] = left) -> bool:
            if not left[0]:
                raise Died
            left[0] -= 1
            return create_once(path, data)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("postroad.trail.ledger.create_once", creates)
            try:
                finish_commits(trail)
                break
            except Died:
                pass
        assert finish_commits(trail) == 1
        assert live(trail) == expected
        assert finish_commits(trail) == 0
        shutil.rmtree(trail)
        steps += 1
    # Journeys into some manifests, and passages out of all.
    assert steps > len(expected)


def test_process_that_is_killed_while_it_commits_is_finished_by_the_next_job(
    spark: SparkSession, small: Path, noted: Path, tmp_path: Path
) -> None:
    trail = tmp_path / "trail"
    shutil.copytree(noted, trail)
    died = subprocess.run([sys.executable, "-c", DIES, str(trail)], capture_output=True, timeout=SECONDS, check=False)
    assert died.returncode == -signal.SIGKILL
    assert rows_of(trail, "journeys") > 0
    assert rows_of(trail, "passages") == rows_of(small, "passages")
    ids = some_ids(small, 200, seed=3)
    before = answers(small, ids)
    assert answers(trail, ids) == before
    compacted(spark, trail, tmp_path / "again")
    shutil.copytree(noted, tmp_path / "undisturbed")
    finish_commits(tmp_path / "undisturbed")
    for table in ("journeys", "passages"):
        assert rows_of(trail, table) == rows_of(tmp_path / "undisturbed", table)
    assert answers(trail, ids) == before
    assert list((trail / FOLDER).iterdir()) == [trail / FOLDER / "lock"]


def test_files_that_retention_took_out_do_not_come_back(noted: Path, tmp_path: Path) -> None:
    shutil.copytree(noted, tmp_path / "trail")
    note = msgspec.json.decode(next((noted / FOLDER).glob("*.json")).read_bytes(), type=Note)
    broker, entries = next((broker, here) for broker, here in note.added.items() if here[0].table == "journeys")
    ledger = Ledger(tmp_path / "trail", broker)
    ledger.append(NOW, entries[:1])
    ledger.replace(NOW, [entries[0].path], retained_since=entries[0].time_to + 1)
    ledger.checkpoint(NOW)
    finish_commits(tmp_path / "trail")
    assert entries[0].path not in live(tmp_path / "trail")[broker]


def test_commit_without_its_files_takes_nothing_out(noted: Path, tmp_path: Path) -> None:
    shutil.copytree(noted, tmp_path / "trail")
    next((tmp_path / "trail" / "journeys").rglob("compact-*.parquet")).unlink()
    with pytest.raises(PipelineError, match="is gone, and a compaction"):
        finish_commits(tmp_path / "trail")
    passages = rows_of(noted, "passages")
    assert rows_of(tmp_path / "trail", "passages") == passages


def test_note_that_cannot_be_read_is_told(noted: Path, tmp_path: Path) -> None:
    shutil.copytree(noted, tmp_path / "trail")
    path = next((tmp_path / "trail" / FOLDER).glob("*.json"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(PipelineError, match=f"{path.name}: cannot be read"):
        finish_commits(tmp_path / "trail")


def test_files_that_somebody_else_took_out_are_a_conflict(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "trail")
    broker, entries = next(iter(open_sources(tmp_path / "trail").all_entries().items()))
    Ledger(tmp_path / "trail", broker).replace(NOW, [entries[0].path])
    before = live(tmp_path / "trail")
    with pytest.raises(TrailConflictError, match="not in the manifest any more"):
        commit(tmp_path / "trail", "compact-1", Note(NOW, {broker: entries}, {}))
    assert live(tmp_path / "trail") == before
    assert finish_commits(tmp_path / "trail") == 0


def test_two_compactions_at_once_are_refused(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "trail")
    with sole_compaction(tmp_path / "trail"), pytest.raises(PipelineError, match="another compaction is at work"):
        compacted(spark, tmp_path / "trail", tmp_path / "out")
