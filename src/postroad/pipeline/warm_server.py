"""A Spark Connect server that stays warm: later commands find it and need not start Spark.

It listens on loopback, and accepts only clients that know its token. Port and token are in a file that only its user
can read; whoever can read that file may run code as this user.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from postroad.pipeline.errors import PipelineError
from postroad.trail.access import make_folders, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["note_path", "wait_for_server", "warm_address", "warm_server"]

# How long Spark may take to start on a busy machine.
START_SECONDS = 300.0
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


class _Note(msgspec.Struct, frozen=True):
    """Where the server of this user is."""

    pid: int
    port: int
    token: str


def note_path() -> Path:
    """Return the file that says where the server of this user is."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) if runtime else Path.home() / ".cache"
    return folder / "postroad" / "spark-server.json"


def warm_address() -> str | None:
    """Return the address of a running server, with its token; None if there is none."""
    try:
        path = note_path()
        if path.stat().st_uid != os.geteuid():
            return None
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
        os.kill(note.pid, 0)
        socket.create_connection(("127.0.0.1", note.port), 1.0).close()
        if not _is_ours(note.port):
            return None
    except (OSError, RuntimeError, msgspec.MsgspecError):
        return None
    return f"sc://localhost:{note.port}/;token={note.token}"


@contextmanager
def warm_server(
    master: str, settings: Mapping[str, str], surroundings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and stop it at the end; meanwhile commands of this user find it.

    Args:
        master: where its Spark runs.
        settings: of Spark.
        surroundings: what Spark reads from its environment.

    Raises:
        PipelineError: it does not start, or this user already has one.
    """
    import pyspark

    if warm_address() is not None:
        raise PipelineError(f"a server of this user runs already; {note_path()} says where")
    script = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
    port, token = _free_port(), secrets.token_hex(32)
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **settings,
    }
    folder = note_path().parent
    make_folders(folder)
    # The token is not in the arguments, which every user of the machine can see.
    environment = {
        **surroundings,
        "SPARK_PID_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder),
        TOKEN_VARIABLE: token,
    }
    arguments = [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
    running = subprocess.Popen(
        [str(script), "--wait", "--master", master, *arguments],
        env={**os.environ, **environment},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_server(running, port)
        write_private(note_path(), msgspec.json.encode(_Note(running.pid, port, token)))
        yield running
    finally:
        with suppress(OSError):
            note_path().unlink()
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


# Where Linux lists sockets: IPv4, and IPv6 with its mapped addresses. The first word after the header is a number, then
# come the local address as hex:hex, the remote one, the state, three others, and the user.
_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_LOCAL, _STATE, _USER = 1, 3, 7


def _is_ours(port: int) -> bool:
    """Return whether only this user listens on a port: who else does would get the token and run code as this user.

    The port is free until Spark binds it, and its arguments show it to everybody. Systems without such lists of sockets
    cannot tell; there the port is trusted.
    """
    tables = [path.read_text() for path in _SOCKETS if path.exists()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    users = {
        int(row[_USER]) for row in rows if row[_STATE] == _LISTENS and int(row[_LOCAL].rpartition(":")[2], 16) == port
    }
    return not tables or users == {os.geteuid()}


def wait_for_server(running: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server accepts connections.

    Raises:
        PipelineError: it ended, or takes too long.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if running.poll() is not None:
            raise PipelineError(f"Spark's Connect server ended at once, with {running.returncode}; is Java there?")
        if _answers(port) and running.poll() is None:
            if not _is_ours(port):
                raise PipelineError(f"a program of another user listens on port {port}; start the server again")
            return
        time.sleep(0.2)
    raise PipelineError(f"Spark's Connect server did not answer within {START_SECONDS:g} seconds")
