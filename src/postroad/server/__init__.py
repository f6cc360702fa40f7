"""The server: the asyncio driver that moves bytes between sockets and the core."""

from __future__ import annotations

# First: it loads pyarrow in its own way, which others below load too.
from postroad import recording as _recording  # noqa: F401
from postroad.server.counts import ServerStatistics
from postroad.server.logs import log_to_stderr
from postroad.server.needed_kernels import spared_kernels
from postroad.server.ports import ListenError
from postroad.server.process import run_broker
from postroad.server.reservation import ReservationError
from postroad.server.service import Service

__all__ = [
    "ListenError",
    "ReservationError",
    "ServerStatistics",
    "Service",
    "log_to_stderr",
    "run_broker",
    "spared_kernels",
]
