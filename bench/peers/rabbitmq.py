"""RabbitMQ (Debian's package `rabbitmq-server`) with its STOMP plugin alone, on loopback.

Durable queues and persistent messages are what clients ask for; a confirmation then means that the message is forced to
disk. Erlang's port mapper runs beside it on a port of its own, and ends with it.
"""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, Missing, executable, free_port

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RABBITMQ"]

PACKAGE = "rabbitmq-server"
# Debian's own starter would change to a user of its own, who may not read a directory of ours.
SERVER = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"

SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{other_port}
stomp.listeners.tcp.1 = 127.0.0.1:{port}
vm_memory_high_watermark.relative = 0.4
log.file = false
log.console = true
log.console.level = warning
"""


def launch(port: int, directory: Path) -> Launch:
    executable("rabbitmq-server", PACKAGE)
    found = sorted(glob.glob(SERVER))
    if not found:
        raise Missing(f"rabbitmq-server is installed, but there is no {SERVER}")
    home = directory / "rabbitmq"
    home.mkdir(exist_ok=True)
    (home / "rabbitmq.conf").write_text(SETTINGS.format(port=port, other_port=free_port()), "utf-8")
    (home / "enabled_plugins").write_text("[rabbitmq_stomp].\n", "utf-8")
    mapper = free_port()
    environment = {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "postroad-bench@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
    }
    starter = f"epmd -port {mapper} & exec {found[-1]}"
    return Launch(["/bin/sh", "-c", starter], environment)


RABBITMQ = Contender("rabbitmq", "rabbitmq", launch, PACKAGE)
