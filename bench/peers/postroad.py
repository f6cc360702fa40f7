"""Postroad itself, as the others: one broker in a process of its own, with its default settings or some of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from bench.peers.loops import run
from bench.processes import Contender, Launch

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.server import Service

__all__ = ["POSTROAD", "main", "recording", "storing", "storing_nothing"]

PROGRAM = "from bench.peers.postroad import main; main()"


def launch(port: int, directory: Path, tracking: str = "{}", store: str = "{}") -> Launch:
    return Launch([sys.executable, "-c", PROGRAM, str(port), directory / "data", tracking, store])


POSTROAD = Contender("postroad", "stomp", launch, selects=True)


def recording(name: str, **tracking: object) -> Contender:
    """Postroad with settings of tracking."""
    return Contender(name, "stomp", lambda port, directory: launch(port, directory, json.dumps(tracking)))


def storing(name: str, **store: object) -> Contender:
    """Postroad with settings of its store."""
    return Contender(name, "postroad", lambda port, directory: launch(port, directory, store=json.dumps(store)))


def storing_nothing(name: str, checkout: Path | None = None) -> Contender:
    """Postroad without a store; or the Postroad of another checkout of this repository, as it was then."""

    def launch_earlier(port: int, directory: Path) -> Launch:
        if checkout is None:
            return launch(port, directory, store="null")
        program = f"{EARLIER}\nmain()"
        environment = {"PYTHONPATH": f"{checkout / 'src'}"}
        return Launch([sys.executable, "-c", program, str(port), directory / "data"], environment)

    return Contender(name, "stomp", launch_earlier, selects=True)


# Of what it needs, versions before there was a store have all.
EARLIER = """\
import asyncio, sys
from bench.peers.loops import run
from postroad.server import Service
try:
    from postroad.config import BrokerConfig
except ImportError:
    from postroad.server import BrokerConfig
try:
    from postroad.server.process import tune_process
except ImportError:
    from postroad.server.running import tune_process

async def serve():
    tune_process()
    service = Service(BrokerConfig(port=int(sys.argv[1]), data=sys.argv[2]))
    await service.start()
    await asyncio.Event().wait()

def main():
    run(serve())
"""


async def serve(port: int, data: str, tracking: str, store: str) -> None:
    """Run until the process is told to end."""
    # Here and not above: whoever only names the contenders need not load the kernels.
    import msgspec

    from postroad.config import BrokerConfig, TrackingConfig
    from postroad.server import Service
    from postroad.server.process import tune_process
    from postroad.store import StoreSettings

    tune_process()  # as the program does
    kept = msgspec.json.decode(store, type=StoreSettings | None)
    settings = msgspec.json.decode(tracking, type=TrackingConfig)
    config = BrokerConfig(port=port, data=data, tracking=settings, store=kept or StoreSettings())
    service = Service(config)
    await service.start()
    if kept is None:
        _forget_store(service)
    await asyncio.Event().wait()


def _forget_store(service: Service) -> None:
    """Take the way that a broker took before there was a store."""
    dispatcher = service._dispatcher
    dispatcher.store = None
    dispatcher.core.durables = None
    dispatcher.core._deliveries.stored = None


def main() -> None:
    """The process: its arguments are a port, a directory for data, and settings of tracking and store as JSON."""
    run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]))
