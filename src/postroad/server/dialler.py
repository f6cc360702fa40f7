"""Dials neighbours, and dials again after a connection is lost, with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from postroad.protocols import link
from postroad.protocols.link import limits as link_limits
from postroad.server.link_connection import TLS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import Neighbouring
    from postroad.server.link_connection import LinkConnection
    from postroad.server.tls import LinkTls

__all__ = ["Dialler"]

log = logging.getLogger("postroad.links")

# How long a connection to a neighbour may take to be made, TLS included.
DIAL_SECONDS = 2 * link_limits.HANDSHAKE_TIMEOUT_MS / 1_000


class Dialler:
    """One task for each neighbour that is to be dialled.

    Args:
        make: makes the connection to a neighbour, not connected yet.
        is_wanted: whether to dial a neighbour now: not while it is connected or in quarantine.
        tls: how to wrap connections; None for none.
    """

    def __init__(
        self,
        make: Callable[[int], LinkConnection],
        is_wanted: Callable[[int], bool],
        tls: LinkTls | None,
    ) -> None:
        self._make = make
        self._is_wanted = is_wanted
        self._tls = tls
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take_tls(self, tls: LinkTls | None) -> None:
        """Wrap connections that are made from now on like this."""
        self._tls = tls

    def dial(self, neighbour: Neighbouring) -> None:
        """Keep a connection to a neighbour from now on."""
        if neighbour.number not in self._tasks:
            self._tasks[neighbour.number] = asyncio.create_task(self._keep_dialling(neighbour))

    def give_up(self, number: int) -> None:
        """Stop dialling a neighbour; an open connection stays."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def stop(self) -> None:
        """Stop dialling."""
        for number in list(self._tasks):
            self.give_up(number)

    async def _keep_dialling(self, neighbour: Neighbouring) -> None:
        attempt = 0
        while True:
            try:
                # If the other end has dialled in the meantime, a second connection would only replace that one.
                if self._is_wanted(neighbour.number):
                    connection = await self._connected(neighbour)
                    attempt = 0 if await connection.gone.wait() and connection.was_open else attempt + 1
            except Exception as error:
                # Any error, also an invalid host name or a defect: the link comes up only by further attempts.
                if attempt == 0:
                    log.info("neighbour not there", extra={"neighbour": neighbour.number, "reason": str(error)})
                attempt += 1
            await asyncio.sleep(link.redial_delay(attempt, random.random()) / 1_000)

    async def _connected(self, neighbour: Neighbouring) -> LinkConnection:
        tls = self._tls
        async with asyncio.timeout(DIAL_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: self._make(neighbour.number),
                neighbour.host,
                neighbour.port,
                ssl=None if tls is None else tls.dialling,
                ssl_handshake_timeout=None if tls is None else TLS_SECONDS,
            )
        return connection
