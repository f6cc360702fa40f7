"""The program on a cluster, with processes of their own for all: a standalone master and two workers. Jobs come by the
command, by `spark-submit` with the wheel, and by Spark Connect from a client without a JVM. Executors are killed in
the middle of each job, and nothing that is written differs from a run without trouble.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from postroad.archive import export_archive
from postroad.lab.trails import write_trail
from postroad.messages import Batch, MessageId
from postroad.pipeline import JobOptions, run_job
from postroad.pipeline.erasure import Erasure
from postroad.pipeline.jobs import audit, compact, follow, match, storage, timings, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.follow import FollowOptions
from postroad.pipeline.jobs.match import MatchOptions
from postroad.pipeline.jobs.storage import StorageOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from tests.archive.retained import retain
from tests.cli.programs import PROGRAM
from tests.conftest import THOROUGH
from tests.pipeline.filter_trails import SCALE
from tests.pipeline.processes.clusters import (
    HOME,
    PATIENCE_SECONDS,
    Disturbance,
    answers,
    free_port,
    process,
    python_without_package,
    standalone,
    wait_until,
)
from tests.pipeline.trails import TROUBLED, make_trail, some_ids
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.processes.clusters import Cluster

pytest.importorskip("grpc", reason="the extra [connect] is not installed")

# Each test starts several JVMs one after the other, and loses some of them.
pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)

of_thorough_runs = pytest.mark.skipif(not THOROUGH, reason="takes two minutes; POSTROAD_THOROUGH=1 runs it")

KERNELS = ROOT / "src" / "postroad" / "__pycache__" / "kernels"
# Little of everything: the processes are what takes time.
LITTLE = replace(TROUBLED, brokers=4, messages=600, seconds=60, seal_seconds=20, interests=40)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trail in which things go wrong; tests change copies of it."""
    return make_trail(tmp_path_factory.mktemp("little") / "trail", LITTLE)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same but for what the order of a sum makes of the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-15)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table, in an order of their own."""

    def order(row: dict[str, Any]) -> tuple[str, list[str]]:
        exact = {name: value for name, value in row.items() if not isinstance(value, float)}
        return json.dumps(exact, sort_keys=True, default=str), [f"{row[name]:.3g}" for name in row if name not in exact]

    rows = pq.read_table(folder).to_pylist()
    assert rows, folder
    return sorted(rows, key=order)


def contents(trail: Path) -> dict[tuple[int, str], list[str]]:
    """The rows of each broker and table that the manifests of a trail name, wherever they are."""
    found: dict[tuple[int, str], list[str]] = {}
    for broker, entries in open_sources(trail).all_entries().items():
        for entry in entries:
            rows = pq.ParquetFile(trail / entry.path).read().to_pylist()
            here = found.setdefault((broker, entry.table), [])
            here += [json.dumps(row, sort_keys=True, default=str) for row in rows]
    return {key: sorted(rows) for key, rows in found.items()}


def write_ids(trail: Path, path: Path, count: int) -> Path:
    """Some ids of a trail and as many that never were, in a file."""
    ids = some_ids(trail, count, seed=12)
    texts = [str(MessageId(publisher, origin, when, counter)) for origin, when, publisher, counter in ids]
    path.write_text("id\n" + "\n".join(texts) + "\n")
    return path


@contextmanager
def job(command: Sequence[object], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A command whose lines are read while it runs; killed when it hangs or the test is over."""
    words = [str(word) for word in command]
    with (
        log.open("w") as errors,
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as running,
    ):
        watch = threading.Timer(PATIENCE_SECONDS, running.kill)
        watch.start()
        try:
            yield running
        finally:
            watch.cancel()
            running.kill()


