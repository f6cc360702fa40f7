"""A running broker: listens, keeps the conversations, ticks, and stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.broker import Broker, PublisherNumbers
from postroad.server.conversation import Conversation
from postroad.server.reservation import Reservation
from postroad.server.station import Station
from postroad.server.tcp import StompConnection

if TYPE_CHECKING:
    from postroad.broker import BrokerStatistics
    from postroad.server.config import BrokerConfig
    from postroad.server.conversation import Line

__all__ = ["Service"]

log = logging.getLogger("postroad.server")

# How often heart-beats are looked after; a quarter of the shortest one that a client may ask for.
TICK_SECONDS = 0.025
# How long a stop waits for connections to take what is written to them.
CLOSE_SECONDS = 5.0


def wall_clock() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class Service:
    """One broker on the network.

    `start` returns when clients can connect; `stop` closes every connection and waits for the last byte, for at most
    CLOSE_SECONDS. Both may be cancelled; a cancelled stop leaves connections to the loop.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        reservation = Reservation(Path(config.data))
        self._station = Station(Broker(config.number, PublisherNumbers(reservation.reserve), config.limits), wall_clock)
        self._conversations: set[Conversation] = set()
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def statistics(self) -> BrokerStatistics:
        """Counts for people and for metrics."""
        return self._station.core.statistics()

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: StompConnection(self), self.config.host, self.config.port, backlog=1024
        )
        self._ticker = asyncio.create_task(self._tick())
        log.info("listening", extra={"host": self.config.host, "port": self.port, "broker": self.config.number})

    async def stop(self) -> None:
        """Close every connection, and stop."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._server is not None:
            self._server.close()
        for conversation in list(self._conversations):
            conversation.refuse("this broker is stopping; connect to another one")
        if self._conversations:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
        log.info("stopped", extra={"connections_cut": len(self._conversations)})

    def opened(self, line: Line) -> Conversation:
        """A client has connected."""
        conversation = Conversation(self._station, line, self.config.users)
        self._conversations.add(conversation)
        return conversation

    def closed(self, conversation: Conversation) -> None:
        """A connection is gone."""
        self._conversations.discard(conversation)
        if not self._conversations:
            self._empty.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = wall_clock()
            for conversation in [each for each in self._conversations if each.beats]:
                conversation.tick(now)
