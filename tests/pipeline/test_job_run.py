"""What a job refuses, and in which words; and that output is put in place whole."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import stat
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from postroad.messages import MessageId
from postroad.pipeline import DamagedFileError, EmptyRangeError, JobOptions, MissingTableError, PipelineError, run_job
from postroad.pipeline.errors import JavaMissingError
from postroad.pipeline.java_options import archive_path, java_options
from postroad.pipeline.jobs import storage, timings
from postroad.pipeline.jobs import trace as trace_job
from postroad.pipeline.jobs.storage import StorageOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.output import replace_output
from postroad.pipeline.session import check_java, session
from postroad.pipeline.sources import open_sources
from postroad.trail.manifest import change_name
from tests.cli.programs import here

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.pipeline import JobRun


session_module = importlib.import_module("postroad.pipeline.session")  # the room offers a function of that name


def test_missing_java_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="apt-get install openjdk-17-jre-headless"):
        check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="is version 8"):
        check_java()


def test_directory_that_is_no_trail_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = here(monkeypatch, "pipeline", "storage", "--trail", str(tmp_path), "--out", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "is not a trail" in outcome.err


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        ("2026-02-01", "2026-01-01", "give --since before --until"),
        ("yesterday", "2026-01-01", "--since 'yesterday': write a date or a time"),
    ],
)
def test_ranges_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, troubled: Path, tmp_path: Path, since: str, until: str, said: str
) -> None:
    outcome = here(
        monkeypatch, "pipeline", "storage", "--trail", str(troubled), "--out", str(tmp_path),
        "--since", since, "--until", until,
    )  # fmt: skip
    assert outcome.code == 2
    assert said in outcome.err


def test_range_without_messages_is_told(troubled: Path) -> None:
    sources = open_sources(troubled, since=4_000_000_000_000)
    with pytest.raises(EmptyRangeError, match="the trail has 2026-01-01 00:00:0"):
        sources.need(["passages"], "is what is counted")


def test_missing_tables_are_told(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    shutil.copytree(troubled / "manifests", tmp_path / "trail" / "manifests")
    for path in (tmp_path / "trail" / "manifests").glob("*/*.json"):
        if path.name != change_name(1):
            path.unlink()
    for job in (storage.run, timings.run):
        with pytest.raises(MissingTableError, match="has no table"):
            run_job("job", job, JobOptions(tmp_path / "trail", tmp_path / "out"), spark=spark)  # type: ignore[misc]


def damaged_copy(troubled: Path, folder: Path, *, where: str) -> tuple[Path, str, str]:
    """A copy of the trail with one flipped byte in its first file of passages: in the footer, or in the times.

    Answers the trail, the name of the file, and an id in it.
    """
    shutil.copytree(troubled, folder)
    path = sorted(folder.glob("passages/broker=3/*/*.parquet"))[0]
    row = pq.read_table(path).to_pylist()[0]
    data = bytearray(path.read_bytes())
    times = pq.read_metadata(path).row_group(0).column(1)
    data[-20 if where == "footer" else times.data_page_offset + times.total_compressed_size - 8] ^= 0xFF
    path.write_bytes(bytes(data))
    return folder, path.name, str(MessageId(row["publisher"], row["origin"], row["time"], row["counter"]))


@pytest.mark.parametrize("where", ["footer", "page"])
def test_damaged_file_stops_the_job_by_name(spark: SparkSession, troubled: Path, tmp_path: Path, where: str) -> None:
    trail, name, one = damaged_copy(troubled, tmp_path / "trail", where=where)
    (tmp_path / "ids.txt").write_text(f"{one}\n")
    with pytest.raises(DamagedFileError, match=f"broker=3/.*{name}.*--skip-damaged"):
        run_job("trace", trace_job.run, TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt"), spark=spark)


def test_damaged_files_are_left_out_and_told(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    trail, name, _ = damaged_copy(troubled, tmp_path / "trail", where="page")
    options = StorageOptions(trail, tmp_path / "out", skip_damaged=True)
    account = run_job("storage", storage.run, options, spark=spark)
    assert [name in lost.path for lost in account.damaged] == [True]
    whole = run_job("storage", storage.run, StorageOptions(troubled, tmp_path / "whole"), spark=spark)
    assert account.summary["exact_bytes"] < whole.summary["exact_bytes"]


@pytest.mark.parametrize("version", [b"1", b"9"])
def test_trail_of_another_version_is_refused(troubled: Path, tmp_path: Path, version: bytes) -> None:
    shutil.copytree(troubled, tmp_path / "trail")
    for path in (tmp_path / "trail" / "manifests" / "broker=1").glob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"postroad-manifest 2 ", b"postroad-manifest " + version + b" "))
    with pytest.raises(PipelineError, match="another format"):
        open_sources(tmp_path / "trail")


def test_output_takes_the_place_of_an_earlier_one(spark: SparkSession, tmp_path: Path) -> None:
    for count in (5, 3):
        replace_output(spark.range(count).coalesce(1), tmp_path, "table")
        assert pq.read_table(tmp_path / "table").num_rows == count
    parts = spark.createDataFrame([(1, "a"), (2, "b")], "number int, day string")
    replace_output(parts, tmp_path, "parts", by=("day",))
    replace_output(parts.where("day = 'b'").selectExpr("number + 10 as number", "day"), tmp_path, "parts", by=("day",))
    rows = {(row["day"], row["number"]) for row in pq.read_table(tmp_path / "parts").to_pylist()}
    # Whatever an earlier run had, of this trail or of another, is not there any more.
    assert rows == {("b", 12)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "table"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")} == {0o700, 0o600}


def test_job_run_twice_writes_the_same(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        run_job("storage", storage.run, StorageOptions(troubled, tmp_path), spark=spark)
        rows = pq.read_table(tmp_path / "storage").to_pylist()
        found.append(sorted(json.dumps(row, sort_keys=True) for row in rows))
    assert found[0] == found[1]


def test_error_of_a_worker_is_told_by_its_last_line(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    def fails(run: JobRun[JobOptions]) -> dict[str, int]:
        def work(batches: Iterable[Any]) -> Iterator[Any]:
            raise ValueError("the worker is out of paper")

        return {"rows": run.spark.range(1).mapInArrow(work, "id bigint").count()}

    with pytest.raises(PipelineError, match="Spark gave up: ValueError: the worker is out of paper"):
        run_job("job", fails, JobOptions(troubled, tmp_path), spark=spark)


def test_trail_is_found_from_any_directory(monkeypatch: pytest.MonkeyPatch, troubled: Path, tmp_path: Path) -> None:
    monkeypatch.chdir(troubled.parent)
    sources = open_sources(troubled.name)
    monkeypatch.chdir(tmp_path)
    assert sources.of("passages")


def test_connect_server_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(PipelineError, match=f"{address}: there is no Spark Connect server that answers"):
            session(address)


def test_setting_that_a_running_spark_cannot_take_is_refused_or_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = {"spark.driver.memory": "2g"}
    with pytest.raises(PipelineError, match=r"sc://h: --conf spark.driver.memory: a Spark Connect server takes"):
        session("sc://h/;token=t", settings=memory)
    asked: list[str | None] = []
    monkeypatch.setattr(session_module, "warm_address", lambda: "sc://warm")
    monkeypatch.setattr(session_module, "is_submitted", lambda: False)
    monkeypatch.setattr(session_module, "session", lambda master, **_: asked.append(master))
    for settings in (None, {"spark.sql.shuffle.partitions": "3"}, memory):
        session_module.SparkStart(settings=settings)()
    assert asked == ["sc://warm", "sc://warm", None]


def test_workers_get_this_python_whatever_the_master_and_loopback_is_for_local_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    local, cluster = (session_module.surroundings(is_local) for is_local in (True, False))
    assert local["PYSPARK_PYTHON"] == cluster["PYSPARK_PYTHON"] == sys.executable
    assert local["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in cluster
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert session_module.surroundings(False)["PYSPARK_PYTHON"] == "/opt/python"
    with session_module.changed_environment({"PYSPARK_PYTHON": "x", "SPARK_LOCAL_IP": "y"}):
        assert (os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"]) == ("x", "y")
    # The next session of this process may have another master.
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_wrong_settings_of_spark_are_told(monkeypatch: pytest.MonkeyPatch, troubled: Path, tmp_path: Path) -> None:
    where = ("--trail", str(troubled), "--out", str(tmp_path))
    outcome = here(monkeypatch, "pipeline", "storage", *where, "--conf", "spark.executor.memory")
    assert outcome.code == 2
    assert "--conf 'spark.executor.memory': write a setting and its value" in outcome.err


def test_small_trails_are_those_with_few_bytes(troubled: Path) -> None:
    sources = open_sources(troubled)
    size = sum(entry.size for here in sources.all_entries().values() for entry in here)
    assert sources.is_small(size)
    assert not sources.is_small(size - 1)


def test_java_starts_fast_for_small_work_and_maps_an_archive_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java_options(small=False) == ""
    assert java_options(small=True).split() == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    archive = archive_path()
    assert archive is not None
    assert archive.is_relative_to(tmp_path)
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_options(small=False).split()
    # Another Java has other classes.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert "SharedArchiveFile" not in java_options(small=False)
