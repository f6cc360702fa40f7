"""The program from end to end with processes of their own for all: a client without a JVM speaks by Spark Connect to a
server whose executors are two further processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pyspark
import pytest

from postroad.messages import MessageId
from postroad.pipeline.context import read_context
from postroad.pipeline.judgement import judged
from postroad.pipeline.sources import open_sources
from tests.cli.programs import PROGRAM, SECONDS
from tests.pipeline.trails import evidence_of, some_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("grpc", reason="the extra [connect] is not installed")


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server on loopback."""
    port = free_port()
    script = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    arguments = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    running = subprocess.Popen(
        [str(script), "--wait", "--master", "local-cluster[2,1,1024]", *arguments],
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(tmp_path),
            "SPARK_PID_DIR": str(tmp_path),
            "PYSPARK_PYTHON": sys.executable,
        },
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + SECONDS
        while True:
            assert running.poll() is None
            assert time.monotonic() < end
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)


def run(*arguments: object) -> dict[str, Any]:
    ended = subprocess.run(
        [*PROGRAM, "pipeline", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


def test_trace_and_audit_run_over_connect_on_a_cluster_of_processes(
    server: str, troubled: Path, tmp_path: Path
) -> None:
    ids, out = some_ids(troubled, 40, seed=12), tmp_path / "out"
    texts = [str(MessageId(publisher, origin, when, counter)) for origin, when, publisher, counter in ids]
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(texts) + "\n")
    where = ("--trail", troubled, "--out", out, "--master", server)
    told = run("trace", "--ids", tmp_path / "ids.csv", *where)
    assert (told["job"], told["ids"]) == ("trace", len(ids))
    found = {row["id"]: row["verdict"] for row in pq.read_table(out / "trace").to_pylist()}
    expected = judged(read_context(open_sources(troubled)), evidence_of(troubled, ids)).to_pylist()
    assert found == {
        str(MessageId(row["publisher"], row["origin"], row["time"], row["counter"])): row["verdict"] for row in expected
    }
    messages = run("audit", *where)["messages"]
    balance = pq.read_table(out / "reconciliation").to_pylist()
    assert messages == sum(row["messages"] for row in balance if row["about"] == "origin") > 0


def ended(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_commands_find_a_server_that_is_kept_warm(troubled: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    note = tmp_path / "run" / "postroad" / "spark-server.json"
    serving = subprocess.Popen(
        [*PROGRAM, "pipeline", "serve", "--master", "local[2]"], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert serving.stderr is not None
        assert str(note) in serving.stderr.readline()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        told = json.loads(note.read_text())
        job = ("pipeline", "storage", "--trail", str(troubled), "--out", str(tmp_path / "out"), "--json")
        # Without a Java of its own the command cannot start Spark.
        bare = {**environment, "JAVA_HOME": str(tmp_path)}
        done = ended(*job, env=bare)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["exact_bytes"] > 0
        refused = ended(*job, "--master", f"sc://localhost:{told['port']}/;token=another", env=bare)
        assert refused.returncode != 0
        assert told["token"] not in refused.stderr
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=SECONDS)
    assert not note.exists()
    with pytest.raises(OSError):  # noqa: PT011 (refused, or no such process: it is gone)
        os.kill(told["pid"], 0)