def told(running: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """The next line of JSON that a command prints."""
    assert running.stdout is not None
    others = []
    for line in running.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
        others.append(line)
    raise AssertionError(log.read_text() + "".join(others))


def test_jobs_of_the_command_do_the_same_when_executors_are_killed_in_the_middle_of_each(
    cluster: Cluster, spark: SparkSession, little: Path, tmp_path: Path
) -> None:
    trail, there = tmp_path / "trail", tmp_path / "there"
    for copy in (trail, there):
        shutil.copytree(little, copy)
    page, out, calm, log = free_port(), tmp_path / "out", tmp_path / "calm", tmp_path / "log"
    names = ["audit", "storage", "timings", "compact"]
    settings = cluster.arguments(spark__ui__enabled="true", spark__ui__port=str(page))
    command = [*PROGRAM, "pipeline", "run", *names, "--trail", trail, "--out", out, "--json"]
    reports = []
    with job([*command, "--master", cluster.master, *settings], cluster.environment, log) as running:
        with Disturbance(page, lambda: running.poll() is not None) as trouble:
            for _ in names:
                trouble.kill_a_busy_one()
                reports.append(told(running, log))
        running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 0, log.read_text()
    # A job is over when it is told: each of them lost an executor before that.
    assert [report["job"] for report in reports] == names

    run_job("audit", audit.run, AuditOptions(there, calm))
    run_job("storage", storage.run, StorageOptions(there, calm), spark=spark)
    run_job("timings", timings.run, JobOptions(there, calm), spark=spark)
    summary = run_job("compact", compact.run, CompactOptions(there, calm), spark=spark).summary
    for table in ("reconciliation", "storage", "service_times", "latencies"):
        assert same(rows_in(out / table), rows_in(calm / table)), table
    figures = ("journeys", "passages_joined", "passages_left")
    assert [reports[-1][name] for name in figures] == [summary[name] for name in figures]
    assert contents(trail) == contents(there)


def documented_job() -> str:
    """The program that the documentation gives to `spark-submit`."""
    page = (ROOT / "docs" / "howto" / "spark-cluster.md").read_text()
    found = re.search(r"`job\.py`:\n+```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


# A stopped executor holds blocks that others ask for; each of them waits for `spark.network.timeout`, two minutes.
@pytest.mark.parametrize(
    "stops",
    [
        pytest.param(False, id="undisturbed"),
        pytest.param(True, id="an executor is stopped", marks=of_thorough_runs),
    ],
)
def test_submitted_wheel_brings_compiled_kernels_and_speculation_passes_a_stopped_executor(
    cluster: Cluster, tmp_path: Path, stops: bool
) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, replace(SCALE, recorder="sealed"))
    ids, page, out, log = write_ids(trail, tmp_path / "ids.csv", 30), free_port(), tmp_path / "out", tmp_path / "log"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True, timeout=PATIENCE_SECONDS)
    (wheel,) = tmp_path.glob("postroad-*.whl")
    (tmp_path / "job.py").write_text(documented_job())
    python = python_without_package(tmp_path / "python")
    # The key of compiled kernels is their source: those of these sources are those of the wheel.
    environment = {**cluster.environment, "PYSPARK_PYTHON": str(python), "NUMBA_CACHE_DIR": str(KERNELS)}
    settings = cluster.arguments(
        spark__ui__enabled="true",
        spark__ui__port=str(page),
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__quantile="0.5",
        spark__speculation__multiplier="1.1",
        spark__speculation__efficiency__enabled="false",
        spark__speculation__task__duration__threshold="500ms",
    )
    submit = [HOME / "bin" / "spark-submit", "--master", cluster.master, "--py-files", wheel, *settings]
    arguments = ["pipeline", "trace", "--ids", ids, "--trail", trail, "--out", out, "--json"]
    with job([*submit, tmp_path / "job.py", *arguments], environment, log) as running:
        with Disturbance(page, lambda: running.poll() is not None) as trouble:
            if stops:
                # It stays stopped: only who tries its task elsewhere comes to an end.
                trouble.stop_a_busy_one()
            report = told(running, log)
        running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 0, log.read_text()
    assert (report["job"], report["ids"]) == ("trace", 60)
    run_job("trace", trace.run, TraceOptions(trail, tmp_path / "calm", ids=ids))
    assert same(rows_in(out / "trace"), rows_in(tmp_path / "calm" / "trace"))
    # The workers asked filters, and compiled nothing for that.
    assert not list(cluster.caches.rglob("postroad.*"))


