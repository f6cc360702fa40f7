"""Postroad itself, as the others: one broker with its default settings, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from bench.peers.loops import run
from bench.processes import Contender, Launch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["POSTROAD", "main", "recording"]


def launch(port: int, directory: Path, tracking: str = "{}") -> Launch:
    program = "from bench.peers.postroad import main; main()"
    return Launch([sys.executable, "-c", program, str(port), directory / "data", tracking])


POSTROAD = Contender("postroad", "stomp", launch, selects=True)


def recording(name: str, **tracking: object) -> Contender:
    """Postroad with settings of tracking."""
    return Contender(name, "stomp", lambda port, directory: launch(port, directory, json.dumps(tracking)))


async def serve(port: int, data: str, tracking: str) -> None:
    """Run until the process is told to end."""
    # Here and not above: whoever only names the contenders need not load the kernels.
    import msgspec

    from postroad.config import BrokerConfig, TrackingConfig
    from postroad.server import Service
    from postroad.server.process import tune_process

    tune_process()  # as the program does
    settings = msgspec.json.decode(tracking, type=TrackingConfig)
    service = Service(BrokerConfig(port=port, data=data, tracking=settings))
    await service.start()
    await asyncio.Event().wait()


def main() -> None:
    """The process: its arguments are the port, the directory for data, and the settings of tracking as JSON."""
    run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
