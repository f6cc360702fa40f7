"""NATS (Debian's package `nats-server`) as it comes, on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, executable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NATS"]

PACKAGE = "nats-server"

# The generator answers no PING; asked this rarely, it need not.
SETTINGS = """\
listen: 127.0.0.1:{port}
ping_interval: "1h"
"""


def launch(port: int, directory: Path) -> Launch:
    settings = directory / "nats.conf"
    settings.write_text(SETTINGS.format(port=port), "utf-8")
    return Launch([executable("nats-server", PACKAGE), "--config", settings])


NATS = Contender("nats", "nats", launch, PACKAGE)
