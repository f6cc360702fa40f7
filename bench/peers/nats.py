"""NATS (Debian's package `nats-server`) as it comes, on loopback; and with JetStream, which keeps streams in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, executable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JETSTREAM", "NATS"]

PACKAGE = "nats-server"

# The generator answers no PING; asked this rarely, it need not.
SETTINGS = """\
listen: 127.0.0.1:{port}
ping_interval: "1h"
"""


STREAMS = """\
jetstream: {{ store_dir: "{directory}/streams", max_file_store: 17179869184 }}
"""


def launch(port: int, directory: Path) -> Launch:
    settings = directory / "nats.conf"
    settings.write_text(SETTINGS.format(port=port), "utf-8")
    return Launch([executable("nats-server", PACKAGE), "--config", settings])


NATS = Contender("nats", "nats", launch, PACKAGE)


def launch_with_streams(port: int, directory: Path) -> Launch:
    settings = directory / "nats.conf"
    settings.write_text(SETTINGS.format(port=port) + STREAMS.format(directory=directory), "utf-8")
    return Launch([executable("nats-server", PACKAGE), "--config", settings])


JETSTREAM = Contender("jetstream", "jetstream", launch_with_streams, PACKAGE)
