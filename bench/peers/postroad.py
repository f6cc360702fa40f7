"""Postroad itself, as the others: one broker with its default settings, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from bench.peers.loops import run
from bench.processes import Contender, Launch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["POSTROAD", "main"]


def launch(port: int, directory: Path) -> Launch:
    return Launch(
        [sys.executable, "-c", "from bench.peers.postroad import main; main()", str(port), directory / "data"]
    )


POSTROAD = Contender("postroad", "stomp", launch, selects=True)


async def serve(port: int, data: str) -> None:
    """Run until the process is told to end."""
    # Here and not above: whoever only names the contenders need not load the kernels.
    from postroad.server import BrokerConfig, Service

    service = Service(BrokerConfig(port=port, data=data))
    await service.start()
    await asyncio.Event().wait()


def main() -> None:
    """The process: its arguments are the port to listen on and the directory for data."""
    run(serve(int(sys.argv[1]), sys.argv[2]))
