"""A server that is kept warm: commands find it, and start no Spark of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from postroad.pipeline.errors import PipelineError
from postroad.pipeline.warm_server import note_path, wait_for_server, warm_address
from tests.cli.programs import PROGRAM, SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("grpc", reason="the extra [connect] is not installed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket to another user")
def test_port_on_which_another_user_listens_is_not_taken_for_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        note_path().parent.mkdir()
        note_path().write_text(json.dumps({"pid": os.getpid(), "port": port, "token": "t"}))
        assert warm_address() == f"sc://localhost:{port}/;token=t"
        with subprocess.Popen(["sleep", "1000"]) as running:
            try:
                wait_for_server(running, port)
                os.fchown(listener.fileno(), 65_534, -1)
                with pytest.raises(PipelineError, match="a program of another user listens on port"):
                    wait_for_server(running, port)
            finally:
                running.kill()
        assert warm_address() is None


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
        job = ("pipeline", "timings", "--trail", str(troubled), "--out", str(tmp_path / "out"), "--json")
        # Without a Java of its own the command cannot start Spark.
        bare = {**environment, "JAVA_HOME": str(tmp_path)}
        done = ended(*job, env=bare)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["batches"] > 0
        refused = ended(*job, "--master", f"sc://localhost:{told['port']}/;token=another", env=bare)
        assert refused.returncode != 0
        assert told["token"] not in refused.stderr
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=SECONDS)
    assert not note.exists()
    with pytest.raises(OSError):  # noqa: PT011 (refused, or no such process: it is gone)
        os.kill(told["pid"], 0)
