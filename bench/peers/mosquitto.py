"""Eclipse Mosquitto (Debian's package `mosquitto`) on loopback, persistence off, nothing dropped for lack of room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, executable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MOSQUITTO"]

PACKAGE = "mosquitto"

SETTINGS = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
set_tcp_nodelay true
log_type error
"""


def launch(port: int, directory: Path) -> Launch:
    settings = directory / "mosquitto.conf"
    settings.write_text(SETTINGS.format(port=port), "utf-8")
    return Launch([executable("mosquitto", PACKAGE), "-c", settings])


MOSQUITTO = Contender("mosquitto", "mqtt", launch, PACKAGE)