@contextmanager
def connect_server(cluster: Cluster, folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a Connect server on loopback whose executors are those of the cluster; and its page."""
    port, page = free_port(), free_port()
    settings = cluster.arguments(
        spark__connect__grpc__binding__address="127.0.0.1",
        spark__connect__grpc__binding__port=str(port),
        spark__ui__enabled="true",
        spark__ui__port=str(page),
    )
    environment = {
        **cluster.environment,
        # Its own memory, which is the driver's.
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_LOG_DIR": str(folder),
        "SPARK_PID_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    script = [HOME / "sbin" / "start-connect-server.sh", "--wait", "--master", cluster.master, *settings]
    with process(script, folder, environment) as running:
        wait_until(lambda: running.poll() is not None or answers(port), "the Connect server")
        assert running.poll() is None, (folder / "log").read_text()
        yield f"sc://127.0.0.1:{port}", page


@of_thorough_runs
def test_jobs_over_connect_do_the_same_when_executors_are_killed_in_the_middle_of_each(
    cluster: Cluster, spark: SparkSession, little: Path, tmp_path: Path
) -> None:
    ids, out, calm = write_ids(little, tmp_path / "ids.csv", 40), tmp_path / "out", tmp_path / "calm"
    rows = [(f"trades.{n % 3}", {"n": n}, {"price": str(n)}, bytes(20)) for n in range(60)]
    retain(tmp_path / "store", Batch.build(rows))
    export_archive(tmp_path / "store", tmp_path / "archive")
    trail, there = tmp_path / "trail", tmp_path / "there"
    for copy in (trail, there):
        shutil.copytree(little, copy)
    who = Erasure(3, first_subscription(little, 3))
    where = ("--trail", trail, "--out", out)
    erased = ("--subscription", f"{who.broker}/{who.subscription}", "--sample", 50)
    selector = "price > 20"
    commands: dict[str, tuple[object, ...]] = {
        "trace": ("--ids", ids, *where),
        "audit": where,
        "match": ("--archive", tmp_path / "archive", "--where", selector, "--out", out),
        "follow": ("--once", "--seconds", 0.1, *where),
        "erase": (*erased, *where),
    }
    with connect_server(cluster, tmp_path / "server") as (server, page):
        for name, arguments in commands.items():
            command = [*PROGRAM, "pipeline", name, *arguments, "--master", server, "--json"]
            log = tmp_path / f"{name}.log"
            with job(command, dict(os.environ), log) as running:
                with Disturbance(page, lambda running=running: running.poll() is not None) as trouble:  # type: ignore[misc]
                    trouble.kill_a_busy_one()
                report = told(running, log)
                assert report["job"] == name

    run_job("trace", trace.run, TraceOptions(there, calm, ids=ids))
    run_job("audit", audit.run, AuditOptions(there, calm))
    match.run(MatchOptions(tmp_path / "archive", calm, selector), spark=spark)
    run_job("follow", follow.run, FollowOptions(there, calm, once=True, seconds=0.1), spark=spark)
    run_job("erase", compact.run, CompactOptions(there, calm, sample=50, erase=who), spark=spark)
    for table in ("trace", "reconciliation", "match", "links"):
        assert same(rows_in(out / table), rows_in(calm / table)), table
    assert contents(trail) == contents(there)


def first_subscription(trail: Path, broker: int) -> int:
    path = min((trail / "subscriptions" / f"broker={broker}").rglob("*.parquet"))
    return int(pq.ParquetFile(path).read().column("subscription")[0].as_py())
